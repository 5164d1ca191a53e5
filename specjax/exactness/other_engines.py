"""Finds where another engine's greedy text differs from ours, and whether rounding
explains it.

Each of its tokens is judged after the prompt and its own earlier tokens (teacher
forcing), by the logits of calls of one token, which is how our greedy text is decoded.
eps is the largest difference of a logit between those calls and one call for the whole
text, up to there. A token is explained if its logit is at most 2 eps below our best
(`exactness.divergence`). Axes: N tokens of a text, T places: N + 1 of the longest, V
vocabulary."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from specjax import chunks, prompts
from specjax.exactness.divergence import Text, build_read, compare, one_call_logits
from specjax.inputs import pad
from specjax.measure.texts import take, width
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, text_files
from specjax.prompts.fields import check_text, parse, quote
from specjax.tokenizers import Tokenizer

LOST = "its ids are uncertain, because they do not decode to the same text: write them"
LOST += ' as "ids"'
JOINED = "its first ids are uncertain, because the tokenizer joins prompt and text:"
JOINED += ' write them as "ids"'
REPEATED = "it begins with the prompt itself: write only the new text"


class OtherText(NamedTuple):
    """The text of another engine.

    line: that of the file. ids: [N], up to the first end. doubt: a reason why the
    engine may have written other ids; empty where they are certain."""

    line: int
    ids: list[int]
    doubt: str = ""


class Finding(NamedTuple):
    """The comparison of a text of N tokens with ours.

    kind: "same", "tie" or "difference". explained: how many of the N are within 2 eps
    of our best. place: that of the first that is not our argmax, N if all are.
    theirs, ours: the ids there; theirs is -1 where the text is over. best: the logit of
    ours; gap: how far theirs is below it; eps: up to there."""

    kind: str
    explained: int
    place: int
    theirs: int
    ours: int
    best: float
    gap: float
    eps: float


def read(path: Path, model: Pretrained) -> tuple[Prompts, list[OtherText]]:
    """Returns the prompts of a file, and another engine's text after each of them.

    The text stands as "text" or "ids" beside the prompt. Raises ValueError naming the
    line and the fix, OSError for a file that cannot be read."""
    read = prompts.read(path, model)
    lines, found = text_files.numbered_lines(path), []
    for (number, line), prompt in zip(lines, read.tokens, strict=True):
        where = f"{path}, line {number}"
        ids, doubt = prompts.at_place(
            where, read_ids, parse(line), prompt, read.ends, model
        )
        found.append(OtherText(number, ids, doubt))
    return read, found


def read_ids(
    fields: dict[str, Any],
    prompt: Sequence[int],
    ends: Sequence[int],
    model: Pretrained,
) -> tuple[list[int], str]:
    """Returns the ids of a line, up to the first end, and any doubt about them in
    words."""
    vocab, doubt = model.model.vocab, ""
    if "ids" in fields:
        ids = fields["ids"]
        listed = isinstance(ids, list) and all(type(i) is int for i in ids)
        if not listed or not all(0 <= i < vocab for i in ids):
            rule = f"ids must be a list of ids in 0..{vocab - 1}"
            raise ValueError(f"{rule}; got {quote(ids)}: are they of this model?")
    elif "text" in fields:
        text = check_text(fields["text"], "text")
        ids, doubt = encode(model.tokenizer, prompt, text)
    else:
        raise ValueError(
            'write the text of the other engine beside the prompt, as "text": text or,'
            ' exactly, "ids": [ids]'
        )
    if not ids:
        raise ValueError(
            'the text is empty: if it ended at once, write its end, "ids": [id]'
        )
    heads = [list(prompt), [i for i in prompt if i != model.start]]
    if any(head and ids[: len(head)] == head for head in heads):
        doubt = REPEATED
    ids = ids[: next((at + 1 for at, i in enumerate(ids) if i in ends), None)]
    most, longest = model.model.slots, len(prompt) + len(ids)
    if most is not None and longest > most:
        raise ValueError(
            f"prompt and text have {longest} tokens and {model.name} has {most}"
            f" positions: cut the text by {longest - most} tokens"
        )
    return ids, doubt


def encode(
    tokenizer: Tokenizer, prompt: Sequence[int], text: str
) -> tuple[list[int], str]:
    """Returns the ids of a text after a prompt, and any doubt about them in words.

    They are the ids that the text adds to those of the prompt, or those of the text
    alone where the tokenizer would join the two."""

    def bare(text: str) -> list[int]:
        around, ids = tokenizer.encode(""), tokenizer.encode(text)
        if around and ids[: len(around)] == around:
            return ids[len(around) :]
        return ids[: len(ids) - len(around)] if around else ids

    before = tokenizer.decode(prompt)
    head, whole, alone = bare(before), bare(before + text), bare(text)
    behind = whole[len(head) :] if whole[: len(head)] == head else None
    ways = [
        ids
        for ids in (behind, alone)
        if ids is not None and tokenizer.decode([*prompt, *ids]) == before + text
    ]
    if not ways:
        return alone, LOST
    return ways[0], JOINED if behind is None or ways[0] != ways[-1] else ""


def explain(
    target: Pretrained, prompts: Prompts, texts: Sequence[OtherText]
) -> Iterator[Finding]:
    """Yields the finding on each text, by programs of one shape."""
    places = 1 + max(len(text.ids) for text in texts)
    sizes, model = (width(prompts) + places, places), target.model
    one_by_one = build_read(model, sizes, rows=1)
    at_once = jax.jit(partial(one_call_logits, chunks.read_in_portions(model), sizes))
    for row, text in enumerate(texts):
        prompt, begins = take(prompts, [row]), range(len(text.ids) + 1)
        whole, _ = pad([[*prompts.tokens[row], *text.ids]], sizes[0])
        logits = one_by_one(target.params, prompt, whole, begins)
        yield judge(text.ids, logits, at_once(target.params, prompt, whole))


def judge(ids: Sequence[int], logits: Array, forward: Array) -> Finding:
    """Returns the finding on a text of N ids.

    logits, forward: [1, T, V], in calls of one token and in one call."""
    count = len(ids)
    theirs = np.full(logits.shape[:2], -1)
    theirs[0, :count] = ids
    ours = np.asarray(logits.argmax(-1))
    unread: Any = None
    beside = compare(
        Text(unread, ours, logits[None]), Text(unread, theirs, forward[None])
    )
    gap, eps = beside.gap[0], np.maximum.accumulate(beside.eps[0])
    explained = gap <= 2 * eps
    at = int(np.argmax(theirs[0] != ours[0]))  # at the latest N
    kind = "same" if at == count else "tie" if explained[at] else "difference"
    return Finding(
        kind=kind,
        explained=int(explained[:count].sum()),
        place=at,
        theirs=int(theirs[0, at]),
        ours=int(ours[0, at]),
        best=float(logits[0, at].max()),
        gap=float(gap[at]),
        eps=float(eps[at]),
    )
