"""Training resumes with the same bits, and its curve can be written as events; files of
the corpus stay on their side; the tokenizer loses nothing."""

import json
import os
import random
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import sentencepiece
from flax import serialization

from experiments.training import events, language, pipeline, tokenizer
from experiments.training.pipeline import Stage
from experiments.training.texts import corpus
from specjax.models import gpt
from specjax.runtime import locks
from specjax.training import loop

CONFIG = gpt.Config(vocab=13, dim=8, mlp_dim=16, num_layers=1, num_heads=2)
RECIPE = loop.Recipe(7, 2, batch=2, length=6, warmup=2, seed=5)
RECIPE = RECIPE._replace(checkpoint_every=3, evaluate_every=2, optimizer="adafactor")


class Killed(BaseException):
    """Raised to end a run as Ctrl-C or a lost machine would."""


@pytest.fixture(scope="module")
def data() -> language.Stream:
    rng = np.random.default_rng(0)
    documents = [[1, *rng.integers(3, 13, rng.integers(3, 20)), 2] for _ in range(30)]
    return language.stream(documents)


def run(folder: Path, data: language.Stream, recipe=RECIPE, config=CONFIG):
    texts = {"text": language.data(data, {"held_out": (data, 2)})}
    return pipeline.run(folder, [Stage("", config, recipe, "text")], texts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """A run that was never killed: its weights and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder, data), folder


def curve(folder: Path, name: str) -> list:
    lines = (folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


@pytest.mark.parametrize("how", ["killed", "told"])
def test_a_stopped_run_ends_with_the_same_weights(
    how, tmp_path, data, whole, monkeypatch, capsys
):
    """The run is killed in step 5, after the checkpoint of step 3 and the evaluation of
    step 4; or it is told to stop in step 4, whose state it keeps."""
    rows, asked = language.rows, []
    before = signal.getsignal(signal.SIGTERM)

    def rows_until_stopped(stream, *, seed, **size):
        if seed == (RECIPE.seed, 4 if how == "killed" else 3):
            if how == "killed":
                raise Killed
            os.kill(os.getpid(), signal.SIGTERM)
        return rows(stream, seed=seed, **size)

    def rows_noted(stream, *, seed, **size):
        asked.append(seed)
        return rows(stream, seed=seed, **size)

    monkeypatch.setattr(language, "rows", rows_until_stopped)
    with pytest.raises((Killed, SystemExit)) as stopped:
        run(tmp_path, data)
    if how == "told":
        assert stopped.value.code == 143
        assert (
            "stopped at step 4; start the same command again" in capsys.readouterr().out
        )
    assert signal.getsignal(signal.SIGTERM) == before
    assert curve(tmp_path, "step") == [2, 4]
    (tmp_path / "checkpoint.msgpack.partial").write_bytes(b"killed while writing")

    monkeypatch.setattr(language, "rows", rows_noted)
    weights, folder = whole
    jax.tree.map(np.testing.assert_array_equal, run(tmp_path, data), weights)
    first = 3 if how == "killed" else 4
    assert min(step for seed, step in asked if seed == RECIPE.seed) == first
    assert curve(tmp_path, "held_out") == curve(folder, "held_out")
    assert curve(tmp_path, "step") == curve(folder, "step") == [2, 4, 6, 7]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_weight_that_is_not_finite_is_seen(wrong):
    params = {"a": np.ones((2, 3), np.float32), "b": np.array([1.0, wrong, 2.0])}
    assert not np.isfinite(loop.not_finite(params))
    assert loop.not_finite({"a": params["a"], "b": params["b"][:1]}) == 0


def test_training_that_diverges_stops_and_keeps_the_last_finite_state(tmp_path, data):
    """At this learning rate, the first update after the warm-up makes weights
    overflow."""
    recipe = RECIPE._replace(rate=1e38, warmup=0, checkpoint_every=1, optimizer="adamw")
    with pytest.raises(ValueError, match=r"(nan|inf) after step \d.*stops.*lower rate"):
        run(tmp_path, data, recipe)
    (kept,) = tmp_path.rglob("checkpoint.msgpack")
    params = serialization.msgpack_restore(kept.read_bytes())["params"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    for path in tmp_path.rglob("curve.jsonl"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


def test_a_finished_run_is_returned_as_it_is_and_another_refused(data, whole):
    weights, folder = whole
    before = (folder / "checkpoint.msgpack").read_bytes()
    jax.tree.map(np.testing.assert_array_equal, run(folder, data), weights)
    assert (folder / "checkpoint.msgpack").read_bytes() == before
    for change in (
        {"rate": 1e-3},
        {"seed": 1},
        {"steps": 8},
        {"schedule": "cosine"},
    ):
        with pytest.raises(ValueError, match=r"another recipe.*name another folder"):
            run(folder, data, RECIPE._replace(**change))
    with pytest.raises(ValueError, match="another recipe"):
        run(folder, data, config=CONFIG._replace(dim=16))
    other = data._replace(tokens=data.tokens[::-1].copy())
    with pytest.raises(ValueError, match=r"another recipe \(text is .* there and"):
        run(folder, other)
    older = json.loads((folder / "recipe.json").read_text())
    del older["config"]["text"], older["recipe"]["schedule"]  # of a run without them
    (folder / "recipe.json").write_text(json.dumps(older))
    run(folder, data)
    with (
        locks.lock_folder(folder),
        pytest.raises(ValueError, match="in use by process"),
    ):
        run(folder, data)


def test_windows_begin_documents_and_the_rate_rises_stays_and_falls(data):
    windows = language.rows(data, seed=(0, 3), batch=8, length=6)
    np.testing.assert_array_equal(
        windows, language.rows(data, seed=(0, 3), batch=8, length=6)
    )
    assert not np.array_equal(
        windows, language.rows(data, seed=(0, 4), batch=8, length=6)
    )
    assert windows.shape == (8, 7) and np.all(windows[:, 0] == 1)
    recipe = RECIPE._replace(steps=10, decay=4, warmup=2, rate=1.0)
    wanted = [0, 0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    rate = loop.learning_rate(recipe)(np.arange(11))
    np.testing.assert_allclose(rate, wanted, atol=1e-6)
    wanted[7:] = [(1 + np.cos(np.pi * i / 4)) / 2 for i in (1, 2, 3, 4)]
    rate = loop.learning_rate(recipe._replace(schedule="cosine"))(np.arange(11))
    np.testing.assert_allclose(rate, wanted, atol=1e-6)
    flat = recipe._replace(schedule="cosine", decay=0)
    assert loop.learning_rate(flat)(9) == 1


def test_each_point_of_a_curve_is_an_event_once(tmp_path, monkeypatch, capsys):
    """This holds for continued runs too."""
    points = []

    class Writer:
        def __init__(self, folder: str):
            self.add_scalar = lambda *point: points.append((folder, *point))
            self.flush = lambda: None

    library = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", library)
    runs, to = tmp_path / "runs", tmp_path / "events"
    (runs / "a").mkdir(parents=True)
    curve = runs / "a" / events.CURVE
    curve.write_text('{"step": 5, "loss": 2.5, "valid": 3.0}\n{"step": 10, "lo')

    def append_torn_line(seconds):
        if len(points) > 2:
            raise StopIteration
        curve.write_text(curve.read_text() + 'ss": 1.5}\n')

    monkeypatch.setattr(events.time, "sleep", append_torn_line)
    with pytest.raises(StopIteration):
        events.main([str(runs), "--to", str(to), "--every", "1"])
    a = str(to / "a")
    first = {(a, "loss", 2.5, 5), (a, "valid", 3.0, 5)}
    assert {*points[:2]} == first and points[2:] == [(a, "loss", 1.5, 10)]
    to.mkdir()
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for words, told in (
        ((str(tmp_path / "none"), "--to", "x"), "no curve.jsonl below"),
        ((str(runs), "--to", str(to)), "name a new folder"),
        ((str(runs), "--to", str(tmp_path / "new")), "pip install 'specjax[events]'"),
    ):
        with pytest.raises(SystemExit):
            events.main([*words])
        assert told in capsys.readouterr().err


def test_the_tag_of_an_upper_bound_says_so(tmp_path):
    points = []
    writer = SimpleNamespace(
        add_scalar=lambda *point: points.append(point), flush=lambda: None
    )
    line = {"step": 5, "held_out alpha_1": 0.5, "held_out best_1": 0.4}
    line["at_most"] = ["held_out alpha_1"]
    (tmp_path / events.CURVE).write_text(json.dumps(line) + "\n")
    events.write(tmp_path, tmp_path, lambda folder: writer, {})
    assert sorted(points) == [
        ("held_out alpha_1 at most", 0.5, 5),
        ("held_out best_1", 0.4, 5),
    ]


def test_held_out_numbers_weigh_every_token_alike(tmp_path):
    """Three tokens in one batch and one in the other: the mean is over four."""
    task = loop.Task(
        sizes={},
        init=lambda key: {"x": jax.numpy.zeros(2)},
        loss=lambda params, rows: rows.mean() + 0 * params["x"].sum(),
        config=None,
        batch=lambda seed: np.ones(2),
        held_out={"held_out": [np.array([1.0, 1.0, 1.0]), np.array([5.0])]},
        measure=lambda params, rows: {
            "alpha_1": (rows.sum() / 10, rows.size),
            "best_1": (rows.sum() / 5, rows.size),
        },
        shown=("held_out alpha_1",),
        weight=lambda rows: rows.size,
        at_most="alpha",
    )
    recipe = RECIPE._replace(steps=2, decay=0, warmup=0, evaluate_every=1)
    loop.train(tmp_path / "run", task, recipe)
    lines = (tmp_path / "run" / "curve.jsonl").read_text().splitlines()
    point = json.loads(lines[-1])
    assert point["held_out"] == 2 and point["held_out alpha_1"] == 0.2
    assert point["held_out best_1"] == 0.4
    assert point["at_most"] == ["held_out alpha_1"]
    assert loop.show("held_out alpha_1", point) == "held_out alpha_1 at most 0.200"
    assert loop.show("held_out best_1", point) == "held_out best_1 0.400"


# The corpus.

SOURCE = '''"""A module that documents itself at some length, for the sake of a test."""
class Box:
    """Holds things, and says so in a sentence that is long enough."""
    @property
    def full(self):
        """Whether nothing more fits into this box, ever."""
        return self.size > 10
if True:
    def open_box(box):
        """Opens a box, as one does on systems of this kind."""
        def inner():
            return box
'''


def test_documents_are_the_functions_the_class_heads_and_the_module():
    head, box, full, open_box = corpus.extract_documents(SOURCE)
    assert head.startswith('"""A module that documents') and head.endswith('"""\n')
    assert box.startswith('class Box:\n    """Holds') and box.endswith(
        'long enough."""\n'
    )
    assert full.startswith('@property\ndef full(self):\n    """Whether')
    assert open_box.startswith("def open_box(box):\n") and "def inner" in open_box
    assert corpus.extract_documents("def broken(:\n") == []


def test_a_file_is_on_one_side_for_ever():
    """The hash of its path decides; every published number depends on these sides."""
    assert corpus.choose_split("abc.py") == "train"
    sides = [corpus.choose_split(f"package/module_{i}.py") for i in range(1000)]
    assert set(sides) == {"train", "valid", "test"}
    assert 850 < sides.count("train") < 950
    valid, test = corpus.stdlib("valid"), corpus.stdlib("test")
    assert corpus.digest(valid) != corpus.digest(test)
    shared = set(valid) & set(test)
    assert len(shared) < 0.02 * len(valid)  # boilerplate written twice


# The tokenizer.

ODD = ["def f(x):\n    return x\n", "\t\ttabs\tand  double  spaces  \n\n\n", "line\r\n"]
ODD += [
    "naïve café, 数学, emoji 🦆, zero\u200bwidth, \u00a0nbsp",
    "\x01\x7f control",
    "",
]
ODD += ["  two leading spaces", "1234567890 == 0x7f", "<s> </s> <unk> <pad> <0x0A>"]


def test_every_text_comes_back():
    rng = random.Random(0)
    words = ["def", "return", "self", "x", "value", "=", "+", "()", "    ", "1"]
    texts = [" ".join(rng.choices(words, k=30)) + "\n" for _ in range(200)]
    proto = tokenizer.train([SOURCE, *texts], 340)
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    for text in ODD:
        ids = model.encode(text)
        assert model.decode(ids) == text
        assert model.unk_id() not in ids
    assert (model.pad_id(), model.bos_id(), model.eos_id()) == (0, 1, 2)
    assert not {0, 1, 2} & set(model.encode("<pad> <s> </s>"))
    assert model.encode("a\nb").count(model.piece_to_id("\n")) == 1
