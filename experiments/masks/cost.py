"""The cost of a form's masks in a step, on the device and on the host.

Texts are decoded one at a time in three ways, in turns: freely, with a regular
expression, whose masks are tables on the device, and with a grammar, whose masks the
host makes. Both allow every text, so that the steps are nearly the same and a
difference of their times is what masking costs. Numbers:

- `ms`: milliseconds of a step with its draft, freely; `ms_table`, `ms_host` with masks;
- `table`, `host`: the same over `ms`, with errors over texts;
- `differing_table`, `differing_host`: texts that masks changed, as where the model
  writes a special token;
- `states`, `classes`, `masks`: of the tables of a JSON schema, as an example of a form;
  `kilobytes`: all that its tables hold; `build_seconds`: from the schema to the tables.

Times are the medians of the rounds.
"""

import time
from functools import partial
from typing import NamedTuple

import numpy as np

from specjax import constraints, text
from specjax.checkpoints import Pretrained
from specjax.constraints import Form, regular, schemas, tables
from specjax.decode_config import DecodeConfig
from specjax.drafts import pair as open_pair
from specjax.drafts.source import DraftLike, check_pair, pair_files, record_names
from specjax.measure.pairs import Read
from specjax.measure.row import Measurement
from specjax.runtime import progress
from specjax.text.programs import Job, Pair, prepare
from specjax.theory.estimate import nan_to_none, ratio

# All texts of characters, in the syntax of each.
FORMS = {
    "free": None,
    "table": Form(constraints.REGEX, r"(?s:.)*"),
    "host": Form(constraints.GRAMMAR, r"start: /(.|\n)*/"),
}
SCHEMA = """{
  "type": "object",
  "properties": {
    "title": {"type": "string", "maxLength": 40},
    "year": {"type": "integer"},
    "kinds": {"type": "array", "items": {"enum": ["book", "film"]}, "maxItems": 4},
    "price": {"type": ["number", "null"]},
    "author": {
      "type": "object",
      "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
      "required": ["name"]
    }
  },
  "required": ["title", "year", "author"]
}"""


class MaskSetting(NamedTuple):
    """The setting of a row of the table of masks.

    decode: how every text is decoded. texts: how many texts of a task are decoded.
    rounds: how often each is timed, after a first time that is not.
    """

    decode: DecodeConfig = DecodeConfig()
    texts: int = 12
    rounds: int = 3


def row(
    target: Pretrained,
    draft: DraftLike,
    *,
    task: str,
    read: Read,
    setting: MaskSetting,
) -> Measurement:
    """Returns the measurement of a pair of decoders.

    Args:
        target, draft: M_p and M_q.
        task, read: the name of a task, and how a task of that name is read.
        setting: the setting of the row.

    Raises:
        ValueError: the pair or the setting cannot decode.
    """
    if min(setting.texts, setting.rounds) < 1:
        raise ValueError("texts and rounds must be at least 1")
    pair = open_pair(target, draft)
    check_pair(*pair, with_alpha=False)
    about = read(task, target)
    prompts = [list(map(int, ids)) for ids in about.prompts.tokens[: setting.texts]]
    run = partial(measure, pair, prompts, setting)
    files = *pair_files(*pair), *about.files
    return Measurement(run, __name__, files, target.dtype, setting.decode.seed)


def measure(pair: Pair, prompts: list[list[int]], setting: MaskSetting) -> dict:
    """Decodes the prompts in every way, and returns the numbers of the row's record."""
    jobs = {
        name: [prepare(*pair, [ids], setting.decode, form=form) for ids in prompts]
        for name, form in FORMS.items()
    }
    rounds = [
        decode_all(jobs, label=f"round {turn}") for turn in range(setting.rounds + 1)
    ]
    numbers = record_names(*pair) | compare(rounds, len(prompts))
    return numbers | describe_schema(pair[0]) | {"rounds": setting.rounds}


def decode_all(
    jobs: dict[str, list[Job]], *, label: str
) -> dict[tuple[str, int], text.Generated]:
    """Returns each text decoded in each way; the ways of one text follow each other in
    time."""
    count = len(jobs["free"])
    return {
        (name, i): text.run(each[i])
        for i in progress.track(range(count), label)
        for name, each in jobs.items()
    }


def compare(rounds: list[dict[tuple[str, int], text.Generated]], texts: int) -> dict:
    """Returns the times of a step. rounds: the first one is not timed."""
    per_step, free = {}, rounds[0]
    for name in FORMS:
        seconds = [[turn[name, i].seconds for i in range(texts)] for turn in rounds[1:]]
        calls = np.array([free[name, i].calls for i in range(texts)])
        per_step[name] = 1e3 * np.median(seconds, axis=0) / calls
    numbers = {"texts": texts, "ms": float(per_step["free"].mean())}
    for name in ("table", "host"):
        share = ratio(per_step[name], per_step["free"])
        differing = sum(free[name, i].ids != free["free", i].ids for i in range(texts))
        numbers |= {
            f"ms_{name}": float(per_step[name].mean()),
            name: share.value,
            f"{name}_se": nan_to_none(share.se),
            f"differing_{name}": differing,
        }
    return numbers


def describe_schema(target: Pretrained) -> dict:
    """Returns the sizes of the tables that SCHEMA has for a target, and the seconds
    that it takes to build them."""
    begin = time.perf_counter()
    words = constraints.token_bytes(target.tokenizer, target.vocab, target.ends)
    automaton = regular.compile_bytes(schemas.to_regex(SCHEMA), what="schema")
    table = tables.lift(automaton, words, target.ends, what="schema")
    seconds = time.perf_counter() - begin
    return {
        "vocab": target.vocab,
        "states": table.step.shape[0],
        "classes": table.step.shape[1],
        "masks": table.masks.shape[0],
        "kilobytes": sum(leaf.nbytes for leaf in table) / 1000,
        "build_seconds": seconds,
    }
