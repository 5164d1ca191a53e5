"""Beam search equals its definition, and gives the same beams and scores with drafts.

Models are random tables of contexts, whose logits are the same bits in calls of every
size, so that beams and scores of both searches must be equal, and not nearly equal.
Axes: M models, B rows, V vocabulary.
"""

import functools
import inspect
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.beam import hypotheses, search, settings, slots
from specjax.beam.hypotheses import Limits
from specjax.beam.settings import BeamConfig
from specjax.types import Params, Prompt
from tests.support import beam_worlds

LENGTHS = 3, 1, 5  # of the prompts
MODELS = 20  # of a shape, in the fast tests: 60 in all


class Shape(NamedTuple):
    """A search to compile: its settings, and the sizes of models and texts.

    fewer: how many fewer new tokens each row has. eos: [B][E]."""

    config: BeamConfig
    vocab: int = 7
    most: int = 9
    fewer: tuple = (0, 3, 1)
    eos: tuple = ((1,), (1,), (2,))


SHAPES = [
    Shape(BeamConfig(3, 3, 4)),
    Shape(BeamConfig(2, 2, 2, 1.5, "never"), vocab=5),
    Shape(BeamConfig(4, 1, 7, 0.5, True), eos=((1, 3), (1, 0), (2, -1))),
]
MORE = [
    Shape(BeamConfig(1, 4, 2)),
    Shape(BeamConfig(1, 2, 1, 2.0, "never")),
    Shape(BeamConfig(2, 4, 5, -1.0), most=12),
    Shape(BeamConfig(5, 2, 10, 0.0, "never"), vocab=9),
    Shape(BeamConfig(3, 5, 3, 2.0, True), vocab=4, most=14),
    Shape(BeamConfig(8, 2, 9, 1.0), vocab=11),
    Shape(BeamConfig(2, 1, 3, -2.0, "never"), eos=((-1,), (1,), (4,))),
]


class Case(NamedTuple):
    """Random models of a shape, and the prompts and limits of their searches.

    target, draft: [M, R, V]. prompt, limits: of B rows."""

    target: np.ndarray
    draft: np.ndarray
    prompt: Prompt
    limits: Limits


@functools.cache
def case(shape: Shape, models: int, seed: int = 0) -> Case:
    """The drafts are the targets with different amounts of noise: some nearly always
    right, some never."""
    rng = np.random.default_rng(seed)
    size = models, beam_worlds.CONTEXTS, shape.vocab
    target, noise = (1.5 * rng.normal(size=size) for _ in range(2))
    mix = rng.uniform(size=(models, 1, 1)) ** 0.3
    tokens = rng.integers(0, shape.vocab, (len(LENGTHS), max(LENGTHS)))
    most = shape.most - np.array(shape.fewer)
    divisor = settings.divisors(shape.config.length_penalty, shape.most)
    return Case(
        target=np.float32(target),
        draft=np.float32(mix * target + (1 - mix) * noise),
        prompt=Prompt(jnp.int32(tokens), jnp.int32(LENGTHS)),
        limits=Limits(jnp.int32(most), jnp.int32(shape.eos), jnp.asarray(divisor)),
    )


def search_models(
    shape: Shape, models: int, *, drafted: bool, seed: int = 0
) -> search.Found:
    """Searches with all models of a shape in one program; the arrays are [M, B,
    ...]."""
    its, model = case(shape, models, seed), beam_worlds.context_model(shape.vocab)
    run = search.build(model, model if drafted else None, shape.config)

    @jax.jit
    @jax.vmap
    def search_model(target, draft):
        return run(Params(target, draft), its.prompt, its.limits)

    return jax.device_get(search_model(its.target, its.draft))


plain = functools.cache(functools.partial(search_models, drafted=False))


def count_differences(got: search.Found, wanted: search.Found) -> int:
    """Returns for how many models a text, a score or the number of steps differs."""
    names = "tokens", "length", "score", "steps"
    unlike = [
        (getattr(got, name) != getattr(wanted, name)).reshape(len(got.calls), -1)
        for name in names
    ]
    return int(np.concatenate(unlike, 1).any(1).sum())


def check_definition(shape: Shape, models: int, got: search.Found) -> None:
    its = case(shape, models)
    for m, row in np.ndindex(models, len(LENGTHS)):
        texts, steps = beam_worlds.search_by_definition(
            beam_worlds.context_logits(its.target[m]),
            np.asarray(its.prompt.tokens)[row, : LENGTHS[row]].tolist(),
            width=shape.config.width,
            most=int(its.limits.most[row]),
            ends=shape.eos[row],
            length_penalty=shape.config.length_penalty,
            early_stopping=shape.config.early_stopping,
        )
        each = zip(got.tokens[m, row], got.length[m, row], strict=True)
        ours = [tuple(ids[:n].tolist()) for ids, n in each if n]
        assert ours == [text.tokens for text in texts], (m, row)
        scores = [text.score for text in texts]
        np.testing.assert_allclose(got.score[m, row, : len(ours)], scores, rtol=2e-5)
        assert got.steps[m, row] == steps


@pytest.mark.parametrize("shape", SHAPES)
def test_beams_are_those_of_the_definition(shape):
    check_definition(shape, MODELS, plain(shape, MODELS))


@pytest.mark.parametrize("shape", SHAPES)
def test_with_a_draft_beams_and_scores_are_the_same_to_the_last_bit(shape):
    """A batch has prompts of three lengths, each with its own limit and ends; its
    searches take different numbers of calls."""
    expected, got = plain(shape, MODELS), search_models(shape, MODELS, drafted=True)
    assert count_differences(got, expected) == 0
    assert (expected.calls == expected.steps).all()
    assert (got.calls <= got.steps).all() and (got.calls >= 1).all()
    assert got.calls.sum() < 0.9 * got.steps.sum()
    assert len(np.unique(got.calls)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [*SHAPES, *MORE])
def test_of_a_thousand_models_none_differs(shape):
    """100 models of each shape are compared."""
    for seed in range(5):
        expected = search_models(shape, MODELS, drafted=False, seed=seed)
        assert (
            count_differences(
                search_models(shape, MODELS, drafted=True, seed=seed), expected
            )
            == 0
        )
    check_definition(shape, MODELS, plain(shape, MODELS))


def test_a_perfect_draft_takes_a_call_for_every_level_and_one_more():
    shape = SHAPES[0]
    model, its = beam_worlds.context_model(shape.vocab), case(shape, MODELS)
    run = search.build(model, model, shape.config)
    same = jax.jit(jax.vmap(lambda p: run(Params(p, p), its.prompt, its.limits)))
    got = jax.device_get(same(its.target))
    assert count_differences(got, plain(shape, MODELS)) == 0
    # Four steps a call; beams of which some end are fewer than were drafted.
    assert (got.calls == -(-got.steps // 4)).all()


def test_of_equal_scores_the_lowest_id_comes_first():
    """A model without preferences gives ids in their order, whatever the number of
    drafted tokens."""
    shape = Shape(BeamConfig(3, 2, 5), eos=((6,),) * 3)
    model, its = beam_worlds.context_model(shape.vocab), case(shape, 1)
    flat = np.zeros_like(its.target[0])
    for draft in (None, model):
        run = jax.jit(search.build(model, draft, shape.config))
        got = run(Params(flat, flat), its.prompt, its.limits)
        texts = np.asarray(got.tokens)[0, :, : shape.most]
        assert texts[:, :-1].max() == 0 and texts[:, -1].tolist() == [0, 1, 2]


def test_the_steps_of_a_call_sort_no_vocabulary():
    """XLA would sort it, which takes milliseconds, if a slice came before the
    selection."""
    shape = Shape(BeamConfig(2, 2, 4), vocab=4096)
    model, its = beam_worlds.context_model(shape.vocab), case(shape, 1)
    run = jax.jit(search.build(model, model, shape.config))
    params = Params(its.target[0], its.draft[0])
    program = run.lower(params, its.prompt, its.limits).compile().as_text()
    assert "TopK" in program
    sorted_sizes = re.findall(r"\[\d+,(\d+)\]\S*\) sort\(", program)
    assert sorted_sizes and max(map(int, sorted_sizes)) < shape.vocab


def test_logits_that_are_not_finite_are_marked_by_side():
    shape = SHAPES[0]
    model, its = beam_worlds.context_model(shape.vocab), case(shape, MODELS)
    sound, bad = its.target[0], np.full_like(its.target[0], np.nan)
    run = jax.jit(search.build(model, model, shape.config))
    for params, mark in ((Params(bad, sound), -2), (Params(sound, bad), -3)):
        got = run(params, its.prompt, its.limits)
        assert np.asarray(got.lost).tolist() == [mark] * 3
        assert np.asarray(got.calls).tolist() == [1] * 3
    assert not run(Params(sound, sound), its.prompt, its.limits).lost.any()


def test_models_that_cannot_read_beams_are_refused():
    model = beam_worlds.context_model(5)
    chains = model._replace(keep=None)
    with pytest.raises(ValueError, match=r"^the target cannot read beams: it has no"):
        search.build(chains, None, BeamConfig())
    with pytest.raises(ValueError, match=r"^the draft cannot read beams: it has no"):
        search.build(model, chains, BeamConfig())
    search.build(model, chains, BeamConfig(gamma=0))
    with pytest.raises(
        ValueError, match=r"^beams take 52 slots of a cache, and the tar"
    ):
        search.check_room(model._replace(portion=50), 52, "target")


# What is wrong, by the module: an expression of the code, and what stands there then.
PLAIN = {
    hypotheses: {
        "the length penalty of the prefix": (
            "divisor[jnp.minimum(length, limits.divisor.size - 1)][:, None]",
            "divisor[jnp.minimum(length - 1, limits.divisor.size - 1)][:, None]",
        ),
        "an ended beam goes on": (
            "going = jnp.where(ends_here, -jnp.inf, score)",
            "going = jnp.where(at_limit, -jnp.inf, score)",
        ),
        "a text ends from among all candidates": (
            "ends_here & (jnp.arange(count) < width)",
            "ends_here & (jnp.arange(count) < count)",
        ),
        "scores are not divided": ("score / divisor", "score"),
        "the best finished text ends a search": (
            "final.min(axis=1)",
            "final.max(axis=1)",
        ),
        "a search is ended by the sums": ("running[:, 0] / most", "running[:, 0]"),
        "one text too many is kept running": (
            "min(max(2, 1 + end_ids) * width, width * vocab)",
            "width",
        ),
    }
}
DRAFTED = {
    search: {
        "a row that has ended goes on": (
            "going=~state.beams.ended",
            "going=state.beams.num >= 0",
        ),
        "accepted though a beam is missing": ("walk.going & exact", "walk.going"),
        "a missing beam is one among many": (
            "walk.known.all(axis=1)",
            "walk.known.any(axis=1)",
        ),
        "the best of what is kept decides": (
            "jnp.where(walk.known, -jnp.inf, walk.beams.score).max(axis=1)",
            "jnp.where(walk.known, -jnp.inf, walk.beams.score).min(axis=1)",
        ),
        "a beam is found by its token alone": (
            "same &= levels.parent[at][:, None] == wanted.parent[..., None]",
            "pass",
        ),
        "a level beyond the draft": ("(walk.level < gamma)", "(walk.level <= gamma)"),
        "paths of another node": (
            "width * walk.level + walk.rank",
            "width * walk.level",
        ),
        "nothing is moved": ("at * drafted + chosen", "at * drafted + 0 * chosen"),
        "logits of the level before": ("(walk.level - 1) * drafted", "0 * drafted"),
    },
    slots: {
        "other nodes are kept": (
            "jnp.sort(order[:, :width], axis=1)",
            "jnp.sort(order[:, -width:], axis=1)",
        ),
        "positions of a narrower level": ("// width", "// 1"),
    },
}


def mutate(monkeypatch, module, old: str, new: str) -> None:
    """Replaces a module's code by the same code with one expression changed."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} is not once in {module.__name__}"
    wrong = dict(vars(module))
    code = compile(source.replace(old, new), module.__file__, "exec")
    exec(code, wrong)
    wrong |= {name: it for name, it in vars(module).items() if inspect.isclass(it)}
    for name, value in wrong.items():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            monkeypatch.setattr(module, name, value)


def mutants(wrong: dict) -> list:
    return [
        pytest.param(module, *change, id=name.replace(" ", "-"))
        for module, changes in wrong.items()
        for name, change in changes.items()
    ]


def is_caught(shape: Shape, drafted: bool) -> bool:
    return (
        count_differences(
            search_models(shape, MODELS, drafted=drafted), plain(shape, MODELS)
        )
        > 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(("module", "old", "new"), mutants(PLAIN))
def test_a_wrong_step_is_seen(monkeypatch, module, old, new):
    """The texts of the definition show it; the right code gives these texts."""
    shapes = SHAPES[0], SHAPES[2]  # the second stops as soon as enough texts end
    for shape in shapes:
        plain(shape, MODELS)
    mutate(monkeypatch, module, old, new)
    assert any(is_caught(shape, drafted=False) for shape in shapes)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "old", "new"), mutants(DRAFTED))
def test_a_wrong_verification_is_seen(monkeypatch, module, old, new):
    plain(SHAPES[0], MODELS)
    mutate(monkeypatch, module, old, new)
    assert is_caught(SHAPES[0], drafted=True)


@pytest.mark.slow
def test_the_code_without_a_change_is_not_seen(monkeypatch):
    mutate(monkeypatch, search, "walk.going & exact", "exact & walk.going")
    assert not is_caught(SHAPES[0], drafted=True)


WRONG: list[tuple[dict, str]] = [
    (
        dict(width=0),
        "^width must be a whole number, at least 1 and at most 1000; got 0",
    ),
    (dict(gamma=-1), "^gamma must be a whole number, at least 0"),
    (dict(width=4, draft_width=3), "^draft_width must be a whole number, at least 4"),
    (dict(length_penalty="1"), "^length_penalty must be a finite number; got '1'$"),
    (dict(length_penalty=float("nan")), "^length_penalty must be a finite number; got"),
    (
        dict(early_stopping="ever"),
        '^early_stopping must be True, False or "never"; got',
    ),
    (dict(early_stopping=1), '^early_stopping must be True, False or "never"; got 1$'),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_settings_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        settings.check(BeamConfig(**fields))


def test_divisors_are_rounded_from_double_precision():
    assert settings.divisors(1.0, 3).tolist() == [1, 1, 2, 3]
    assert settings.divisors(0.0, 3).tolist() == [1, 1, 1, 1]
    assert settings.divisors(0.7, 9)[7] == np.float32(7.0**0.7)
    with pytest.raises(
        ValueError, match=r"^length_penalty = 99 divides scores of 64 t"
    ):
        settings.divisors(99, 64)
