"""Acceptance by the kind of a token, by its place in block and text, and by its length.

The numbers are of every drafted token that Algorithm 1 of Leviathan et al. (2023)
tested. There the target's own token is x: the draft if it was kept, else the token that
was drawn in its place.

- `alpha`: sum_x min(p, q), the probability that any draft is kept there (Corollary
  3.6);
- `expected`: min(1, q(x) / p(x)), the probability that x was the draft, given that it
  is x;
- `kept`: whether it was, in this run.

The means of the three over all tokens are equal. Their means by kind are not: where a
comma has probability 1/2 and is always drafted, alpha is 1/2 at every x, and all commas
are kept. At temperature 0 each number is 0 or 1, and the three are equal.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from experiments.kinds import prose, python, segments, shares, tested_drafts
from experiments.kinds.segments import Place
from experiments.kinds.tested_drafts import Pair, Tokens
from specjax import drafts, fused
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, check_pair
from specjax.measure import pairs, scoring
from specjax.measure.row import Measurement
from specjax.measure.texts import Protocol, Text
from specjax.prompts import Prompts
from specjax.theory import estimate
from specjax.tokenizers import Tokenizer

LANGUAGES = {"english": prose.english, "german": prose.german, "python": python.python}
KINDS = (python.KEYWORD, python.IDENTIFIER, python.OPERATOR, python.BRACKET)
KINDS += (segments.BREAK, segments.INDENT, segments.SPACE)
KINDS += (prose.FUNCTION, prose.NAME, prose.NOUN, prose.NUMBER, prose.OTHER)
KINDS += (prose.PUNCTUATION, segments.END, segments.SILENT)
PLACES = (0, 8, 16, 32, 64, 128)  # where the parts of a text begin, in tokens
LENGTHS = (1, 2, 3, 4, 5, 7, 10)  # in characters
FIRST, LATER = "first of its word", "later in its word"


def build(
    target: Pretrained,
    draft: DraftLike,
    *,
    protocol: Protocol,
    language: str,
    read: pairs.Read = pairs.prompts,
) -> Measurement:
    """Returns the measurement of one row.

    Args:
        target, draft, protocol, read: as for `pairs.alpha`; the rule is `token`.
        language: the language that the target writes, one of LANGUAGES.

    Raises:
        ValueError: as `pairs.alpha`, or for another rule, an unknown language, or a
            target without a tokenizer.
    """
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ValueError(f"no language {language!r}: choose one of {known}")
    if protocol.decode.rule != "token" or protocol.decode.gamma < 1:
        raise ValueError(
            "kinds of tokens are measured with Algorithm 1: set the rule to token and"
            " gamma to at least 1; got"
            f" {protocol.decode.rule} and {protocol.decode.gamma}"
        )
    pair = target, draft = drafts.pair(target, draft)
    check_pair(*pair)
    of_alpha = pairs.alpha(target, draft, protocol, read)
    tokenizer = target.tokenizer
    prompts = read(protocol.task, target).prompts
    run = partial(measure, pair, prompts, protocol, reading=(language, tokenizer))
    files = *of_alpha.inputs, tokenizer.file
    ours = dict(run=run, module=__name__, inputs=tuple(dict.fromkeys(files)))
    return of_alpha._replace(**ours, shares=False)


def measure(
    pair: Pair, prompts: Prompts, protocol: Protocol, *, reading: tuple[str, Tokenizer]
) -> dict:
    """Measures the pair by kind of token, and returns the numbers of the row's record.

    Args:
        reading: language and tokenizer of the texts.
    """
    chosen = fused.for_protocol(*pair, protocol)
    text, every = tested_drafts.run(pair, prompts, protocol, chosen)
    places = zip(token_places(text, prompts.ends, reading), every.block, strict=True)
    tokens, places = every.select_tested(), [it for it, block in places if block]
    # Drafts tested and kept of each text.
    texts = np.bincount(tokens.sequence), np.bincount(tokens.sequence, tokens.kept)
    tested, kept = (counts[texts[0] > 0] for counts in texts)
    means = {
        "alpha": estimate.rao_blackwell(tokens.alpha, tokens.sequence),
        "kept": estimate.counts(kept, tested),
        "alpha_everywhere": estimate.rao_blackwell(every.alpha, every.sequence),
    }
    numbers = {name: it.value for name, it in means.items()}
    # As JSON holds it: the error of a single text is None.
    errors = {f"{k}_se": None if it.se != it.se else it.se for k, it in means.items()}
    return {
        **numbers,
        **errors,
        "tokens": len(places),
        "generated": len(every.block),
        **(
            scoring.alpha_outside_repeats(text, None)
            if protocol.decode.temperature == 0
            else {}
        ),
        "sequences": len(text.start),
        **agreement(tokens),
        "groups": {
            name: shares.cells(labels, order, tokens)
            for name, (labels, order) in groups(
                tokens, places, protocol.decode.gamma
            ).items()
        },
        "language": reading[0],
        **pairs.names(pair, protocol),
        "kernels": chosen.record,
    }


def token_places(
    text: Text, ends: Sequence[int], reading: tuple[str, Tokenizer]
) -> Iterator[Place]:
    """Yields the place of each generated token, one text after the other; a text is
    classified together with its prompt.
    """
    language, tokenizer = reading
    for ids, start, length in zip(*text[:3], strict=True):
        written, classify = ids[:length].tolist(), LANGUAGES[language]
        places = segments.places(tokenizer.decode, written, classify, last=ends)
        yield from places[start:]


def groups(tokens: Tokens, places: Sequence[Place], gamma: int) -> dict[str, tuple]:
    """Returns the ways to group tokens: for each way the labels of the tokens [M], and
    all labels in order.
    """
    first = {True: FIRST, False: LATER, None: None}
    blocks = [str(i) for i in tokens.block.tolist()]
    return {
        "kind": ([it.kind for it in places], KINDS),
        "block": (blocks, [str(i + 1) for i in range(gamma)]),
        "place": bin_labels(tokens.place.tolist(), PLACES),
        "characters": bin_labels([it.characters or None for it in places], LENGTHS),
        "word": bin_labels([it.word or None for it in places], LENGTHS),
        "piece": ([first[it.first] for it in places], (FIRST, LATER)),
    }


def bin_labels(values: Sequence[int | None], edges: Sequence[int]) -> tuple[list, list]:
    """Returns the label of the bin of each number, None for None, and all labels.

    Args:
        edges: the first number of each bin.
    """
    names = [
        str(low) if high == low + 1 else f"{low} to {high - 1}"
        for low, high in pairwise(edges)
    ]
    names.append(f"{edges[-1]} on")
    return [None if x is None else names[bisect(edges, x) - 1] for x in values], names


def agreement(tokens: Tokens) -> dict[str, float | int | None]:
    """Tests whether the run kept as many drafted tokens as expected.

    Returns:
        z: the z-score of the number of drafts kept, each of which is kept with
            probability `expected`; None where no draft was uncertain.
        against: the number of tokens with probability 0 or 1 that came out otherwise,
            by rounding.
    """
    chance = tokens.expected * (1 - tokens.expected)
    sure = chance == 0
    against = int(np.sum(tokens.kept[sure] != (tokens.expected[sure] == 1)))
    total = chance.sum()
    gap = np.sum(tokens.kept[~sure] - tokens.expected[~sure])
    z = float(gap / np.sqrt(total)) if total > 0 else None
    return {"z": z, "against": against}
