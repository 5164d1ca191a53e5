"""Steps shorter than a dispatch are timed: known times come out right, and what would
falsify a time is refused.

Axes: B rows, G = gamma, V vocabulary.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.gpu.aot import hlo
from experiments.gpu.kernels import inputs, programs, timing
from experiments.gpu.kernels.inputs import Inputs, Shape
from experiments.gpu.kernels.timing import SHORT

CALL = programs.read  # light, and reads every logit
LENGTH = 5
TIMES = 8  # as much work


@pytest.fixture(scope="module")
def batch() -> Inputs:
    numbers = np.random.default_rng(0)
    like = inputs.shapes(Shape(2, 2, 300))
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.integers(1, 9, x.shape), x.dtype), like
    )


def build_sorts(times: int):
    """Returns a step of `times` sorts, each of the result of the previous one."""

    def step(i, numbers, state):
        def sort_once(j, x):
            return jnp.sort(jnp.cos(x + numbers))

        return jax.lax.fori_loop(0, times, sort_once, state)

    return step


@pytest.mark.slow
def test_a_step_takes_what_its_work_takes():
    """One of two steps has TIMES the work of the other, and its time must be TIMES as
    long, whatever a dispatch takes. The sorts alone, in one program, are another clock.
    The fastest of all rounds counts, because a machine has other work."""
    numbers, steps, many = jnp.linspace(0, 1, 3000), 20, 100
    runs = {
        (times, n): partial(timing.chain(build_sorts(times), n), numbers, numbers)
        for times in (1, TIMES)
        for n in (steps, SHORT)
    }
    alone = jax.jit(lambda x: build_sorts(many)(0, x, x))
    runs["alone"] = partial(alone, numbers)
    seconds = timing.time_in_turns(runs, 25, "sorts")
    least = {name: samples.min() for name, samples in seconds.items()}
    once, more = (
        timing.step_seconds(least[times, steps], least[times, SHORT], steps)
        for times in (1, TIMES)
    )
    assert 0.6 * TIMES < more / once < 1.6 * TIMES
    assert 0.6 < once / (least["alone"] / many) < 1.6


def test_neither_a_dispatch_nor_what_precedes_a_loop_is_in_a_step(monkeypatch):
    dispatch, step = 3e-3, 2e-6

    def slow_down_by_round(runs, rounds, label):
        """A dispatch lasts longer round by round."""
        late = 1 + np.arange(rounds)
        return {key: late * dispatch + run() * step for key, run in runs.items()}

    monkeypatch.setattr(timing, "time_in_turns", slow_down_by_round)
    runs = {"it": (lambda: 100, lambda: SHORT), "empty": (lambda: 0, lambda: 0)}
    each = timing.measure_steps(runs, length=100, rounds=4, label="")
    np.testing.assert_allclose(each["it"], [step] * 4)
    np.testing.assert_allclose(each["empty"], [0] * 4, atol=1e-12)


@pytest.mark.parametrize("cache", [None, 1000])
def test_a_chain_ends_with_the_verdict_of_its_call(batch, cache):
    given = timing.operands(batch, cache)
    run = timing.chain(timing.build_step(CALL), LENGTH).lower(*given).compile()
    timing.check_loop(run.as_text(), given[1], LENGTH)
    end, alone = run(*given), jax.jit(CALL)(batch)
    for mine, wanted in zip((end.n, end.tokens), alone, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    np.testing.assert_array_equal(end.target, batch.target)


def compile_chain(step, given, length: int = LENGTH) -> str:
    return timing.chain(step, length).lower(*given).compile().as_text()


def test_what_stands_before_the_loop_is_refused(batch):
    """A compiler, or the author of a chain, computes something from the logits once;
    another chain needs a dispatch for each step."""
    given = timing.operands(batch, None)
    step = timing.build_step(CALL)

    def run_loop(fixed, state):
        done = CALL(fixed.batch._replace(target=state.target, draft=state.draft))

        def step(i, it):
            return it._replace(n=it.n + done[0], tokens=it.tokens + done[1])

        return jax.lax.fori_loop(0, LENGTH, step, state)

    run = jax.jit(run_loop).lower(*given).compile()
    with pytest.raises(ValueError, match="reads logits before the loop"):
        timing.check_loop(run.as_text(), given[1], LENGTH)
    for length in (1, LENGTH + 1):  # a loop of one step is none
        with pytest.raises(ValueError, match=f"no loop of {LENGTH} steps"):
            timing.check_loop(compile_chain(step, given, length), given[1], LENGTH)


def test_a_step_that_copies_the_logits_is_refused(batch):
    given = timing.operands(batch, None)
    verify = timing.build_step(CALL)

    def step(i, fixed, state):
        end = verify(i, fixed, state)
        return end._replace(target=end.target + 1)

    with pytest.raises(ValueError, match="copies the logits in every step"):
        timing.check_loop(compile_chain(step, given), given[1], LENGTH)


UPDATE = """
%fused {{
  %logits = f32[1,6,300]{{2,1,0}} parameter(0)
  %more = f32[] parameter(1)
  %first = f32[1,1,1]{{2,1,0}} {first}
  %zero = s32[] constant(0)
  ROOT %update = f32[1,6,300]{{2,1,0}} dynamic-update-slice(%logits, %first, %zero)
}}

ENTRY %main {{
  ROOT %fusion = f32[1,6,300]{{2,1,0}} fusion(%a, %b), kind=kLoop, calls=%fused
}}
"""


@pytest.mark.parametrize(
    ("first", "wanted"), [("bitcast(%more)", True), ("slice(%logits)", False)]
)
def test_an_update_that_reads_what_it_writes_is_a_copy(first, wanted):
    """XLA for GPUs writes one logit, or launches a thread for each logit."""
    found, entry = hlo.computations(UPDATE.format(first=first))
    assert timing.writes_in_place(found[entry][0], found) == wanted


def test_a_step_waits_for_all_that_the_one_before_gave(batch):
    """The value is 1 where the sum or a logit is impossible, else 0."""
    _, state = timing.operands(batch, None)
    never = jnp.int32(timing.NEVER)
    assert timing.zero_after(never, state) == 0
    first = jnp.float32(timing.NEVER)
    changes = {"target": state.target.at[0, 0, 0].set(first)}
    changes |= {"draft": state.draft.at[0, 0, 0].set(first)}
    changes |= {
        "n": state.n.at[-1].set(never),
        "tokens": state.tokens.at[-1, -1].set(never),
    }
    for name, value in changes.items():
        assert timing.zero_after(never, state._replace(**{name: value})) == 1, name


def test_the_empty_chain_reads_and_writes_alike(batch):
    """The empty chain does everything that a step does beside its call: it clears the
    caches too, and writes a logit."""
    cold, warm = (timing.operands(batch, cache) for cache in (1000, None))
    empty = timing.build_step(programs.do_nothing)

    def opcodes(given):
        found = hlo.computations(compile_chain(empty, given))[0]
        return [op.opcode for part in found.values() for op in part]

    assert opcodes(warm).count("dynamic-update-slice") == 2
    assert opcodes(cold).count("reduce") > opcodes(warm).count("reduce")


def test_memory_is_timed_by_loops_that_begin_alike(monkeypatch):
    """A loop of one step would not be a loop, and would save the copy before it; each
    step moves the bytes that are counted."""
    moved = 2**20

    def seconds_by_length(runs, rounds, label):
        begins = []
        for length, run in runs.items():
            text = run.func.lower(*run.args).compile().as_text()
            begins.append([kernel.opcode for kernel in hlo.read(text).kernels])
            assert [loop.trips for loop in hlo.loops(hlo.read(text))] == [length]
        assert begins[0] == begins[1]
        return {length: np.full(rounds, 1.0 + 1e-3 * length) for length in runs}

    monkeypatch.setattr(timing, "time_in_turns", seconds_by_length)
    np.testing.assert_allclose(timing.copy_speed(moved), 2 * moved / 1e-3)
    np.testing.assert_allclose(timing.read_speed(moved), moved / 1e-3)
    monkeypatch.setattr(
        timing, "time_in_turns", lambda runs, *_: dict.fromkeys(runs, 1.0)
    )
    with pytest.raises(RuntimeError, match="took no longer than"):
        timing.copy_speed(moved)


def test_where_there_is_no_gpu_a_line_says_so():
    told = timing.kernel_microseconds(jax.jit(jnp.sin), jnp.ones(3))
    assert told == {"device": "not measured: CUPTI is of GPUs, and this is a cpu"}
