"""Drafts without weights of a network: counts of tokens, and uniform tokens."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp

from specjax import probs, zoo
from specjax.checkpoints import Pretrained
from specjax.drafters import ngram as ngrams
from specjax.drafters import random as random_draft
from specjax.drafts.source import TABLE, DraftSource, recipe
from specjax.types import Law, Prompt, Sampling

# The bundled counts, by the size of their vocabulary.
COUNTS = {zoo.CODE_VOCAB: "bigram", zoo.T5_VOCAB: "t5_bigram"}


def bundled_files() -> tuple[Path, ...]:
    """Returns the files of all bundled counts."""
    return tuple(zoo.FOLDER / f"{name}.safetensors" for name in COUNTS.values())


def target_counts(target: Pretrained, order: int) -> DraftSource:
    """Returns the counts of the target's vocabulary. Raises ValueError where none are
    bundled."""
    if target.vocab not in COUNTS:
        raise ValueError(
            f"there are no counts of the {target.vocab} ids of {target.name}: those of"
            " the bundled code and T5 models alone are here; name another draft"
        )
    return ngram(order, COUNTS[target.vocab])


def ngram(order: int, name: str = "", made_by: str = "") -> DraftSource:
    """Returns the draft by counts (Leviathan et al. 2023, Section 3.6).

    Args:
      order: 1 is the unigram law, 2 the bigram's.
      name: a bundled table, by default of the code models, or a file of
        `zoo.save_ngrams` by its path.
      made_by: the command that makes the file, for the message where it is absent.

    Raises:
      ValueError: there is no such file, or it does not have this order.
    """
    path = Path(name)
    if name in ("", "bigram", "t5_bigram"):
        path = zoo.FOLDER / f"{name or 'bigram'}.safetensors"
    if not path.is_file():
        advice = f"make them with `{made_by}`" if made_by else "check the path"
        raise ValueError(f"no counts at {name}: {advice}")
    params = zoo.ngrams(path)
    vocab, known = params.table.base.size, params.contexts.shape[1] + 1
    if not 1 <= order <= known:
        raise ValueError(f"these counts have orders 1 to {known}; got {order}")

    def law(params: Any, prompt: Prompt, sampling: Sampling) -> Law:
        row = ngrams.find(params, ngrams.draft_contexts(prompt.tokens, order))
        return probs.standardize(probs.table_rows(params.table, row), sampling)

    return DraftSource(
        name={1: "unigram", 2: "bigram"}.get(order, f"{order}-gram"),
        factory=recipe(ngrams.build, vocab=vocab, order=order),
        params=params,
        vocab=vocab,
        regime=TABLE,
        law=law,
        files=(path,),
        model=recipe(ngrams.bigram, vocab=vocab) if order == 2 else None,
    )


def random(vocab: int = 8192) -> DraftSource:
    """Returns the draft of uniform tokens, at any temperature: the lower bound of all
    drafts (Leviathan et al. 2023, Section 3.6)."""

    def law(params: Any, prompt: Prompt, sampling: Sampling) -> Law:
        as_it_draws = Sampling(jnp.ones_like(sampling.temperature))
        logits = jnp.broadcast_to(params, (*prompt.tokens.shape, vocab))
        return probs.standardize(logits, as_it_draws)

    return DraftSource(
        name="random",
        factory=recipe(random_draft.build, vocab=vocab),
        params=jnp.zeros(vocab),
        vocab=vocab,
        regime=TABLE,
        law=law,
    )
