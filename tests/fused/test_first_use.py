"""The functions that are chosen to read logits are those with which every measurement
decodes."""

from functools import partial

import jax
import numpy as np
import pytest

from experiments import tasks
from experiments.exactness import microscope
from experiments.gpu.paper_size import row
from experiments.papers.leviathan import lenience
from experiments.papers.wagner import methods, runs
from experiments.records import records
from specjax import configs, fused, verifiers
from specjax.cli import demo
from specjax.drafters import rollout
from specjax.exactness import audit_row
from specjax.exactness.divergence import DivergenceSetting
from specjax.measure import pairs
from specjax.measure.texts import Protocol, Text
from specjax.measure.walltime import WalltimeSetting
from specjax.prompts import Prompts
from specjax.types import Kernels
from specjax.verifiers import lenient, token
from tests.support import bare, tiny
from tests.support.settings import make

PROMPTS = Prompts([[1], [2, 3]], ends=())
PROTOCOL = make(
    Protocol,
    task="marked",
    temperature=1.0,
    tokens=8,
    gamma=2,
    new_tokens=4,
    batch=2,
    kernels="onepass",
)
TEXT = Text(*np.ones((3, 2, 1), int))
RECORD = {"asked": "auto", "verify": "marked", "draw": "marked", "why": "a test"}
SPECULATIVE = {"draw", "verifier"}
ALL = {"alone", *SPECULATIVE}


class Stop(Exception):
    """Raised once everything has been traced that should be."""


def noting_kernels(wanted: set) -> Kernels:
    """Returns kernels that note their traces, and raise `Stop` after all that are
    wanted."""
    left = set(wanted)

    def note(name: str, function, *arguments, **options):
        left.discard(name)
        if not left:
            raise Stop
        return function(*arguments, **options)

    def verifier(name: str):
        verify = partial(note, name, token.verify)
        return token.verifier._replace(verify=verify)

    draw = partial(note, "draw", rollout.draw_independent)
    return Kernels(verifier("verifier"), draw, verifier("alone"), RECORD)


@pytest.fixture
def chosen(monkeypatch):
    """Whoever chooses gets marked kernels. Gives what was asked for."""

    def begin(wanted: set) -> list:
        kernels, asked = noting_kernels(wanted), []

        def choose(*sizes, device=None):
            asked.append(sizes)
            return kernels

        monkeypatch.setattr(fused, "choose", choose)
        return asked

    task = tasks.Task(PROMPTS, [], ())
    monkeypatch.setitem(tasks.TASKS, "marked", lambda: task)
    return begin


WORLD = tiny.tables()
PAIR = (
    bare.target("tables", WORLD.target, WORLD.target_weights),
    bare.draft("tables", WORLD.target, WORLD.draft_weights),
)
TIMED = make(
    WalltimeSetting,
    temperature=1.0,
    new_tokens=96,
    batch=2,
    gammas=(0, 2),
    texts=2,
    kernels="onepass",
)
LOOK = make(DivergenceSetting, gammas=(2,), batch=2, kernels="onepass")
# Whose verifier is of its own, with the coins of a published alpha.
SMALL = row.t5.Config(8, 4, 4, 1, 1, 1, 4, pieces=8)
COINS = make(
    row.PaperSizeSetting,
    temperature=1.0,
    alpha=0.5,
    gamma=2,
    input_tokens=2,
    gammas=(2,),
    new_tokens=4,
    texts=1,
    others=1,
    copied=64,
    kernels="onepass",
)
RUNS = {
    "alpha": (partial(pairs.measure_alpha, PAIR, PROMPTS, PROTOCOL), ALL),
    "lenience": (
        partial(lenience.run_level, PAIR, TEXT, protocol=PROTOCOL, level=0.5),
        SPECULATIVE,
    ),
    "audit": (partial(audit_row.measure_audit, PAIR, PROMPTS, PROTOCOL), SPECULATIVE),
    "walltime": (
        partial(pairs.measure_walltime, PAIR, PROMPTS, TIMED, "marked"),
        ALL,
    ),
    "microscope": (
        partial(microscope.measure, PAIR, PROMPTS, task="", setting=LOOK),
        SPECULATIVE,
    ),
    "paper sizes": (partial(row.measure, SMALL, SMALL, COINS), {"draw"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_row_decodes_by_what_is_chosen(chosen, monkeypatch, name):
    run, wanted = RUNS[name]
    asked = chosen(wanted)
    for measured in ("check_memory", "copy_speed", "read_speed"):  # of a GPU
        monkeypatch.setattr(row, measured, lambda *_, **__: None)
    with pytest.raises(Stop):
        run()
    (kernels, verifier, sizes), *_ = asked
    wanted = fused.Sizes(1, 2, 8) if name == "paper sizes" else fused.Sizes(2, 2, 4)
    assert (kernels, sizes) == ("onepass", wanted)
    rule = lenient.build(0.5) if name == "lenience" else token.verifier
    assert verifier.guarantee == rule.guarantee


def test_every_method_after_wagner_decodes_by_what_is_chosen(chosen):
    asked = chosen(SPECULATIVE)
    two, sizes = methods.text_methods(10.0)[:2], fused.Sizes(2, 5, 4)
    by, kept = methods.with_kernels(two, "auto", sizes)
    assert [rule for _, rule, _ in asked] == [method.verifier for method in two]
    assert kept == dict.fromkeys(("baseline", "exact"), RECORD)
    sample = runs.Sample(PROMPTS, [], 1.0, 1, 0, 4)
    run = runs.decoder(PAIR, by[1], gamma=2, slots=runs.buffer_length(sample, 2))
    with pytest.raises(Stop):
        jax.eval_shape(run, *runs.sample_batch(sample, [0]))


def test_the_demo_decodes_by_what_is_chosen(chosen):
    asked = chosen(ALL)
    case = demo.make_case(
        demo.make_parser().parse_args(["--kernels", "onepass", "--K", "2"])
    )
    sizes = fused.Sizes(1, 2, case.decoder.target.vocab)
    assert asked == [("onepass", verifiers.find("token"), sizes)]
    assert case.decoder.verifier is case.kernels.verifier
    assert case.kernels.record == RECORD


ROWS = "table2/small_t0_b1", "table3/gpt_small_t0", "table5/gpt_small_t0"
ROWS += "chip/ende_small_t0", "wagner_text/code", "wagner_time/code", "audit/code_token"
ROWS += ("microscope/code_float32",)


@pytest.mark.parametrize("name", ROWS)
def test_the_macro_reaches_every_row_that_decodes(name):
    file = records.row(*name.split("/"), ["KERNELS = 'onepass'"])
    run = configs.build(file).row.measurement.run
    arguments = *run.args, *run.keywords.values()
    settings = [getattr(each, "decode", each) for each in arguments]
    assert [x.kernels for x in settings if hasattr(x, "kernels")] == ["onepass"]
