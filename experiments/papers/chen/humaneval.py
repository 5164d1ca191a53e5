"""HumanEval: functions to complete, judged by running their tests (pass@1).

Chen, Tworek et al. (2021), https://arxiv.org/abs/2107.03374. A line of the data is one
problem: `prompt` is the beginning of a function, `test` defines `check(candidate)`.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from experiments.papers.chen import sandbox
from experiments.papers.chen.sandbox import Outcome
from experiments.tasks import Task, files, texts
from specjax.checkpoints import Pretrained
from specjax.runtime import progress

FIELDS = ("prompt", "entry_point", "test")
# Where a function is over: Section 2.1 there, and the end of code in a chat.
STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n```")


class Problem(NamedTuple):
    """A function to complete.

    Attributes:
        prompt: the function up to the end of its documentation.
        entry_point: the function's name.
        test: source that defines `check`.
    """

    prompt: str
    entry_point: str
    test: str


def problems(path: Path) -> list[Problem]:
    """Returns the problems of a file. Raises ValueError, with its number, for a line
    that is not a problem.
    """
    listed = [Problem(*line.texts) for line in files.jsonl(path, FIELDS)]
    for number, problem in enumerate(listed, start=1):
        if not problem.entry_point.isidentifier():
            raise ValueError(
                f"{path}, line {number}: entry_point must be a function's name; got"
                f" {problem.entry_point!r}"
            )
    return listed


def task(name: str, target: Pretrained, count: int | None = None) -> Task:
    """Returns the prompts of the first `count` problems of a file.

    Raises:
        ValueError: the file is absent or holds something else.
    """
    chosen = problems(texts.existing_path(name))[:count]
    prompts = texts.prompts([it.prompt for it in chosen], target)
    return Task(prompts, [], (Path(name),))


def first_function(text: str) -> str:
    """Returns a completion up to the place where something other than the function
    begins."""
    ends = [text.find(stop) for stop in STOPS]
    return text[: min((end for end in ends if end >= 0), default=len(text))]


def run_tests(chosen: Sequence[Problem], completions: Sequence[str]) -> list[Outcome]:
    """Runs the tests of each completion and returns the outcomes.

    Completion i belongs to problem i; the problems repeat where there are fewer of
    them.
    """
    programs = []
    for i, text in enumerate(completions):
        it = chosen[i % len(chosen)]
        body = f"{it.prompt}{first_function(text)}\n{it.test}\n"
        programs.append(f"{body}check({it.entry_point})\n")
    with ThreadPoolExecutor(2) as pool:
        each = pool.map(sandbox.run, programs)
        return list(progress.track(each, "tests", len(programs)))


def pass_at_1(outcomes: Sequence[Outcome], count: int) -> dict:
    """Returns the share of problems that passed, at most 1, its standard error over
    `count` problems, None for a single one, and how many of the others each kind of
    error stopped.
    """
    passed = [outcome.passed for outcome in outcomes]
    by_problem = [sum(passed[i::count]) / len(passed[i::count]) for i in range(count)]
    mean = sum(by_problem) / count
    squares, error = sum((x - mean) ** 2 for x in by_problem), None
    if count > 1:
        error = (squares / (count - 1) / count) ** 0.5
    why = Counter(x.why.partition(":")[0] for x in outcomes if not x.passed)
    return {
        "pass1": mean,
        "pass1_se": error,
        "why_not": dict(why.most_common(8)),
    }
