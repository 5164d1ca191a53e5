"""What the README shows runs, and what it names is there."""

import ast
import re
from pathlib import Path

from experiments import catalogue
from experiments.report import headline, tables
from specjax.verifiers import token

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "specjax", "experiments", "tests"
README = (ROOT / "README.md").read_text()


def test_the_two_commands_come_first_and_exist():
    commands = re.search(r"```\n(.*?)```", README, re.DOTALL)[1].splitlines()
    names = [re.match(r"make ([a-z-]+) ", line)[1] for line in commands]
    assert names == ["tables", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for name in re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_the_examples_run_and_are_short(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    lengths = [len([line for line in block.splitlines() if line]) for block in blocks]
    assert len(blocks) == 3 and lengths[0] == 5 and lengths[1] <= 9 and lengths[2] <= 25
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 88
    exec(compile(blocks[0], "README.md", "exec"), names := {})
    assert capsys.readouterr().out.startswith(repr(names["output"].texts))
    assert all(names["output"].texts) and 0 < names["output"].alpha < 1
    exec(compile(blocks[1], "README.md", "exec"), names)
    first, second = capsys.readouterr().out.split("\n-----\n")
    assert first.startswith("def add(") and second.startswith("class Stack:\n")
    assert (names["decoded"].length > names["request"].start).all()
    # Its parts are those of the guide, which `tests/test_drafts.py` decodes by.
    assert blocks[2] == (ROOT / "docs/my_parts.py").read_text()


def test_the_guides_choice_of_kernels_is_the_reference_on_a_cpu():
    guide = (ROOT / "docs/guides/kernels.md").read_text()
    source = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    exec(compile(source, "kernels.md", "exec"), names := {})
    assert names["verifier"] is token.verifier and names["drafter"].gamma == 4


def test_every_table_is_in_the_index_of_results():
    index = (ROOT / "results/README.md").read_text()
    for table in catalogue.tables():
        assert f"[md]({table.name}.md)" in index and f"`{table.command}`" in index


def test_the_headline_is_what_the_records_say():
    records = tables.collect(ROOT / "results")
    assert headline.rendered(README, records) == README
    measured = [at for at in headline.ROWS if at[1] in records[at[0]]]
    lines = re.findall(r"^\| \w+_\w+ \+ .*", README, re.MULTILINE)
    assert len(lines) == len(measured) > 0
    assert not any(re.search(r"\|\s*\|", line) for line in lines)  # no empty cell
    assert len(lines) == 5 and any("HumanEval" in line for line in lines)
    assert headline.rendered(README, {})  # and of no records
    for record in records["table2"].values():
        record["measured"]["best_speedup"] += 1
    assert headline.rendered(README, records) != README


def test_a_place_that_is_not_there_is_not_named():
    """The project has no address on the web yet."""
    files = [*ROOT.glob("*.*"), *ROOT.glob("notebooks/*"), *ROOT.glob("docs/**/*.md")]
    for path in filter(Path.is_file, files):
        text = path.read_text("utf-8")
        assert not re.search(r"github\.com/specjax|colab\.research|/specjax\.git", text)


def test_files_that_are_named_are_there():
    linked = re.findall(r"\]\(([^)]+)\)", README)
    named = re.findall(r"`((?:specjax|tests|experiments)/[\w./]+)", README)
    for path in [p for p in linked if "://" not in p] + named:
        assert (ROOT / path).exists(), path


def test_what_is_to_be_run_runs():
    """Every `python -m MODULE` that a reader is told is a command, and not a module
    that is imported and ends."""
    texts = ["*.md", "Makefile", ".ci/run", "docs/**/*.md", "gin_configs/**/*.gin"]
    texts += [
        "results/*.md",
        *(f"{x}/**/*.{y}" for x in PACKAGES for y in ("py", "sh")),
    ]
    files = [path for pattern in texts for path in ROOT.glob(pattern)]
    told = re.compile(rf" -m ((?:{'|'.join(PACKAGES)})[\w.]*\w)")
    named = {name for path in files for name in told.findall(path.read_text("utf-8"))}
    assert {"experiments.training.finetune", "experiments.rivals"} <= named
    for name in named:
        path = ROOT / name.replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        last = ast.parse(path.read_text("utf-8")).body[-1]
        assert ast.unparse(last).startswith("if __name__ == '__main__':\n"), name
