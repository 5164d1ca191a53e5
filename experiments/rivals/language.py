"""A language model with real weights, on real questions, by every engine.

The rows are whole texts one at a time and eight at once, a long prompt alone, and our
calls on several tokens.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.rivals import agreement, calls, children, ratios
from experiments.rivals.children import Answers, Child, Refused
from experiments.rivals.exports import (
    ENGINES,
    FLOAT,
    Exports,
    our_program,
    place,
    program_name,
)
from specjax import pretrained, prompts
from specjax.exactness import other_engines
from specjax.measure import jsonl
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, questions, text_files
from specjax.prompts.fields import parse

OURS = "specjax"


class LanguageSetting(NamedTuple):
    """The setting of the rows of a language model.

    Attributes:
        texts: questions, of at most `longest` tokens.
        gamma: of every engine that drafts.
        batch: of the row with several texts at once.
        prefill: tokens of the long prompt.
        rounds: of all engines in turns, `pause` seconds before each.
        engines: some of `ENGINES`, joined by commas, ours among them; empty for all.
    """

    model: str = "smollm2"
    texts: int = 12
    longest: int = 768
    new_tokens: int = 64
    gamma: int = 2
    batch: int = 8
    prefill: int = 2048
    rounds: int = 2
    pause: float = 0.3
    threads: int = 2
    engines: str = ""


class OpenEngines(NamedTuple):
    """The engines that are installed.

    Attributes:
        programs: by their names in a record.
        beside: our program that each is compared with.
        exact: the names of programs in float32.
        refusals: the reasons why the others are missing.
    """

    programs: dict[str, tuple[Child, str]]
    beside: dict[str, str]
    exact: set[str]
    refusals: dict[str, str]


def rows(setting: LanguageSetting) -> list[str]:
    names = (*(f"b{batch}" for batch in batches(setting)), "prefill", "calls")
    return [f"{setting.model}_{name}" for name in names]


def batches(setting: LanguageSetting) -> list[int]:
    return sorted({1, setting.batch})


def check(setting: LanguageSetting) -> None:
    """Raises ValueError for a setting without a row of several texts."""
    if setting.texts < setting.batch:
        raise ValueError(
            f"--texts {setting.texts} are fewer than --batch {setting.batch}: ask for"
            " more texts, or for a smaller batch"
        )


def inputs(setting: LanguageSetting, file: Path) -> tuple[Path, ...]:
    """Returns the files that are measured. Raises ValueError for a missing model."""
    return (file, *pretrained.files_of(pretrained.describe(setting.model)))


def measure(
    setting: LanguageSetting, file: Path, *, work: Path, texts_to: Path | None = None
) -> Iterator[tuple[str, dict]]:
    """Yields each row's name and numbers.

    Args:
        file: of questions.
        texts_to: a folder for the texts of every engine, in the format of `specjax
            microscope --texts`.
    """
    target = pretrained.load(setting.model)
    every = read_questions(file, target, setting.texts, setting.longest)
    exports = Exports(target.files[0], place(work, setting.model, target.files[0]))
    *names, long, alone = rows(setting)
    with ExitStack() as stack:
        opened = open_all(setting, exports, ends=target.ends, stack=stack)
        for name, batch in zip(names, batches(setting), strict=True):
            taken = whole_texts(setting, opened, every, batch)
            said = texts(taken.values, every.ends, setting.new_tokens)
            if texts_to is not None:
                write(texts_to, name, every, said)
            row = time_numbers(setting, opened, taken, lengths(said, batch)) | {
                "batch": batch
            }
            yield name, row | compare_texts(target, every, opened, said)
        taken = time_prefill(setting, opened, at_length(every, setting.prefill))
        count = dict.fromkeys(taken.seconds, np.array([setting.prefill]))
        row = time_numbers(setting, opened, taken, count) | {"batch": 1}
        drafting = tuple(f"_{name}" for name in ("lookup", "drafted"))
        why = row["refusals"].items()
        row["refusals"] = {k: v for k, v in why if not k.endswith(drafting)}
        yield long, row
    # When nobody else holds memory.
    yield alone, calls.measure(setting.model, [*every.tokens[0]], setting.new_tokens)


def read_questions(path: Path, model: Pretrained, count: int, longest: int) -> Prompts:
    """Returns the first `count` questions, as many of each task, of at most `longest`
    tokens.

    Raises:
        ValueError: there are fewer.
        OSError: the file is missing.
    """
    by_task = defaultdict(list)
    for number, line in text_files.numbered_lines(path):
        fields = prompts.at_place(f"{path}, line {number}", parse, line)
        task = questions.task_of(str(fields.get("category", "")))
        by_task[task].append(first_turn(fields))
    turns = filter(None, chain.from_iterable(zip_longest(*by_task.values())))
    every = prompts.from_list(list(turns), model)
    kept = [ids for ids in every.tokens if len(ids) <= longest][:count]
    if len(kept) < count:
        raise ValueError(
            f"{path} has {len(kept)} questions of at most {longest} tokens; asked for"
            f" are {count}"
        )
    return every._replace(tokens=kept, questions=())


def first_turn(fields: dict) -> dict:
    if "turns" not in fields:
        return {
            k: v for k, v in fields.items() if k in ("prompt", "tokens", "messages")
        }
    return {"messages": [{"role": "user", "content": fields["turns"][0]}]}


def at_length(every: Prompts, length: int) -> list[int]:
    """Returns one prompt of `length` tokens: the questions, repeated."""
    joined = list(chain.from_iterable(every.tokens))
    return (joined * -(-length // len(joined)))[:length]


def open_all(
    setting: LanguageSetting, exports: Exports, *, ends: Sequence[int], stack: ExitStack
) -> OpenEngines:
    opened = OpenEngines({}, {}, set(), {})
    options = dict(room=setting.new_tokens, gamma=setting.gamma, ends=list(ends))
    options["threads"] = setting.threads
    wanted = setting.engines.split(",") if setting.engines else [*ENGINES]
    if unknown := set(wanted) - ENGINES.keys() or {OURS} - set(wanted):
        raise ValueError(
            f"engines must be some of {', '.join(ENGINES)}, ours among them; look at"
            f" {', '.join(sorted(unknown))}"
        )
    for engine in wanted:
        about = ENGINES[engine]
        loader = f"{__package__}.{about.module}:language"
        opened.refusals.update({f"{engine}_{x}": y for x, y in about.lacks.items()})
        for kind, make in about.kinds.items():
            try:
                where = {"path": str(make(exports)), "kind": kind}
                started = children.start(loader, where | options, setting.threads)
            except Refused as error:
                opened.refusals[program_name(engine, kind, "plain")] = str(error)
                continue
            stack.callback(started.close)
            for program in started.programs:
                name = program_name(engine, kind, program)
                opened.programs[name] = started, program
                opened.beside[name] = our_program(engine, kind, program)
                if kind == FLOAT:
                    opened.exact.add(name)
    return opened


def whole_texts(
    setting: LanguageSetting, opened: OpenEngines, every: Prompts, batch: int
) -> Answers:
    prompts = [list(map(int, ids)) for ids in every.tokens]
    if batch > 1:
        prompts = prompts[: len(prompts) // batch * batch]
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    arguments = [(group, setting.new_tokens) for group in groups]
    warm = [(group, 2) for group in groups]
    label = f"{setting.model}, batch {batch}"
    return children.collect(
        opened.programs,
        arguments,
        warm,
        rounds=setting.rounds,
        pause=setting.pause,
        label=label,
    )


def time_prefill(
    setting: LanguageSetting, opened: OpenEngines, prompt: list[int]
) -> Answers:
    """Measures one token after a long prompt."""
    alone = {k: v for k, v in opened.programs.items() if v[1] == "plain"}
    group, label = [([prompt], 1)], f"{setting.model}, {len(prompt)} tokens"
    return children.collect(
        alone, group, group, rounds=setting.rounds, pause=setting.pause, label=label
    )


def texts(
    values: Mapping[str, list], ends: Sequence[int], most: int
) -> dict[str, list[list[int]]]:
    """Returns the texts of each engine, with an end token, which only some engines
    return.
    """

    def whole(ids: list[int]) -> list[int]:
        kept = next((ids[:i] for i, x in enumerate(ids) if x in ends), ids)[:most]
        return [*kept, ends[0]] if len(kept) < most else kept

    return {
        name: [whole(ids) for group in groups for ids in group]
        for name, groups in values.items()
    }


def lengths(said: Mapping[str, list], batch: int) -> dict[str, np.ndarray]:
    """Returns the tokens that each engine wrote for every group."""
    count = {name: [len(ids) for ids in rows] for name, rows in said.items()}
    return {name: np.reshape(x, (-1, batch)).sum(1) for name, x in count.items()}


def time_numbers(
    setting: LanguageSetting,
    opened: OpenEngines,
    taken: Answers,
    tokens: Mapping[str, np.ndarray],
) -> dict:
    """Returns milliseconds a token of each engine, and how many times as fast ours
    is.
    """
    result = {
        "setting": setting._asdict(),
        "refusals": opened.refusals | taken.refusals,
    }
    result["written"] = {k: tokens[k].tolist() for k in taken.seconds}
    result |= ratios.time_numbers(taken.seconds, tokens, opened.beside)
    if OURS in tokens:
        result["tokens"] = int(tokens[OURS].sum())
    return result


def compare_texts(
    target: Pretrained, every: Prompts, opened: OpenEngines, said: Mapping
) -> dict:
    """Returns whose texts equal ours, which differences rounding explains, and the
    share of tokens before the first difference.
    """
    ours = said[OURS]
    result = {"same_texts": {}, "same_prefix": {}, "explained": {}, "differences": []}
    result["texts"] = len(ours)
    for name, theirs in said.items():
        other = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
        result["same_texts"][name] = len(ours) - len(other)
        result["same_prefix"][name] = round(agreement.same_prefix(theirs, ours), 4)
        if name not in opened.exact or not other:
            continue
        those = every._replace(tokens=[every.tokens[i] for i in other])
        written = [other_engines.OtherText(i, theirs[i]) for i in other]
        found = [*other_engines.explain(target, those, written)]
        kinds = [finding.kind for finding in found]
        result["explained"][name] = f"{len(kinds) - kinds.count('difference')} of"
        result["explained"][name] += f" {len(kinds)}"
        result["differences"] += [
            {"engine": name, "text": i} | finding._asdict()
            for i, finding in zip(other, found, strict=True)
        ]
    return result


def write(folder: Path, row: str, every: Prompts, said: Mapping[str, list]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in said.items():
        path = folder / f"{row}_{name}.jsonl"
        path.unlink(missing_ok=True)
        for prompt, ids in zip(every.tokens, rows, strict=False):
            jsonl.append(path, {"tokens": [int(i) for i in prompt], "ids": ids})
