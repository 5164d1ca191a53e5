"""`specjax train-draft` trains heads on what they draft from, continues after any stop,
and writes files that are read back exactly."""

import contextlib
import itertools
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.cli import train_draft as command
from specjax.drafters import eagle3, medusa
from specjax.drafts import eagle3_files, head_files, medusa_files
from specjax.models import gpt
from specjax.training import (
    accumulation,
    draft_kinds,
    heads,
    loop,
    states,
    target_states,
    train_draft,
    written,
)
from specjax.training.target_states import Lesson
from specjax.types import Hidden, Prompt, TargetCall
from tests.support import devices, head_folders, slow, text_folders
from tests.support.head_folders import V

TEXT = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]], np.int32)
LENGTH, TURNS = TEXT.shape[1], 3


def make_lesson(whole, hidden) -> Lesson:
    """Returns two texts without scores."""
    texts = written.without_inputs(TEXT, np.full(2, LENGTH), np.ones(2))
    table = np.asarray(whole.params["embedding"])
    return Lesson(written.Written(texts, None, None), hidden, table[TEXT])


def hidden_states(whole) -> Hidden:
    features, _ = whole.model.apply(
        whole.params, jnp.asarray(TEXT), jnp.zeros(2, jnp.int32), None
    )
    return whole.model.hidden(features)


@pytest.mark.parametrize("flags", [{}, {"norm_output": True, "fc_norm": True}])
def test_a_head_is_unrolled_as_it_drafts(flags, tmp_path):
    """The head starts after each beginning of a text, with the text's own tokens
    instead of drafted ones."""
    target = head_folders.target()
    folder = head_folders.write_eagle3(
        tmp_path / "head", norm_before_residual=False, **flags
    )
    read = eagle3_files.read(head_files.find_folder(folder), target)
    whole = specjax.drafts.pretrained.with_taps(target, read.config.taps)
    hidden = hidden_states(whole)
    say = heads.eagle3_turns(read.config, TURNS)
    turns = jax.jit(say)(read.params, make_lesson(whole, hidden))
    model = eagle3.head(read.config)
    params = eagle3.parameters(read.config, read.params, target.params, read.offsets)

    @partial(jax.jit, static_argnums=0)
    def draft_logits(known):
        two = jnp.ones(2, jnp.int32)
        memory = model.init(params, Prompt(TEXT, two * known), LENGTH + 1)
        call = TargetCall(
            jnp.asarray(TEXT[:, : known - 1]),
            None,
            two * (known - 2),
            two * (known - 2),
            0 * two,
            jax.tree.map(lambda x: x[:, : known - 1], hidden),
        )
        memory, logits = model.observe(params, memory, call), []
        for at in range(known - 1, known - 1 + TURNS):
            token = jnp.asarray(TEXT[:, at : at + 1])
            state, memory = model.apply(params, token, two * at, memory)
            logits.append(model.readout(params, state[:, 0]).logits)
        return logits

    for known in (2, 4):
        for turn, logits in enumerate(draft_logits(known)):
            assert turns[turn].first <= known - 1 + turn
            said = turns[turn].logits[:, known - 1 + turn]
            np.testing.assert_allclose(said, logits, atol=2e-5)


def test_heads_of_medusa_are_compared_with_the_law_that_they_say(tmp_path):
    """Head i is compared after token t with the law of token t + i + 1."""
    target = head_folders.target()
    folder = head_folders.write_medusa(tmp_path / "head")
    config, params = medusa_files.read(head_files.find_folder(folder), target)
    whole = specjax.drafts.pretrained.with_taps(target, (0,))
    hidden = hidden_states(whole)
    turns = heads.medusa_turns(config)(params, make_lesson(whole, hidden))
    flat = medusa.medusa_logits(params, hidden.last[:, 2])
    for i, turn in enumerate(turns):
        assert turn.shift == i + 1
        assert turn.logits.shape == (2, LENGTH - 2 - i, V)
        np.testing.assert_allclose(turn.logits[:, 2], flat[:, i], atol=1e-5)


def test_held_out_alpha_is_a_bound_with_the_number_of_its_tokens():
    """The classes are the 2 most likely of 6 ids, and all others as one: the draft puts
    the rest of its probability on an id that the target nearly excludes, which the
    classes do not show."""
    p = np.array([0.5, 0.2, 0.1, 0.1, 0.099, 0.001])
    q = np.array([0.4, 0.1, 0.0, 0.0, 0.0, 0.5]) + 1e-9
    tokens, ids = np.zeros((2, 4), int), np.tile([0, 1], (2, 3, 1))
    log_p = np.log(np.tile([0.5, 0.2, 0.3], (2, 3, 1)))
    texts = written.without_inputs(tokens, np.array([4, 2]), np.array([1, 1]))
    lesson = Lesson(written.Written(texts, ids, log_p), None, None)
    turn = heads.Turn(jnp.asarray(np.log(np.tile(q, (2, 3, 1)))), shift=0, first=0)
    found = heads.measure(lambda params, lesson: [turn])(None, lesson)
    total, count = found["alpha_1"]
    assert count == 4  # three tokens of one text, and one of the other
    assert total / count == pytest.approx(0.8, abs=1e-4)
    assert total / count > np.minimum(p, q).sum() + 0.2
    assert tuple(map(int, found["best_1"])) == (0, 4)  # they prefer different ids


@pytest.mark.parametrize("kind", slow.mark_slow_after(1, ["medusa", "eagle3"]))
def test_the_gradient_of_parts_is_that_of_a_batch(kind):
    """The parts of the batch have texts of different lengths, so that a part with more
    tokens counts more."""
    target = head_folders.target()
    sizes, goal = draft_kinds.Sizes(), heads.Objective("kl", 0.8)
    read = draft_kinds.reads(kind, target, sizes)
    whole = specjax.drafts.pretrained.with_taps(target, read.taps)
    if kind == "medusa":
        learner = draft_kinds.medusa_learner(target, sizes, goal)
    else:
        learner = draft_kinds.eagle3_learner(target, sizes, goal, None)

    @jax.jit
    def read():
        zero = jnp.zeros(2, jnp.int32)
        features, _ = whole.model.apply(whole.params, jnp.asarray(TEXT), zero, None)
        law = written.most_likely_ids(whole.model.readout(whole.params, features))
        return whole.model.hidden(features), law

    hidden, (ids, log_p) = read()
    lesson = make_lesson(whole, hidden)
    texts = lesson.whole.texts._replace(length=np.array([LENGTH, 4]))
    ids, log_p = np.int32(ids[:, :-1]), np.float32(log_p[:, :-1])
    lesson = lesson._replace(whole=written.Written(texts, ids, log_p))
    lesson = jax.tree.map(jnp.asarray, lesson)
    loss = accumulation.in_parts(learner.loss, 2, train_draft.weight_of)
    params = learner.init(jax.random.key(0))
    one, two = (
        jax.jit(jax.value_and_grad(f))(params, lesson) for f in (learner.loss, loss)
    )
    assert max(jnp.abs(leaf).max() for leaf in jax.tree.leaves(one[1])) > 0.01
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), two, one)
    halves = [jax.tree.map(lambda x, i=i: x[i : i + 1], lesson) for i in (0, 1)]
    plain = np.mean([jax.jit(learner.loss)(params, half) for half in halves])
    assert abs(plain - one[0]) > 1e-3  # parts do not weigh alike


# The command.

PROMPTS = [f"def f{i}(a):\n" for i in range(16)]
SHORT = "--texts 32 --together 16 --tokens 8 --steps 4 --fall 2 --warmup 1"
SHORT += " --batch 4 --held-out 2"
SHORT += " --evaluate-every 2 --save-every 2"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    text_folders.code_pair(folder, gpt.Config(8192, 16, 32, 2, 2))
    lines = (json.dumps({"prompt": text}) + "\n" for text in PROMPTS)
    (folder / "prompts.jsonl").write_text("".join(lines))
    return folder


def run(desk, out, flags):
    command.main(f"--target {desk}/m0.safetensors --out {out} {SHORT} {flags}".split())


class Killed(BaseException):
    """Raised to end a run as Ctrl-C or a lost machine would."""


HEAD = "--kind eagle3 --vocab 100 --turns 2 --mlp-dim 16"


@pytest.fixture(scope="module")
def head(desk):
    run(desk, desk / "head", f"{HEAD} --generate {desk}/prompts.jsonl")
    return desk / "head"


def final_weights(out):
    """Returns the weights with which a run ended."""
    tree = states.last(out.with_name(f"{out.name}.run") / "training" / "checkpoint")
    like = loop.TrainState(None, None, 0)
    return tree.read(like).params


def test_a_trained_head_is_read_back_exactly(desk, head):
    target = specjax.load(desk / "m0.safetensors")
    draft = specjax.load_draft(str(head), target)
    jax.tree.map(
        np.testing.assert_array_equal, draft.params["head"], final_weights(head)
    )
    assert draft.params["ids"].size == 100
    done = specjax.generate_text(target, draft, PROMPTS[:2], gamma=2, new_tokens=6)
    alone = specjax.generate_text(target, None, PROMPTS[:2], new_tokens=6)
    assert done.ids == alone.ids
    curve = (desk / "head.run/training/curve.jsonl").read_text().splitlines()
    point = json.loads(curve[-1])
    assert point["step"] == 4
    for name in ("alpha_1", "best_1", "alpha_2", "best_2"):
        assert 0 <= point[f"held_out {name}"] <= 1
    assert point["at_most"] == ["held_out alpha_1", "held_out alpha_2"]


@pytest.mark.parametrize(("every", "wanted"), [(0, "1111"), (1, "0000"), (3, "0110")])
def test_one_text_in_so_many_is_greedy(every, wanted):
    assert train_draft.temperatures(4, 9, every).tolist() == [*map(int, wanted)]


def test_beginnings_that_come_again_have_the_other_temperature():
    assert train_draft.temperatures(8, 4, 2).tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_each_text_is_learnt_or_held_out():
    texts = [[1, 2], [3], [1, 2], [3], [4]]
    assert train_draft.unique(map(np.array, texts)) == [[1, 2], [3], [4]]


def kill_at(call, build):
    """Returns `build`, whose function raises Killed in its call with this number."""

    def build_stopping(*options):
        function, numbers = build(*options), itertools.count(1)

        def stop(*arguments):
            if next(numbers) == call:
                raise Killed
            return function(*arguments)

        return stop

    return build_stopping


def test_a_stopped_run_goes_on_to_the_same_head(desk, head, monkeypatch):
    """The run is stopped between two shards, and after a step."""
    first, out = desk / "head.run/states", desk / "again"
    where = f"--generate {desk}/prompts.jsonl"
    writer = kill_at(2, target_states.writer)
    monkeypatch.setattr(target_states, "writer", writer)
    with pytest.raises(Killed):
        run(desk, out, f"{HEAD} {where}")
    monkeypatch.undo()
    there = sorted((desk / "again.run/states").rglob("*.safetensors"))
    assert len(there) == 1
    monkeypatch.setattr(loop, "build_step", kill_at(4, loop.build_step))
    with pytest.raises(Killed):
        run(desk, out, f"{HEAD} {where}")
    monkeypatch.undo()
    run(desk, out, f"{HEAD} {where}")
    for file in first.rglob("*.safetensors"):
        other = desk / "again.run/states" / file.relative_to(first)
        assert file.read_bytes() == other.read_bytes()
    for name in ("model.safetensors", "config.json"):
        assert (out / name).read_bytes() == (head / name).read_bytes()


REFUSED = [
    ("--kind eagle3", "either --generate FILE or --data FILE"),
    ("{data} --warmup 9", "--warmup 9 and --fall 2 must fit into --steps 4"),
    ("{data} --batch 4 --parts 3", "--parts must divide --batch 4; got 3"),
    ("{data} --taps 1 9", "9"),
    ("{data} --kind early_exit --layers 2", "has 2 layers, of which 1 to 1 can draft"),
    ("{data} --kind medusa --dim 8", "--dim is not for --kind medusa: leave it out"),
    ("{data} --kind small --taps 1", "--taps is not for --kind small: leave it out"),
    ("{data} --kind early_exit --num-heads 2", "--num-heads is not for --kind early"),
    ("{data} --heads 2", "--heads is not for --kind eagle3: leave it out"),
    ("{data} --vocab 100 --turns 2 --mlp-dim 16 --runs {run} --texts 64", "of differ"),
    ("{data} {head} --runs {run} --rate 0.1", "holds a run of another recipe"),
    ("{data} {head} --runs {run} --loss tvd", "holds a run of another recipe"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_what_cannot_be_trained_is_one_line(flags, message, desk, head, capsys):
    flags = flags.format(
        data=f"--generate {desk}/prompts.jsonl", run=f"{head}.run", head=HEAD
    )
    with pytest.raises(SystemExit):
        run(desk, desk / "other", flags)
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1]
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "flags",
    [
        "--kind medusa --heads 2 --loss hybrid --parts 2",
        "--kind blockwise --heads 2 --mlp-dim 16",
        "--kind early_exit --layers 1 --dtype bfloat16",
        "--kind small --dim 16 --loss jsd",
    ],
)
def test_every_kind_is_trained_on_texts_that_are_read(flags, desk):
    out = desk / flags.split()[1]
    run(desk, out, f"{flags} --data {desk}/prompts.jsonl --length 8")
    target = specjax.load(desk / "m0.safetensors")
    draft = specjax.load_draft(str(out), target)
    done = specjax.generate_text(target, draft, PROMPTS[:2], gamma=2, new_tokens=6)
    alone = specjax.generate_text(target, None, PROMPTS[:2], new_tokens=6)
    assert done.ids == alone.ids


MESHES = "", "--mesh data=2"


def train_on_meshes(folder, kind):
    """Prints the losses of a head that is trained on one device and on two, as JSON.

    For a process that has them."""
    found = []
    for number, mesh in enumerate(MESHES):
        out = f"{folder}/{kind}_{number}"
        data = f"--data {folder}/prompts.jsonl --length 8"
        flags = f"--target {folder}/m0.safetensors --out {out} {SHORT} {data} {mesh}"
        with contextlib.redirect_stdout(sys.stderr):
            command.main(f"{flags} --kind {kind}".split())
        lines = Path(f"{out}.run/training/curve.jsonl").read_text().splitlines()
        found.append([json.loads(line) for line in lines])
    json.dump(found, sys.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle3", "medusa", "blockwise"])
def test_a_head_is_trained_on_a_mesh_as_on_one_device(kind, desk):
    """Two devices, which a CPU simulates, have half of the rows of each batch."""
    one, two = devices.run_module(__name__, str(desk), kind)
    assert len(one) == len(two) == 2
    for before, after in zip(one, two, strict=True):
        assert before.keys() == after.keys()
        for name in before.keys() - {"seconds", "at_most"}:
            assert before[name] == pytest.approx(after[name], abs=2e-3), name


def test_the_curve_is_written_as_events(desk, head, monkeypatch, tmp_path):
    """A folder that is new has all points, also those of a run that has ended; one that
    exists has the new ones."""
    points = []

    class Writer:
        def __init__(self, folder: str):
            Path(folder).mkdir(exist_ok=True)
            self.add_scalar = lambda *point: points.append(point)
            self.flush = lambda: None

    library = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", library)
    again = f"{HEAD} --generate {desk}/prompts.jsonl --runs {head}.run"
    again += f" --events {tmp_path}/events"
    run(desk, tmp_path / "first", again)
    lines = (desk / "head.run/training/curve.jsonl").read_text().splitlines()
    wanted = {
        (f"{name} at most" if name in point["at_most"] else name, value, point["step"])
        for point in map(json.loads, lines)
        for name, value in point.items()
        if name not in ("step", "at_most")
    }
    assert {*points} == wanted and len(points) == len(wanted)
    run(desk, tmp_path / "second", again)
    assert len(points) == len(wanted)


def test_events_without_their_library_are_one_line(desk, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    where = f"--generate {desk}/prompts.jsonl --events {desk}/events"
    with pytest.raises(SystemExit):
        run(desk, desk / "other", f"{HEAD} {where}")
    assert "pip install 'specjax[events]'" in capsys.readouterr().err.splitlines()[-1]
    assert not (desk / "other.run").exists()


def test_the_rate_falls_as_it_is_asked_to():
    assert tuple(loop.FALLS) == command.SCHEDULES
    for name in command.SCHEDULES:
        words = f"--target x --out y --generate z --schedule {name}"
        setting = command.make_setting(command.make_parser().parse_args(words.split()))
        assert setting.recipe.schedule == name


if __name__ == "__main__":
    train_on_meshes(*sys.argv[1:])
