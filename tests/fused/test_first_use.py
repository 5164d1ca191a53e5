"""What was chosen to read logits is what decodes, wherever decoding is measured."""

import functools

import jax
import numpy as np
import pytest

from experiments import tasks
from experiments.exactness import microscope
from experiments.gpu.paper_size import row
from experiments.papers.leviathan import lenience
from experiments.papers.wagner import methods as wagner_methods
from experiments.papers.wagner import runs
from experiments.records import records
from specjax import configs, fused, generate, sides, verifiers
from specjax.cli import demo
from specjax.drafters import rollout
from specjax.exactness import audit as auditing
from specjax.exactness import audit_row, divergence
from specjax.measure import costs, pairs, texts, walltime
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.step import Decoder, build_step
from specjax.types import Kernels
from specjax.verifiers import lenient, token
from tests.support import tiny

PROMPTS = Prompts([[1], [2, 3]], ends=())
PROTOCOL = Protocol("marked", 1.0, tokens=8, gamma=2, new_tokens=4, batch=2)
RECORD = {"asked": "auto", "verify": "marked", "draw": "marked", "why": "a test"}


@functools.cache
def pair():
    world = tiny.tables()
    both = (world.target, world.target_weights), (world.draft, world.draft_weights)
    return tuple(sides.of_model("tables", *side) for side in both)


@pytest.fixture
def traced():
    """The names of what was traced, and kernels that say so."""
    seen = []

    def verifier(name: str):
        def verify(*arguments, **options):
            seen.append(name)
            return token.verify(*arguments, **options)

        return token.verifier._replace(verify=verify)

    def draw(*arguments):
        seen.append("draw")
        return rollout.independent(*arguments)

    return seen, Kernels(verifier("verifier"), draw, verifier("alone"), RECORD)


@pytest.fixture
def chosen(traced, monkeypatch):
    """Whoever chooses gets them. Gives what was traced, and what was asked for."""
    seen, marked = traced
    asked = []

    def choose(*arguments):
        asked.append(arguments)
        return marked

    monkeypatch.setattr(fused, "choose", choose)
    known = tasks.Task(PROMPTS, [], ())
    monkeypatch.setitem(tasks.TASKS, "marked", lambda: known)
    return seen, asked


SPECULATIVE = {"verifier", "draw"}


class Stop(Exception):
    """What was to be measured would be now."""


def stops(*arguments, **named):
    raise Stop(arguments)


def stopped_at(function, *arguments) -> tuple:
    """What `stops`, called by the function, was called with."""
    with pytest.raises(Stop) as stopped:
        function(*arguments)
    return stopped.value.args[0]


@pytest.mark.parametrize("write", [texts.speculate, auditing.write])
def test_texts_are_written_by_what_was_injected(traced, monkeypatch, write):
    _, marked = traced
    target, draft = pair()
    drawn = []
    spy = draft._replace(drafter=lambda gamma, draw: drawn.append(draw))
    more = [PROMPTS, 2, PROTOCOL] if write is texts.speculate else [PROMPTS, PROTOCOL]
    monkeypatch.setattr(texts, "build_step", stops)
    for kernels_, verifier in ((marked, marked.verifier), (None, token.verifier)):
        arguments = (target, spy), *more, *([kernels_] if kernels_ else [])
        assert stopped_at(write, *arguments)[2] is verifier
    assert drawn == [marked.draw, rollout.independent]


def test_the_targets_own_texts_are_written_by_what_was_injected(traced, monkeypatch):
    monkeypatch.setattr(generate, "build", stops)
    for kernels_, verifier in ((traced[1], traced[1].alone), (None, token.verifier)):
        decoder, *_ = stopped_at(texts.write, pair()[0], PROMPTS, PROTOCOL, kernels_)
        assert decoder.verifier is verifier


def test_steps_and_their_parts_are_timed_by_what_was_injected(traced):
    seen, marked = traced
    sides = costs.Pair(*pair(), 24, marked)
    prompt, request = walltime.batches(PROMPTS, walltime.WalltimeSetting(1.0))[0][0]
    for gamma, names in ((0, {"alone"}), (2, SPECULATIVE)):
        state = jax.eval_shape(lambda g=gamma: costs.begin(sides, g, prompt, request))
        step = build_step(*sides.decoder(gamma))
        jax.eval_shape(step, sides.params(gamma), request, state)
        assert set(seen) == names
        seen.clear()
    assert sides.verifier(0) is marked.alone and sides.verifier(2) is marked.verifier


def test_rows_of_alpha_of_lenience_and_of_audits_decode_by_what_is_chosen(
    chosen, monkeypatch
):
    marked, asked = fused.choose(), chosen[1]
    monkeypatch.setattr(auditing, "write", stops)
    for module, name in ((pairs, "write"), (lenience, "speculate")):
        monkeypatch.setattr(module, name, stops)
    text = texts.Text(*np.ones((3, 2, 1), int))
    sizes = fused.Sizes(2, 2, 4)
    for measure_, guarantee in (
        (lambda p: pairs.measure_alpha(pair(), PROMPTS, p), token.verifier.guarantee),
        (
            lambda p: audit_row.measure_audit(pair(), PROMPTS, p),
            token.verifier.guarantee,
        ),
        (lambda p: lenience.ran(pair(), text, p, 0.5), lenient.build(0.5).guarantee),
    ):
        protocol = PROTOCOL._replace(kernels="onepass")
        assert stopped_at(measure_, protocol)[-1] is marked
        assert (asked[-1][0], asked[-1][2]) == ("onepass", sizes)
        assert asked[-1][1].guarantee == guarantee
    monkeypatch.setattr(pairs, "written", lambda *arguments: text)
    monkeypatch.setattr(pairs.scoring, "score", lambda *arguments, **filters: None)
    monkeypatch.setattr(pairs, "speculate", stops)
    assert stopped_at(pairs.measure_alpha, pair(), PROMPTS, PROTOCOL)[-1] is marked


def test_timed_rows_and_commands_are_given_what_is_chosen(chosen, monkeypatch):
    marked, asked = fused.choose("first"), chosen[1]
    monkeypatch.setattr(walltime, "measure", stops)
    setting = walltime.WalltimeSetting(1.0, 3, (0, 4), kernels="onepass")
    timed = stopped_at(pairs.measure_walltime, pair(), ("marked", PROMPTS), setting)
    assert timed[-1] is marked
    assert asked[-1][:3] == ("onepass", token.verifier, fused.Sizes(3, 4, 4))
    monkeypatch.setattr(divergence, "look", stops)
    look = divergence.DivergenceSetting((2,), kernels="triton")
    looked = stopped_at(microscope.measure, pair(), PROMPTS, "marked", look)
    assert looked[-1] is marked and asked[-1][0] == "triton"
    monkeypatch.setattr(costs, "Pair", stops)
    for name in ("check_memory", "bandwidth"):
        monkeypatch.setattr(row, name, lambda *arguments: None)
    monkeypatch.setattr(row.random_weights, "make", lambda *arguments, **named: None)
    tiny_t5 = row.t5.Config(8, 4, 4, 1, 1, 1, 4, pieces=8)
    setting = row.PaperSizeSetting(
        1.0, 0.5, 1, 2, (1,), 4, 1, 1, copied=64, kernels="onepass"
    )
    by_coins = stopped_at(row.measure, tiny_t5, tiny_t5, setting)[-1]
    assert by_coins._replace(verifier=marked.verifier) == marked
    assert asked[-1] == ("onepass", token.verifier, fused.Sizes(1, 1, 8))


def test_every_method_after_wagner_decodes_by_what_is_chosen(chosen):
    seen, asked = chosen
    sizes = fused.Sizes(2, 5, 4)
    methods = wagner_methods.of_text(10.0)[:2]
    chosen_ones, records = wagner_methods.by_kernels(methods, "auto", sizes)
    assert [rule for _, rule, *_ in asked] == [method.verifier for method in methods]
    assert records == dict.fromkeys(("baseline", "exact"), RECORD)
    sample = runs.Sample(PROMPTS, [], 1.0, 1, 0, 4)
    run = runs.decoder(pair(), chosen_ones[1], 2, runs.slots_of(sample, 2))
    jax.eval_shape(run, *runs.batch_of(sample, [0]))
    assert set(seen) == SPECULATIVE


def test_the_demo_decodes_both_ways_by_what_is_chosen(chosen):
    flags = demo.make_parser().parse_args(["--kernels", "onepass", "--K", "2"])
    case = demo.make_case(flags)
    asked, rule, sizes = chosen[1][0]
    assert (asked, rule) == ("onepass", verifiers.named("token"))
    assert sizes == fused.Sizes(1, 2, case.decoder.target.vocab)
    assert case.kernels.record == RECORD
    assert case.decoder.verifier is case.kernels.verifier
    alone = Decoder(case.decoder.target, verifier=case.kernels.alone)
    assert alone.verifier is not case.decoder.verifier


ROWS = "table2/small_t0_b1", "table3/gpt_small_t0", "table5/gpt_small_t0"
ROWS += "chip/ende_small_t0", "wagner_text/code", "wagner_time/code", "audit/code_token"
ROWS += ("microscope/code_float32",)


@pytest.mark.parametrize("name", ROWS)
def test_the_macro_reaches_every_row_that_decodes(name):
    for bindings, kind in (([], "auto"), (["KERNELS = 'onepass'"], "onepass")):
        file = records.row(*name.split("/"), bindings)
        arguments = configs.build(file).row.measurement.run.args
        assert [x.kernels for x in arguments if hasattr(x, "kernels")] == [kind]
