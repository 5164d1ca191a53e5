"""What the README shows runs, and what it names is there."""

import re
from pathlib import Path

from experiments import catalogue
from specjax import demo, generate

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_two_commands_come_first_and_exist():
    commands = re.search(r"```\n(.*?)```", README, re.DOTALL)[1].splitlines()
    names = [re.match(r"make ([a-z-]+) ", line)[1] for line in commands]
    assert names == ["tables", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for name in re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


def test_the_example_runs_and_is_short(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    assert len([line for line in blocks[0].splitlines() if line]) <= 13
    assert max(map(len, blocks[0].splitlines())) <= 88
    names = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    first, second = capsys.readouterr().out.split("\n-----\n")
    assert first.startswith("def add(") and second.startswith("class Stack:\n")
    output, request = names["output"], names["request"]
    assert (output.length > request.start).all()
    fused = blocks[1].replace("draft.model", "names['draft'].model")
    exec(compile(fused, "README.md", "exec"), own := {"names": names})
    parts = names["parts"]._replace(drafter=own["drafter"], verifier=own["verifier"])
    again = generate.build(parts, 96)(names["params"], names["prompt"], request)
    assert (again.tokens == output.tokens).all()


def test_the_shells_example_is_understood():
    line = re.search(r"^specjax demo (.*)$", README, re.MULTILINE)[1]
    prompt = re.search(r'"(.*?)"', line)[1]
    rest = line.replace(f'--prompt "{prompt}"', "").split()
    flags = demo.make_parser().parse_args(["--prompt", prompt, *rest])
    assert flags.K == 4 and flags.temperature == 0


def test_the_map_is_the_catalogues():
    """Every table and figure with its own command, and no folder that is not there."""
    for table in catalogue.tables():
        assert f"| `{table.command}` | `{table.name}.md` |" in README, table.name
    for name in re.findall(r"gin_configs/(\w+)", README):
        assert list((ROOT / "gin_configs" / name).glob("*.gin")), name


def test_files_that_are_named_are_there():
    linked = re.findall(r"\]\(([^)]+)\)", README)
    named = re.findall(r"`((?:specjax|tests|experiments)/[\w./]+)", README)
    for path in [p for p in linked if "://" not in p] + named:
        assert (ROOT / path).exists(), path
