"""Pages have no placeholder, and list what the API accepts."""

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import specjax
from specjax import policies
from specjax.cli import decode, measure, train_draft
from specjax.decode_config import DecodeConfig

ROOT = Path(__file__).resolve().parents[1]
# What stands for something that was never filled in.
PLACEHOLDER = re.compile(
    r"github\.com/(?:OWNER|ORG|USER|YOU)\b|\bexample\.(?:com|org)\b|\bTODO\b|\bFIXME\b"
    r"|\bTBD\b|your-(?:org|name|repo)|\blorem ipsum\b|PLACEHOLDER(?!\()",
    re.IGNORECASE,
)
SHOWN = "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "docs/**/*.md"
SHOWN += "results/*.md", "notebooks/*.ipynb", "notebooks/*.py", "setup.py"
SHOWN += ("experiments/report/templates/**/*.*", "experiments/launch/*.*")
SHOWN += ("experiments/report/lesson/*.json",)


def test_no_page_shows_a_placeholder():
    files = [path for pattern in SHOWN for path in ROOT.glob(pattern)]
    assert len(files) > 100
    for path in files:
        found = PLACEHOLDER.search(path.read_text("utf-8"))
        assert not found, f"{path.relative_to(ROOT)} shows {found[0]}"


@pytest.mark.parametrize(
    "text", ["git+https://github.com/OWNER/specjax", "see example.org", "TODO: say it"]
)
def test_a_placeholder_is_found(text):
    assert PLACEHOLDER.search(text)


@pytest.fixture
def field_lists(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("field_lists")


def test_arguments_in_paragraphs_become_a_list(field_lists):
    text = [
        "Decodes.",
        "",
        "gamma: drafted. tokens, texts: those that",
        "were written.",
    ]
    found = field_lists.to_sections(text, ["gamma", "tokens", "texts"], "Args")
    listed = ["Args:", "  gamma: drafted.", "  tokens, texts: those that were written."]
    assert found == ["Decodes.", "", *listed, ""]


def test_what_has_a_list_or_no_names_stays(field_lists):
    google = ["Decodes.", "", "Args:", "  gamma: drafted.", "", "gamma: again."]
    assert field_lists.to_sections(google, ["gamma"], "Args") == google
    raises = ["gamma: drafted.", "", "Raises:", "  ValueError: it is none."]
    found = field_lists.to_sections(raises, ["gamma"], "Args")
    assert found == ["Args:", "  gamma: drafted.", "", *raises[2:]]
    prose = ["Decodes.", "", "alpha: no argument of this function."]
    assert field_lists.to_sections(prose, ["gamma"], "Args") == prose
    assert field_lists.to_sections(prose, [], "Args") == prose


def test_names_that_share_a_text_are_an_entry_each(field_lists):
    lines = ["Args:", "  a, b: both, which", "    are long.", "  c: alone.", ""]
    wanted = ["Args:", "  a: both, which", "    are long.", "  b: see `a`."]
    names = ["a", "b", "c"]
    assert field_lists.split_names(lines, names) == [*wanted, "  c: alone.", ""]
    assert field_lists.split_names(lines, []) == lines


def test_every_setting_of_decoding_is_in_the_list(field_lists):
    lines = (DecodeConfig.__doc__ or "").splitlines()
    lines = [line.removeprefix("    ") for line in lines]
    found = field_lists.to_sections(lines, field_lists.names_of(DecodeConfig), "Args")
    items = [line for line in found if line.startswith("  ")]
    named = {x for item in items for x in item.strip().partition(": ")[0].split(", ")}
    assert {"gamma", "top_k", "rule", "logprobs"} <= named


def test_a_notebooks_first_cell_names_no_address():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        first = next(cell for cell in cells if cell["cell_type"] == "code")
        assert 'ADDRESS = ""  #' in "".join(first["source"]), path.name


ELSEWHERE = (ROOT / "docs/guides/elsewhere.md").read_text("utf-8")


def second_column(page: str) -> str:
    """Returns the second column of the tables: our name for a name of another
    library."""
    rows = re.findall(r"^\| .*", page, re.MULTILINE)
    return "\n".join(row.split(" | ")[1] for row in rows if row.count(" | ") > 1)


def test_what_stands_for_the_names_of_others_is_there():
    flags = {*re.findall(r"--[a-z][a-z-]+", second_column(ELSEWHERE))}
    makers = decode.make_parser, measure.make_parser, train_draft.make_parser
    known = {name for make in makers for name in make()._option_string_actions}
    assert len(flags) > 12 and flags <= known, flags - known
    settings = {*re.findall(r"[`(, ]([a-z_]+)=[,`) ]", second_column(ELSEWHERE))}
    functions = specjax.generate_text, specjax.generate_beams
    taken = {x for each in functions for x in inspect.signature(each).parameters}
    options = {"longest", "least"}  # of drafts
    assert len(settings) > 8 and settings <= taken | options, settings - taken
    named = re.findall(r'policy="([^"]+)"|--policy ([^ `]+)', second_column(ELSEWHERE))
    assert len(named) > 4
    for name in filter(None, (a or b for a, b in named)):
        policies.find(name)
