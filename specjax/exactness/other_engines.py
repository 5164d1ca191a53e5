"""Where another engine's greedy text leaves ours, and whether rounding explains it.

Each of its tokens is judged behind the prompt and its own tokens before (it is
teacher-forced), by the logits of calls of one token, as our greedy text is decoded. eps
is the largest difference of a logit between those and one call for the whole text, up
to there; what lacks at most 2 eps to our best is explained (`exactness.divergence`).
Axes: N tokens of a text, T places: N + 1 of the longest, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from specjax import chunks, prompts
from specjax.drafts.source import Side
from specjax.exactness.divergence import Text, build_read, compare, in_one_call
from specjax.inputs import pad
from specjax.measure.texts import take, width
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, text_files
from specjax.prompts.lines import check_text, parse, shown
from specjax.tokenizers import Tokenizer

LOST = 'its ids are not sure, as they do not give the text back: write them as "ids"'
JOINED = "its first ids are not sure, as the tokenizer joins prompt and text: write"
JOINED += ' them as "ids"'
REPEATED = "it begins with the prompt itself: write only what came behind"


class OtherText(NamedTuple):
    """What another engine wrote. line: of the file. ids: [N], cut behind an end. doubt:
    why they may be other ids than it wrote; empty where they are sure."""

    line: int
    ids: list[int]
    doubt: str = ""


class Finding(NamedTuple):
    """What a text of N tokens is beside ours. kind: "same", "tie" or "difference".
    explained: how many of the N are within 2 eps of our best. place: of the first that
    is not our argmax, N if all are. theirs, ours: the ids there; theirs is -1 where the
    text is over. best: our logit of ours; gap: what theirs lacks; eps: up to there."""

    kind: str
    explained: int
    place: int
    theirs: int
    ours: int
    best: float
    gap: float
    eps: float


def read(path: Path, model: Pretrained) -> tuple[Prompts, list[OtherText]]:
    """The prompts of a file, and what another engine wrote behind each, as "text" or
    "ids" beside it. Raises ValueError naming the line and what to write, OSError for a
    file that cannot be read."""
    asked = prompts.read(path, model)
    lines, found = text_files.numbered(path), []
    for (number, line), prompt in zip(lines, asked.tokens, strict=True):
        given = parse(line), prompt, asked.ends, model
        where = f"{path}, line {number}"
        ids, doubt = prompts.located(where, ids_of, *given)
        found.append(OtherText(number, ids, doubt))
    return asked, found


def ids_of(
    fields: dict[str, Any],
    prompt: Sequence[int],
    ends: Sequence[int],
    model: Pretrained,
) -> tuple[list[int], str]:
    """Those of a line, up to the first end, and the doubt of them."""
    vocab, doubt = model.model.vocab, ""
    if "ids" in fields:
        ids = fields["ids"]
        listed = isinstance(ids, list) and all(type(i) is int for i in ids)
        if not listed or not all(0 <= i < vocab for i in ids):
            known = f"ids must be a list of ids in 0..{vocab - 1}"
            raise ValueError(f"{known}; got {shown(ids)}: are they of this model?")
    elif "text" in fields:
        text = check_text(fields["text"], "text")
        ids, doubt = encoded(model.tokenizer, prompt, text)
    else:
        raise ValueError(
            'beside the prompt write what the other engine wrote, as "text": text or,'
            ' exact, "ids": [ids]'
        )
    if not ids:
        raise ValueError(
            'it wrote nothing: of a text that ended at once give the end, "ids": [id]'
        )
    begun = [list(prompt), [i for i in prompt if i != model.start]]
    if any(head and ids[: len(head)] == head for head in begun):
        doubt = REPEATED
    ids = ids[: next((at + 1 for at, i in enumerate(ids) if i in ends), None)]
    most, longest = model.model.slots, len(prompt) + len(ids)
    if most is not None and longest > most:
        raise ValueError(
            f"prompt and text are {longest} tokens and {model.name} knows {most}"
            f" positions: cut the text by {longest - most} tokens"
        )
    return ids, doubt


def encoded(
    tokenizer: Tokenizer, prompt: Sequence[int], text: str
) -> tuple[list[int], str]:
    """The ids of a text behind a prompt, and the doubt of them. They are what the text
    adds to that of the prompt, or those of the text alone where the two would join."""

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
    target: Side, asked: Prompts, texts: Sequence[OtherText]
) -> Iterator[Finding]:
    """What each text is, one after the other in programs of one shape."""
    places = 1 + max(len(text.ids) for text in texts)
    sizes, model = (width(asked) + places, places), target.model
    one_by_one = build_read(model, sizes, rows=1)
    at_once = jax.jit(partial(in_one_call, chunks.read_in_portions(model), sizes))
    for row, text in enumerate(texts):
        prompt, begins = take(asked, [row]), range(len(text.ids) + 1)
        whole, _ = pad([[*asked.tokens[row], *text.ids]], sizes[0])
        logits = one_by_one(target.params, prompt, whole, begins)
        yield found(text.ids, logits, at_once(target.params, prompt, whole))


def found(ids: Sequence[int], logits: Array, forward: Array) -> Finding:
    """Of a text of N ids. logits, forward: [1, T, V], in calls of one token and in one
    call."""
    count = len(ids)
    theirs = np.full(logits.shape[:2], -1)
    theirs[0, :count] = ids
    ours = np.asarray(logits.argmax(-1))
    beside = compare(Text(None, ours, logits[None]), Text(None, theirs, forward[None]))
    gap, eps = beside.gap[0], np.maximum.accumulate(beside.eps[0])
    explained = gap <= 2 * eps
    at = int(np.argmax(theirs[0] != ours[0]))  # at the latest N
    kind = "same" if at == count else "tie" if explained[at] else "difference"
    within, pair = int(explained[:count].sum()), (int(theirs[0, at]), int(ours[0, at]))
    numbers = float(logits[0, at].max()), float(gap[at]), float(eps[at])
    return Finding(kind, within, at, *pair, *numbers)
