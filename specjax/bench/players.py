"""Who takes part in a measurement: what is named as target or draft.

p is the target M_p, q the drafter M_q. Axes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from specjax import probs, zoo
from specjax.drafters import autoregressive, copying
from specjax.drafters import ngram as ngrams
from specjax.drafters import random as random_draft
from specjax.types import Drafter, Law, Model, Sampling

# What a draft carries (`specjax.types.Draft.law`).
SAMPLED, TABLE, CERTAIN = "sampled law", "table law", "certain"


class Player(NamedTuple):
    """One side.

    drafter: gamma -> Drafter, which takes `params`. regime: what its drafts carry.
    law: (params, tokens [B, T], Sampling) -> Law [B, T] of the token after each, as the
    drafter would draw it; None where a draft may be no draft. model: what decodes; None
    for who only drafts. files: what it was read from.
    """

    name: str
    params: Any
    vocab: int | None
    drafter: Callable[[int], Drafter]
    regime: str
    law: Callable[[Any, Array, Sampling], Law] | None = None
    model: Model | None = None
    dtype: str = "float32"
    files: tuple[Path, ...] = ()


def gpt(name: str, dtype: str = "float32", made_by: str = "") -> Player:
    """A bundled model, a .safetensors file of `zoo.save`, or a folder that holds one.

    made_by: the command that makes the file. Raises ValueError for no such model.
    """
    bundled = name in zoo.MODELS
    path = zoo.FOLDER / f"{name}.safetensors" if bundled else there(name, made_by)
    bundle = zoo.load(str(path), dtype)
    side = of_model(bundle.name, bundle.model, bundle.params)
    return side._replace(dtype=dtype, files=(path,))


def of_model(name: str, model: Model, params) -> Player:
    """A model that can be either side."""

    def law(params, tokens: Array, sampling: Sampling) -> Law:
        start = jnp.zeros(tokens.shape[0], jnp.int32)
        features, _ = model.apply(params, tokens, start, None)
        return probs.standardize(model.readout(params, features), sampling)

    def drafter(gamma: int) -> Drafter:
        return autoregressive.build(model, gamma)

    return Player(name, params, model.vocab, drafter, SAMPLED, law, model)


def there(name: str, made_by: str) -> Path:
    """The file that a path names, or the one in the folder that it names.

    Raises ValueError if there is none, or more than one.
    """
    path = Path(name).resolve()
    found = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if len(found) == 1 and found[0].is_file():
        return found[0]
    if len(found) > 1:
        raise ValueError(
            f"{name} holds {', '.join(file.name for file in found)}: name one of them"
        )
    advice = f"make them with `{made_by}`" if made_by else "check the path"
    bundled = ", ".join(zoo.MODELS)
    raise ValueError(f"no weights at {name}: {advice}; bundled are {bundled}")


def named(name: str) -> Player:
    """A player by the name that a person types: a bundled model, `unigram`, `bigram`,
    `random`, or a path as for `gpt`. Raises ValueError for no such player."""
    known = {"unigram": 1, "bigram": 2}
    if name in known:
        return ngram(known[name])
    return random() if name == "random" else gpt(name)


def ngram(order: int, name: str = "", made_by: str = "") -> Player:
    """Counts: order 1 is the unigram law, 2 the bigram's (Section 3.6).

    name: a file of `zoo.save_ngrams` by its path, instead of the bundled one. Raises
    ValueError for no such file, or an order that it does not have.
    """
    path = there(name, made_by) if name else zoo.FOLDER / "bigram.safetensors"
    params = zoo.ngrams(path)
    vocab, known = params.table.base.size, params.contexts.shape[1] + 1
    if not 1 <= order <= known:
        raise ValueError(f"these counts have orders 1 to {known}; got {order}")

    def law(params, tokens: Array, sampling: Sampling) -> Law:
        row = ngrams.find(params, ngrams.contexts_of(tokens, order))
        return probs.standardize(probs.table_rows(params.table, row), sampling)

    def drafter(gamma: int) -> Drafter:
        return ngrams.build(vocab, gamma, order)

    called = {1: "unigram", 2: "bigram"}.get(order, f"{order}-gram")
    return Player(called, params, vocab, drafter, TABLE, law, files=(path,))


def random(vocab: int = 8192) -> Player:
    """Uniform tokens, whatever the temperature: the floor (Section 3.6)."""

    def law(params, tokens: Array, sampling: Sampling) -> Law:
        as_it_draws = Sampling(jnp.ones_like(sampling.temperature))
        logits = jnp.broadcast_to(params, (*tokens.shape, vocab))
        return probs.standardize(logits, as_it_draws)

    def drafter(gamma: int) -> Drafter:
        return random_draft.build(vocab, gamma)

    return Player("random", jnp.zeros(vocab), vocab, drafter, TABLE, law)


def copied(longest: int = 3) -> Player:
    """Repeats what followed the same tokens before (Section 3.6).

    It has no law: where nothing matches it drafts nothing, so that beta is not defined
    at every position, and alpha of Table 3 is not measured for it.
    """

    def drafter(gamma: int) -> Drafter:
        return copying.build(gamma, longest)

    return Player("copying", None, None, drafter, CERTAIN)
