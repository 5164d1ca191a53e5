"""Published numbers have one source: `experiments/records/published_values.json`.

A gin file shows them in comments beside its rows, and some rows simulate a published
acceptance rate; both are compared with that source here.
"""

import re

import pytest

from experiments import catalogue
from experiments.records import records
from experiments.records.table import published_value
from specjax import configs
from specjax.configs import RowFile

LENIENCE = "leviathan2023/table5_lenience"
# The speeds that Table 5 implies stand beside these rows, by the end of their names.
SPEEDS = {
    "small_t0": published_value(f"{LENIENCE}/temperature_0/improvement"),
    "small_t1": published_value(f"{LENIENCE}/improvement_t5_small_c_0.015"),
}
ROWS = [
    row
    for folder in sorted(path.name for path in catalogue.CONFIGS.iterdir())
    for row in records.rows(folder).values()
    if "Paper:" in row.path.read_text("utf-8")
    or catalogue.published_numbers(folder, row.row) is not None
]
WITHOUT_NUMBERS = "figure5"  # the paper's diagram shows none


def paper_comment(row: RowFile) -> str:
    """Returns the comment above a row in ROWS, or the head of a file that is one row,
    from "Paper:" on; "" where it has none."""
    text = row.path.read_text("utf-8")
    found = re.search(rf"((?: *#.*\n)*)    '{re.escape(row.row)}': ", text)
    comment = found[1] if found else text.partition("\ninclude")[0]
    return re.sub(r"\s*\n *# *", " ", comment).partition("Paper:")[2]


def published_numbers(row: RowFile) -> dict[str, float]:
    """Returns the published numbers of a row by quantity."""
    numbers = catalogue.published_numbers(row.path.parent.name, row.row) or {}
    if row.path.parent.name in ("table5", "table5_paper"):
        levels = published_value(f"{LENIENCE}/lenience")
        for level, speed in zip(levels, SPEEDS.get(row.row[-8:], ()), strict=False):
            numbers |= {f"implied_speed_l{level:g}": speed}
    return numbers


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.path.parent.name}-{row.row}"
)
def test_a_comment_shows_the_published_numbers_of_its_row_and_no_others(row):
    comment = paper_comment(row)
    shown = re.findall(r"([\w.]+) = (-?\d+(?:\.\d+)?)", comment)
    assert {name: float(number) for name, number in shown} == published_numbers(row)
    assert len(shown) == len(published_numbers(row))
    assert bool(shown) == (bool(comment) and row.path.parent.name != WITHOUT_NUMBERS)


def test_every_published_number_in_a_gin_file_is_read():
    """A comment with "Paper:" may stand above a row only."""
    for path in catalogue.CONFIGS.glob("*/*.gin"):
        beside = [row for row in ROWS if row.path == path and paper_comment(row)]
        assert path.read_text("utf-8").count("Paper:") == len(beside), path


def simulated_rows() -> dict[RowFile, str]:
    """Returns the rows that simulate a published acceptance rate, with its place."""
    table2, table3 = "leviathan2023/table2_walltime", "leviathan2023/table3_alpha"
    places = {}
    for name, row in records.rows("chip").items():
        task, size, temperature = name.split("_")[:3]
        places[row] = f"{table2}/{task} t5_{size} {temperature[1:]}"
    for name, row in records.rows("fits").items():
        if name.endswith("t5"):
            places[row] = f"{table2}/ende t5_small 0"
        elif name.endswith("lamda"):
            places[row] = f"{table3}/lamda_137b lamda_100m 0"
    return places


@pytest.mark.parametrize(("row", "place"), simulated_rows().items(), ids=str)
def test_a_row_that_simulates_a_published_acceptance_rate_sets_its_number(row, place):
    config, _ = configs.read(row)
    macros = dict(re.findall(r"^(ALPHA|GAMMA) = (\S+)$", config, re.MULTILINE))
    wanted = published_value(place)
    assert float(macros["ALPHA"]) == wanted["alpha"]
    assert int(macros["GAMMA"]) == wanted.get("gamma", int(macros["GAMMA"]))
