"""Prepares a task's examples: `python -m experiments.tasks.prepare --task wmt_ende ...`

Tokenizes a split once, from TensorFlow Datasets or from local files, and writes it as
`examples` reads it. Local files need neither TensorFlow nor a network.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from experiments.tasks import files, recipes
from experiments.tasks.examples import About, Examples, write
from experiments.tasks.recipes import Recipe, TaskRow
from specjax.measure.provenance import digest
from specjax.runtime import console, progress

Rows = tuple[Iterator[TaskRow], str, int, list[str]]  # then tokenizer, eos and source


def prepare(chosen: argparse.Namespace) -> tuple[Examples, About]:
    """Returns the examples that the flags describe. Raises ValueError for invalid
    ones.
    """
    recipe, length, limit = recipes.recipe(chosen.task), chosen.length, chosen.limit
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1; got {limit}")
    if length is not None and (recipe.prefix is None or length < 2):
        raise ValueError(
            f"--length {length}: at least 2 tokens, of a task that has inputs"
        )
    if chosen.truncate and length is None:
        raise ValueError("--truncate needs the --length to cut to")
    if chosen.fields and chosen.jsonl is None:
        raise ValueError("--fields are those of a --jsonl file")
    paths = [it for it in (chosen.tsv, chosen.jsonl) if it] + (chosen.parallel or [])
    rows, digest, eos, source = (
        read_files(chosen, recipe, paths) if paths else read_dataset(chosen, recipe)
    )
    seen = progress.track(islice(rows, limit), chosen.task, limit, "examples")
    examples = recipes.collect(seen, length, chosen.truncate)
    about = About(
        task=chosen.task,
        split=chosen.split,
        tokenizer=digest,
        eos=eos,
        prefix=recipe.prefix,
        length=length,
        truncate=chosen.truncate,
        limit=limit,
        source=source,
    )
    return examples, about


def read_files(chosen: argparse.Namespace, recipe: Recipe, paths: list[Path]) -> Rows:
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise ValueError(f"no file {', '.join(missing)}")
    if len(paths) > 2:
        raise ValueError(f"--parallel takes one or two files; got {len(paths)}")
    if chosen.data_dir is not None:
        raise ValueError("--data-dir is of TensorFlow Datasets, not of local files")
    subwords = recipes.load(Path(chosen.tokenizer))
    if chosen.tsv:
        lines = files.tsv(chosen.tsv)
    elif chosen.jsonl:
        lines = files.jsonl(chosen.jsonl, chosen.fields or recipe.fields)
    else:
        lines = files.read_parallel(chosen.parallel)
    source = [f"{path.name} sha256 {digest(path)}" for path in paths]
    rows = recipes.tokenize(recipe, subwords, lines)
    return rows, subwords.digest, subwords.eos, source


def read_dataset(chosen: argparse.Namespace, recipe: Recipe) -> Rows:
    from experiments.tasks import paper  # TensorFlow, which local files do without

    rows = paper.rows(
        chosen.task, chosen.split, tokenizer=chosen.tokenizer, data_dir=chosen.data_dir
    )
    subwords = paper.subwords(chosen.tokenizer)
    source = [f"tensorflow_datasets {recipe.dataset}"]
    return rows, subwords.digest, subwords.eos, source


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
    several = {"nargs": "+", "metavar": "FILE"}
    add("--parallel", type=Path, **several, help="one or two text files")
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
