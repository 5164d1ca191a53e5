"""Prepares a task's examples: `python -m experiments.tasks.prepare --task wmt_ende ...`

Tokenizes a split once, from TensorFlow Datasets or from local files, and writes it as
`examples` reads it. Local files need neither TensorFlow nor a network.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from experiments.tasks import files, recipes
from experiments.tasks.examples import About, Examples, write
from experiments.tasks.recipes import TaskRow
from specjax import console
from specjax.measure.provenance import digest


class Origin(NamedTuple):
    """The fields of `About` that only the source of the rows knows."""

    tokenizer: str
    eos: int
    source: list[str]


def prepare(arguments: argparse.Namespace) -> tuple[Examples, About]:
    """The examples that the flags ask for. Raises ValueError for what cannot be one."""
    recipe = recipes.recipe(arguments.task)
    length, limit = arguments.length, arguments.limit
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1; got {limit}")
    if length is not None and (recipe.prefix is None or length < 2):
        raise ValueError(
            f"--length {length}: at least 2 tokens, of a task that has inputs"
        )
    if arguments.truncate and length is None:
        raise ValueError("--truncate needs the --length to cut to")
    local = named(arguments)
    rows, origin = from_files(arguments) if local else from_datasets(arguments)
    bar = tqdm(islice(rows, limit), total=limit, unit="example", disable=None)
    examples = recipes.collect(bar, length, arguments.truncate)
    about = About(
        arguments.task,
        arguments.split,
        **origin._asdict(),
        prefix=recipe.prefix,
        length=length,
        truncate=arguments.truncate,
        limit=limit,
    )
    return examples, about


def named(arguments: argparse.Namespace) -> list[Path]:
    """The local files among the flags."""
    single = [it for it in (arguments.tsv, arguments.jsonl) if it is not None]
    return single + (arguments.parallel or [])


def from_files(arguments: argparse.Namespace) -> tuple[Iterator[TaskRow], Origin]:
    """Rows of local files, and where they come from."""
    recipe = recipes.recipe(arguments.task)
    paths = named(arguments)
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise ValueError(f"no file {', '.join(missing)}")
    if len(paths) > 2:
        raise ValueError(f"--parallel takes one or two files; got {len(paths)}")
    if arguments.data_dir is not None:
        raise ValueError("--data-dir is of TensorFlow Datasets, not of local files")
    if arguments.fields and arguments.jsonl is None:
        raise ValueError("--fields are those of a --jsonl file")
    subwords = recipes.load(Path(arguments.tokenizer))
    if arguments.tsv:
        lines = files.tsv(arguments.tsv)
    elif arguments.jsonl:
        lines = files.jsonl(arguments.jsonl, arguments.fields or recipe.fields)
    else:
        lines = files.parallel(arguments.parallel)
    source = [f"{path.name} sha256 {digest(path)}" for path in paths]
    rows = recipes.tokenize(recipe, subwords, lines)
    return rows, Origin(subwords.digest, subwords.eos, source)


def from_datasets(arguments: argparse.Namespace) -> tuple[Iterator[TaskRow], Origin]:
    """Rows of TensorFlow Datasets, and where they come from."""
    if arguments.fields:
        raise ValueError("--fields are those of a --jsonl file")
    from experiments.tasks import paper  # TensorFlow, which local files do without

    tokenizer, task = arguments.tokenizer, arguments.task
    rows = paper.rows(task, arguments.split, tokenizer, arguments.data_dir)
    subwords = paper.subwords(tokenizer)
    source = [f"tensorflow_datasets {recipes.recipe(task).dataset}"]
    return rows, Origin(subwords.digest, subwords.eos, source)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tasks.prepare",
        description="Tokenizes a split of a task and writes it as one .npz file.",
    )
    add = parser.add_argument
    add("--task", required=True, choices=recipes.RECIPES)
    add("--split", required=True, help="validation, test, ...; of local files a label")
    add("--tokenizer", required=True, metavar="FILE", help="a SentencePiece model")
    add("--out", required=True, type=Path, metavar="FILE.npz")
    add("--limit", type=int, metavar="N", help="the first N examples")
    add("--length", type=int, metavar="N", help="the most tokens of an input")
    add("--truncate", action="store_true", help="cut longer inputs to --length")
    add("--data-dir", metavar="DIR", help="of TensorFlow Datasets")
    source = parser.add_mutually_exclusive_group()
    add = source.add_argument
    add("--tsv", type=Path, metavar="FILE", help="input, tab, target a line")
    add("--jsonl", type=Path, metavar="FILE", help="an object a line; see --fields")
    add(
        "--parallel", type=Path, nargs="+", metavar="FILE", help="one or two text files"
    )
    parser.add_argument("--fields", nargs="+", metavar="NAME", help="of --jsonl")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    try:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        examples, about = prepare(chosen)
        write(chosen.out, examples, about)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    inputs, targets = (max(map(len, it)) for it in (examples.inputs, examples.targets))
    print(
        f"{chosen.out}: {len(examples.inputs)} examples of {about.task} {about.split},"
        f" inputs of up to {inputs} tokens, targets of up to {targets}"
    )


if __name__ == "__main__":
    console.command(main)
