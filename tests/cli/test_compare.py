"""`specjax compare` on small files whose differences are known by hand."""

import copy
import json

import pytest

from specjax.cli import compare

RECORD = {
    "row": "small_t0_b1",
    "table": "table2",
    "scale": "laptop",
    "measured": {
        "target": "code_target",
        "draft": "code_small",
        "draft_regime": "sampled law",
        "exactness": "exact law",
        "temperature": 0.0,
        "batch": 1,
        "alpha": 0.6,
        "alpha_se": 0.03,
        "estimates": {
            "rao_blackwell": {"value": 0.6, "se": 0.03},
            "counts": {"value": 0.5, "se": 0.04},
            "chen_r": {"value": 0.4, "se": None},
        },
        "gamma": [0, 1, 3],
        "c": [None, 0.06, 0.05],
        "c_ci": [None, [0.05, 0.07], [0.04, 0.06]],
        "v": [1.0, 1.2, 1.5],
        "v_ci": [[1, 1], [1.1, 1.3], [1.4, 1.6]],
        "speedup": [1.0, 1.3, 1.6],
        "speedup_ci": [[1, 1], [1.2, 1.4], [1.5, 1.7]],
        "target_ms": 2.0,
        "target_ms_ci": [1.902, 2.098],  # a standard error of 0.05
        "best_gamma": 3,
        "best_speedup": 1.6,
        "best_speedup_ci": [1.5, 1.7],
    },
    "published": None,
    "provenance": {
        "commit": "aaaa",
        "dirty": False,
        "versions": {"jax": "0.10.2", "numpy": "2.4.6"},
        "device": {"platform": "cpu", "kind": "cpu"},
        "dtype": "float32",
        "seed": 0,
        "config": "# Parameters:\n# ===\nplayers.model.name = 'a'\nTOKENS = 10\n",
        "date": "2026-01-01",
    },
}


def record(measured=(), provenance=(), **fields) -> dict:
    """RECORD with other fields; `...` takes one of those measured away."""
    other = copy.deepcopy(RECORD) | fields
    other["measured"] |= dict(measured)
    other["measured"] = {k: v for k, v in other["measured"].items() if v is not ...}
    other["provenance"] |= dict(provenance)
    return other


def write(path, *records, end=""):
    path.write_text("".join(json.dumps(line) + "\n" for line in records) + end)
    return str(path)


@pytest.fixture
def run(tmp_path, capsys):
    """(records of A, of B, flags) -> what is printed; JSON as a document."""

    def compared(a, b, *flags):
        names = [write(tmp_path / f"{x}.jsonl", *y) for x, y in (("a", a), ("b", b))]
        assert compare.main([*names, *flags]) == 0
        text = capsys.readouterr().out
        return json.loads(text) if "--json" in flags else text

    return compared


def difference(document, quantity, gamma=None):
    (row,) = document["rows"]
    keys = "quantity", "gamma"
    (entry,) = [x for x in row["compared"] if [x[k] for k in keys] == [quantity, gamma]]
    return entry


def test_an_interval_by_hand(run):
    other = record({"alpha": 0.7, "alpha_se": 0.04})
    entry = difference(run([RECORD], [other], "--json"), "alpha")
    assert (entry["a"], entry["b"]) == (0.6, 0.7)
    assert entry["difference"] == pytest.approx(0.1)
    # sqrt(0.03^2 + 0.04^2) = 0.05
    assert entry["interval"] == pytest.approx([0.1 - 1.96 * 0.05, 0.1 + 1.96 * 0.05])
    assert entry["marked"] and entry["ratio"] is None


def test_a_recorded_interval_counts_as_its_standard_error(run):
    # Standard errors of 0.05 and 0.025: half widths of 0.098 and 0.049.
    other = record({"target_ms": 2.5, "target_ms_ci": [2.451, 2.549]})
    entry = difference(run([RECORD], [other], "--json"), "target_ms")
    reach = (0.098**2 + 0.049**2) ** 0.5
    assert entry["interval"] == pytest.approx([0.5 - reach, 0.5 + reach])
    assert entry["ratio"] == pytest.approx(1.25)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("errors", "marked"), [(3, True), (1, False)])
def test_three_standard_errors_are_marked_and_one_is_not(run, sign, errors, marked):
    se = 0.03 * 2**0.5
    other = record({"alpha": 0.6 + sign * errors * se})
    document = run([RECORD], [other], "--json")
    assert difference(document, "alpha")["marked"] is marked
    assert document["marked"] == marked
    lines = run([RECORD], [other]).splitlines()
    (line,) = [line for line in lines if line.startswith("  alpha")]
    assert line.endswith("*") is marked


def test_what_is_compared(run):
    document = run([RECORD], [RECORD], "--json")
    (row,) = document["rows"]
    names = {(entry["quantity"], entry["gamma"]) for entry in row["compared"]}
    # Without: alpha's double, an estimate and gammas that have no error.
    assert names == {
        ("alpha", None),
        ("estimates.counts", None),
        ("best_speedup", None),
        ("target_ms", None),
        *((name, gamma) for name in ("c", "v", "speedup") for gamma in (1, 3)),
    }
    with_ratio = {entry["quantity"] for entry in row["compared"] if entry["ratio"]}
    assert with_ratio == {"best_speedup", "target_ms", "speedup"}
    assert document["comparisons"] == 10
    assert document["expected_by_chance"] == 0.5


def test_identical_files_differ_in_nothing(run):
    document = run([RECORD], [RECORD], "--json")
    assert document["marked"] == 0
    (row,) = document["rows"]
    assert row["unequal"] == row["provenance"] == []
    assert document["only_in_a"] == document["only_in_b"] == []
    text = run([RECORD], [RECORD])
    assert "10 comparisons, 0 marked" in text and "about 0.5 of them" in text
    assert "Provenance: the same" in text
    assert text.count("*") == 1 and "differs" not in text


def test_gammas_are_matched_by_value(run):
    reduced = record(
        {"gamma": [0, 3], "speedup": [1.0, 1.9], "speedup_ci": [[1, 1], [1.8, 2.0]]}
        | {name: [1.0, 1.5] for name in ("c", "v")}
        | {name: [[1, 1], [1.4, 1.6]] for name in ("c_ci", "v_ci")}
    )
    document = run([RECORD], [reduced], "--json")
    entry = difference(document, "speedup", 3)
    assert (entry["a"], entry["b"], entry["marked"]) == (1.6, 1.9, True)
    (row,) = document["rows"]
    assert {"name": "gamma", "a": [0, 1, 3], "b": [0, 3]} in row["unequal"]
    assert all(entry["gamma"] != 1 for entry in row["compared"])


KERNELS = [{"verify": name, "why": "."} for name in ("mosaic_gpu", "onepass")]
ELSEWHERE = {"temperature": ..., "batch": ...}
# What was measured in A and in B, and what is listed: values that have no error.
UNEQUAL = [
    (
        {},
        {"best_gamma": 1, "exactness": "approximate", "batch": 8},
        [
            ("exactness", "exact law", "approximate"),
            ("batch", 1, 8),
            ("best_gamma", 3, 1),
        ],
    ),
    ({}, {"estimates": {}}, [("estimates.counts", 0.5, None)]),
    (*({"kernels": kernels} for kernels in KERNELS), [("kernels", *KERNELS)]),
    (
        ELSEWHERE | {"protocol": {"temperature": 0.0, "batch": 32}},
        ELSEWHERE | {"protocol": {"temperature": 1.0, "batch": 32}},
        [("temperature", 0.0, 1.0)],
    ),
]


@pytest.mark.parametrize(("a", "b", "unequal"), UNEQUAL)
def test_values_without_an_error_must_be_equal(run, a, b, unequal):
    (row,) = run([record(a)], [record(b)], "--json")["rows"]
    assert [tuple(each.values()) for each in row["unequal"]] == unequal


def test_a_value_that_differs_is_printed(run):
    assert "  best_gamma differs: 3, 1\n" in run([RECORD], [record({"best_gamma": 1})])


def test_a_row_without_errors_must_be_equal_in_everything(run):
    a, b = (
        record() | {"measured": {"alpha": [0, 1], "speed": speed}}
        for speed in (1.5, 1.6)
    )
    document = run([a], [b], "--json")
    assert document["comparisons"] == 0
    (row,) = document["rows"]
    assert row["unequal"] == [{"name": "speed", "a": 1.5, "b": 1.6}]


def test_provenance_that_differs_is_listed(run):
    elsewhere = {
        "commit": "bbbb",
        "device": {"platform": "gpu", "kind": "H"},
        "versions": {"jax": "0.11.0", "numpy": "2.4.6"},
        "seed": 1,
        "config": "# Others:\nTOKENS = 20\nplayers.model.name = 'a'\n",
        "date": "2026-02-02",
    }
    document = run([RECORD], [record(provenance=elsewhere)], "--json")
    (row,) = document["rows"]
    assert [tuple(entry.values()) for entry in row["provenance"]] == [
        ("commit", "aaaa", "bbbb"),
        ("device.platform", "cpu", "gpu"),
        ("device.kind", "cpu", "H"),
        ("versions.jax", "0.10.2", "0.11.0"),
        ("seed", 0, 1),
        ("config", "TOKENS = 10", None),
        ("config", None, "TOKENS = 20"),
    ]
    text = run([RECORD], [record(provenance=elsewhere)])
    assert "  commit: aaaa | bbbb\n" in text and "Other devices" in text


def test_shared_provenance_is_said_once(run):
    rows = [RECORD, record(row="second")]
    others = [record(provenance={"commit": "bbbb"})]
    others.append(record(row="second", provenance={"commit": "bbbb", "seed": 9}))
    text = run(rows, others)
    assert "  commit: aaaa | bbbb\n  seed: 0 | 9 (second)\n" in text
    assert "Other devices" not in text


def test_rows_of_one_file_only_are_listed(run):
    a, b = [RECORD, record(row="old")], [record(row="new"), RECORD]
    document = run(a, b, "--json")
    assert (document["only_in_a"], document["only_in_b"]) == (["old"], ["new"])
    assert [row["row"] for row in document["rows"]] == ["small_t0_b1"]
    text = run(a, b)
    assert "Only in A: old\n" in text and "Only in B: new\n" in text


def test_one_row_alone(run):
    rows = [RECORD, record(row="second")]
    document = run(rows, rows, "--row", "second", "--json")
    assert [row["row"] for row in document["rows"]] == ["second"]


def test_the_last_record_of_a_row_counts(run):
    newer = record({"alpha": 0.9})
    assert difference(run([RECORD, newer], [newer], "--json"), "alpha")["a"] == 0.9


def test_a_torn_last_line_is_told_and_left_out(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    write(path, RECORD, end='{"row": "torn", "measu')
    assert compare.read(path) == {"small_t0_b1": RECORD}
    assert f"{path}, line 2: torn" in capsys.readouterr().err


def test_out_keeps_what_is_printed(run, tmp_path):
    path = tmp_path / "out.txt"
    assert run([RECORD], [RECORD], "--out", str(path)) == path.read_text()


def test_help_says_how_an_interval_becomes_an_error(capsys):
    with pytest.raises(SystemExit):
        compare.main(["--help"])
    assert "(hi - lo) / (2 * 1.96)" in capsys.readouterr().out
