"""Every record conforms to the schema, and the page of the schema lists its fields."""

import copy
import re

import jsonschema
import pytest

from experiments import catalogue
from experiments.records import schema
from experiments.rivals import bench, comparisons
from specjax.measure import jsonl, row

RESULTS = catalogue.ROOT / "results"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema.load())
    return jsonschema.Draft202012Validator(schema.load())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda x: x.stem)
def test_every_record_conforms(path, validator):
    for record in jsonl.read(path):
        for error in validator.iter_errors(record):
            pytest.fail(f"{record['row']}: {error.json_path}: {error.message[:200]}")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("kind",), "guess"),
        (("measured",), {}),
        (("measured", "peak_mb"), 5),
        (("unknown",), 1),
        (("provenance", "commit"), "a branch"),
        (("provenance", "machine"), "mine"),
        (("provenance", "device", "count"), 0),
        (("provenance", "inputs"), {"a.gin": "no digest"}),
    ],
)
def test_a_record_with_another_field_or_value_does_not(place, value, validator):
    record = copy.deepcopy(jsonl.read(RESULTS / "table2.jsonl")[0])
    inner = record
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert [*validator.iter_errors(record)]


def test_a_record_of_today_conforms(tmp_path, validator):
    measurement = row.Measurement(dict, "m", dtype="float32")
    origin = measurement, comparisons.EngineSetting(), 1.0
    bench.add_record(tmp_path, "a", {"ms_a": 1.0}, origin=origin, versions={"b": None})
    (record,) = jsonl.read(tmp_path / "bench.jsonl")
    assert not [*validator.iter_errors(record)]


def test_the_page_is_that_of_the_schema_and_names_every_field():
    text = schema.PAGE.read_text("utf-8")
    assert text == schema.page(), "run python -m experiments.records.schema"
    named = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    own = schema.load()["properties"]
    inner = (own[name]["properties"] for name in ("measured", "provenance"))
    assert {*own}.union(*inner) <= named
    assert {"device.processor.model", "device.count"} <= named
