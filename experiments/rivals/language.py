"""A language model with real weights, on real questions, in every engine.

The rows are whole texts one at a time and eight at once, a long prompt alone, and our
calls on several tokens.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.rivals import agreement, calls, children, journal, ratios, turns
from experiments.rivals.exports import (
    ENGINES,
    FLOAT,
    Exports,
    format_folder,
    our_program,
    program_name,
)
from experiments.rivals.journal import Journal, Journals
from experiments.rivals.turns import Answers, Program
from specjax import pretrained, prompts
from specjax.exactness import other_engines
from specjax.measure import jsonl
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, questions, text_files
from specjax.prompts.fields import parse

OURS = "specjax"


class LanguageSetting(NamedTuple):
    """The setting of the rows that compare engines on a language model.

    Attributes:
        texts: questions, of at most `longest` tokens.
        gamma: the gamma of every engine that drafts.
        batch: the batch of the row with several texts at once, at most `texts`.
        prefill: tokens of the long prompt.
        rounds: the number of rounds of all engines in turns, `pause` seconds before
            each.
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
    """The engines that are installed, loaded and ready.

    Attributes:
        programs: by their names in a record.
        plain: the names of programs that draft nothing.
        beside: our program that each is compared with.
        exact: the names of programs in float32.
        refusals: the reasons why the others are missing.
    """

    programs: dict[str, Program]
    plain: set[str]
    beside: dict[str, str]
    exact: set[str]
    refusals: dict[str, str]


def rows(setting: LanguageSetting) -> list[str]:
    names = (*(f"b{batch}" for batch in batches(setting)), "prefill", "calls")
    return [f"{setting.model}_{name}" for name in names]


def batches(setting: LanguageSetting) -> list[int]:
    return sorted({1, min(setting.batch, setting.texts)})


def check(setting: LanguageSetting) -> None:
    """Raises ValueError for a setting that measures nothing."""
    names = "texts", "new_tokens", "gamma", "batch", "prefill", "rounds", "threads"
    for name in names:
        if (value := getattr(setting, name)) < 1:
            raise ValueError(f"--{name} {value}: it must be at least 1")
    wanted = engine_names(setting)
    if unknown := set(wanted) - ENGINES.keys() or {OURS} - set(wanted):
        raise ValueError(
            f"engines must be some of {', '.join(ENGINES)}, ours among them; look at"
            f" {', '.join(sorted(unknown))}"
        )


def engine_names(setting: LanguageSetting) -> list[str]:
    return setting.engines.split(",") if setting.engines else [*ENGINES]


def inputs(setting: LanguageSetting, file: Path) -> tuple[Path, ...]:
    """Returns the files that the measurement depends on.

    Raises:
        OSError: the file of questions is missing.
        ValueError: the model is.
    """
    file.stat()
    return (file, *pretrained.files_of(pretrained.describe(setting.model)))


def measure(
    setting: LanguageSetting,
    file: Path,
    *,
    work: Path,
    texts_folder: Path | None = None,
    row_names: Sequence[str] | None = None,
    journals: Journals = journal.memory_journal,
) -> Iterator[tuple[str, dict]]:
    """Yields each row's name and numbers.

    Args:
        file: a file of questions.
        work: a folder for the weights in each engine's format.
        texts_folder: a folder for the texts of every engine, in the format of `specjax
            microscope --texts`.
        row_names: some of `rows`; None for all.
        journals: opens the journal of a row.
    """
    target = pretrained.load(setting.model)
    every = read_questions(file, target, setting.texts, setting.longest)
    exports = Exports(
        target.files[0], format_folder(work, setting.model, target.files[0])
    )
    names = rows(setting)
    row_names = names if row_names is None else row_names
    *several, long, alone = names
    with ExitStack() as stack:
        if {*several, long} & set(row_names):
            opened = open_all(setting, exports, ends=target.ends, stack=stack)
        for name, batch in zip(several, batches(setting), strict=True):
            if name not in row_names:
                continue
            kept = journals(name)
            taken = whole_texts(setting, opened, every, batch, kept)
            said = texts(taken.values, every.ends, setting.new_tokens)
            if texts_folder is not None:
                write(texts_folder, name, every, said)
            row = time_numbers(setting, opened, taken, lengths(said, batch))
            row |= {"batch": batch, "sittings": len(kept.sittings)}
            yield name, row | compare_texts(target, every, opened, said)
        if long in row_names:
            kept = journals(long)
            prompt = repeat_to_length(every, setting.prefill)
            taken = time_prefill(setting, opened, prompt, kept)
            count = dict.fromkeys(taken.seconds, np.array([setting.prefill]))
            row = time_numbers(setting, opened, taken, count)
            row |= {"batch": 1, "sittings": len(kept.sittings)}
            drafting = tuple(f"_{name}" for name in ("lookup", "drafted"))
            why = row["refusals"].items()
            row["refusals"] = {k: v for k, v in why if not k.endswith(drafting)}
            yield long, row
    if alone in row_names:  # when nobody else holds memory
        turns.say(f"{alone}: our calls on one and on several tokens")
        prompt = [*every.tokens[0]]
        yield alone, calls.measure(setting.model, prompt, setting.new_tokens)


def read_questions(path: Path, model: Pretrained, count: int, longest: int) -> Prompts:
    """Returns the first `count` questions of at most `longest` tokens, equally many of
    each task.

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


def repeat_to_length(every: Prompts, length: int) -> list[int]:
    """Returns one prompt of `length` tokens, made from the repeated questions."""
    joined = list(chain.from_iterable(every.tokens))
    return (joined * -(-length // len(joined)))[:length]


def open_all(
    setting: LanguageSetting, exports: Exports, *, ends: Sequence[int], stack: ExitStack
) -> OpenEngines:
    """Starts every engine; one that fails, for whatever reason, becomes a reason in
    `refusals`.
    """
    opened = OpenEngines({}, set(), {}, set(), {})
    options = dict(room=setting.new_tokens, gamma=setting.gamma, ends=list(ends))
    options["threads"] = setting.threads
    for engine in engine_names(setting):
        about = ENGINES[engine]
        loader = f"{__package__}.{about.module}:language"
        opened.refusals.update({f"{engine}_{x}": y for x, y in about.lacks.items()})
        for kind, make in about.kinds.items():
            first = program_name(engine, kind, "plain")
            turns.say(f"{setting.model}: {first}, loading; its weights are made once")
            try:
                where = {"path": str(make(exports)), "kind": kind}
                started = children.start(loader, where | options, setting.threads)
            except Exception as error:  # of its converter, whatever it raises
                opened.refusals[first] = why = children.refusal(error)
                turns.say(f"{setting.model}: {first} gives no number: {why}")
                continue
            stack.callback(started.close)
            for program in started.programs:
                name = program_name(engine, kind, program)
                opened.programs[name] = partial(started.ask, program)
                opened.beside[name] = our_program(engine, kind, program)
                if program == "plain":
                    opened.plain.add(name)
                if kind == FLOAT:
                    opened.exact.add(name)
    return opened


def whole_texts(
    setting: LanguageSetting,
    opened: OpenEngines,
    every: Prompts,
    batch: int,
    kept: Journal,
) -> Answers:
    prompts = [list(map(int, ids)) for ids in every.tokens]
    if batch > 1:
        prompts = prompts[: len(prompts) // batch * batch]
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    return turns.collect(
        opened.programs,
        [(group, setting.new_tokens) for group in groups],
        [(group, 2) for group in groups],
        rounds=setting.rounds,
        pause=setting.pause,
        label=f"{setting.model}, {batch} at a time",
        journal=kept,
    )


def time_prefill(
    setting: LanguageSetting, opened: OpenEngines, prompt: list[int], kept: Journal
) -> Answers:
    """Measures the time of one token after a long prompt."""
    group = [([prompt], 1)]
    return turns.collect(
        {
            name: opened.programs[name]
            for name in opened.programs
            if name in opened.plain
        },
        group,
        group,
        rounds=setting.rounds,
        pause=setting.pause,
        label=f"{setting.model}, {len(prompt)} tokens",
        journal=kept,
    )


def texts(
    values: Mapping[str, list], ends: Sequence[int], most: int
) -> dict[str, list[list[int]]]:
    """Returns the texts of each engine including an end token, which only some engines
    return.
    """

    def add_end(ids: list[int]) -> list[int]:
        kept = next((ids[:i] for i, x in enumerate(ids) if x in ends), ids)[:most]
        return [*kept, ends[0]] if len(kept) < most else kept

    return {
        name: [add_end(ids) for group in groups for ids in group]
        for name, groups in values.items()
    }


def lengths(said: Mapping[str, list], batch: int) -> dict[str, np.ndarray]:
    """Returns how many tokens each engine wrote for every group."""
    count = {name: [len(ids) for ids in rows] for name, rows in said.items()}
    return {name: np.reshape(x, (-1, batch)).sum(1) for name, x in count.items()}


def time_numbers(
    setting: LanguageSetting,
    opened: OpenEngines,
    taken: Answers,
    tokens: Mapping[str, np.ndarray],
) -> dict:
    """Returns the milliseconds per token of each engine, and how many times as fast
    ours is.
    """
    result = {
        "setting": setting._asdict(),
        "refusals": opened.refusals | taken.refusals,
        "peak_mb": taken.peak_mb,
    }
    result["written"] = {k: tokens[k].tolist() for k in taken.seconds}
    result |= ratios.time_numbers(taken.seconds, tokens, opened.beside)
    if OURS in tokens:
        result["tokens"] = int(tokens[OURS].sum())
    return result


def compare_texts(
    target: Pretrained, every: Prompts, opened: OpenEngines, said: Mapping
) -> dict:
    """Returns which engines wrote the same texts as specjax, which differences rounding
    explains, and the share of tokens before the first difference; {} if specjax failed.
    """
    result = {"same_texts": {}, "same_prefix": {}, "explained": {}, "differences": []}
    result["texts"] = max(map(len, said.values()), default=0)
    if OURS not in said:
        return result
    ours = said[OURS]
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
