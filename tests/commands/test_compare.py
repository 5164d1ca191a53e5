"""`specjax compare` on small files whose differences are known by hand."""

import copy
import json

import pytest

from specjax.commands import compare

RECORD = {
    "row": "small_t0_b1",
    "table": "table2",
    "scale": "laptop",
    "measured": {
        "target": "code_9m",
        "draft": "code_05m",
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
    found = copy.deepcopy(RECORD) | fields
    found["measured"] |= dict(measured)
    found["provenance"] |= dict(provenance)
    return found


def write(path, *records, end=""):
    path.write_text("".join(json.dumps(one) + "\n" for one in records) + end)
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


@pytest.fixture
def refused(capsys):
    """(flags) -> the one line that is said, with exit code 2 and nothing printed."""

    def line(*flags):
        with pytest.raises(SystemExit) as exit:
            compare.main([str(flag) for flag in flags])
        captured = capsys.readouterr()
        assert exit.value.code == 2 and captured.out == ""
        assert captured.err.count("\n") == 1
        return captured.err

    return line


def found(document, quantity, gamma=None):
    (row,) = document["rows"]
    keys = "quantity", "gamma"
    (one,) = [x for x in row["compared"] if [x[k] for k in keys] == [quantity, gamma]]
    return one


def test_an_interval_by_hand(run):
    other = record({"alpha": 0.7, "alpha_se": 0.04})
    one = found(run([RECORD], [other], "--json"), "alpha")
    assert (one["a"], one["b"]) == (0.6, 0.7)
    assert one["difference"] == pytest.approx(0.1)
    # sqrt(0.03^2 + 0.04^2) = 0.05
    assert one["interval"] == pytest.approx([0.1 - 1.96 * 0.05, 0.1 + 1.96 * 0.05])
    assert one["marked"] and one["ratio"] is None


def test_a_recorded_interval_counts_as_its_standard_error(run):
    # Standard errors of 0.05 and 0.025: half widths of 0.098 and 0.049.
    other = record({"target_ms": 2.5, "target_ms_ci": [2.451, 2.549]})
    one = found(run([RECORD], [other], "--json"), "target_ms")
    reach = (0.098**2 + 0.049**2) ** 0.5
    assert one["interval"] == pytest.approx([0.5 - reach, 0.5 + reach])
    assert one["ratio"] == pytest.approx(1.25)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("errors", "marked"), [(3, True), (1, False)])
def test_three_standard_errors_are_marked_and_one_is_not(run, sign, errors, marked):
    se = 0.03 * 2**0.5
    other = record({"alpha": 0.6 + sign * errors * se})
    document = run([RECORD], [other], "--json")
    assert found(document, "alpha")["marked"] is marked
    assert document["marked"] == marked
    lines = run([RECORD], [other]).splitlines()
    (line,) = [line for line in lines if line.startswith("  alpha")]
    assert line.endswith("*") is marked


def test_what_is_compared(run):
    document = run([RECORD], [RECORD], "--json")
    (row,) = document["rows"]
    names = {(one["quantity"], one["gamma"]) for one in row["compared"]}
    # Without: alpha's double, an estimate and gammas that have no error.
    assert names == {
        ("alpha", None),
        ("estimates.counts", None),
        ("best_speedup", None),
        ("target_ms", None),
        *((name, gamma) for name in ("c", "v", "speedup") for gamma in (1, 3)),
    }
    with_ratio = {one["quantity"] for one in row["compared"] if one["ratio"]}
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
    one = found(document, "speedup", 3)
    assert (one["a"], one["b"], one["marked"]) == (1.6, 1.9, True)
    (row,) = document["rows"]
    assert {"name": "gamma", "a": [0, 1, 3], "b": [0, 3]} in row["unequal"]
    assert all(one["gamma"] != 1 for one in row["compared"])


def test_values_without_an_error_must_be_equal(run):
    other = record({"best_gamma": 1, "exactness": "approximate", "batch": 8})
    (row,) = run([RECORD], [other], "--json")["rows"]
    assert row["unequal"] == [
        {"name": "exactness", "a": "exact law", "b": "approximate"},
        {"name": "batch", "a": 1, "b": 8},
        {"name": "best_gamma", "a": 3, "b": 1},
    ]
    assert "  best_gamma differs: 3, 1\n" in run([RECORD], [other])


def test_what_other_kernels_read_is_told(run):
    a, b = ({"verify": name, "why": "."} for name in ("mosaic_gpu", "onepass"))
    inner = [record({"kernels": one}) for one in (a, b)]
    (row,) = run(inner[:1], inner[1:], "--json")["rows"]
    assert row["unequal"] == [{"name": "kernels", "a": a, "b": b}]


def test_a_setting_of_the_protocol_counts_too(run):
    a, b = ({"temperature": t, "batch": 32} for t in (0.0, 1.0))
    inner = [
        record({"protocol": protocol}) for protocol in (a, b)
    ]  # of a record that has them nowhere else
    for one in inner:
        del one["measured"]["temperature"], one["measured"]["batch"]
    (row,) = run(inner[:1], inner[1:], "--json")["rows"]
    assert row["unequal"] == [{"name": "temperature", "a": 0.0, "b": 1.0}]


def test_a_row_without_errors_must_be_equal_in_everything(run):
    closed = [
        record() | {"measured": {"alpha": [0, 1], "speed": speed}}
        for speed in (1.5, 1.6)
    ]
    document = run(closed[:1], closed[1:], "--json")
    assert document["comparisons"] == 0
    (row,) = document["rows"]
    assert row["unequal"] == [{"name": "speed", "a": 1.5, "b": 1.6}]


def test_an_estimate_in_one_file_only_is_said(run):
    other = record({"estimates": {}})
    (row,) = run([RECORD], [other], "--json")["rows"]
    assert row["unequal"] == [{"name": "estimates.counts", "a": 0.5, "b": None}]


def test_provenance_that_differs_is_listed(run):
    made = {
        "commit": "bbbb",
        "device": {"platform": "gpu", "kind": "H"},
        "versions": {"jax": "0.11.0", "numpy": "2.4.6"},
        "seed": 1,
        "config": "# Others:\nTOKENS = 20\nplayers.model.name = 'a'\n",
        "date": "2026-02-02",
    }
    document = run([RECORD], [record(provenance=made)], "--json")
    (row,) = document["rows"]
    assert [tuple(one.values()) for one in row["provenance"]] == [
        ("commit", "aaaa", "bbbb"),
        ("device.platform", "cpu", "gpu"),
        ("device.kind", "cpu", "H"),
        ("versions.jax", "0.10.2", "0.11.0"),
        ("seed", 0, 1),
        ("config", "TOKENS = 10", None),
        ("config", None, "TOKENS = 20"),
    ]
    text = run([RECORD], [record(provenance=made)])
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
    assert found(run([RECORD, newer], [newer], "--json"), "alpha")["a"] == 0.9


def test_a_torn_last_line_is_told_and_left_out(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    write(path, RECORD, end='{"row": "torn", "measu')
    assert compare.read(path) == {"small_t0_b1": RECORD}
    assert f"{path}, line 2: torn" in capsys.readouterr().err


def test_no_shared_row_names_what_there_is(refused, tmp_path):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(a, RECORD)
    write(b, record(row="other"))
    message = refused(a, b)
    assert "A has small_t0_b1" in message and "B has other" in message
    assert "the row 'third'" in refused(a, a, "--row", "third")


def test_out_keeps_what_is_printed(run, tmp_path):
    path = tmp_path / "out.txt"
    assert run([RECORD], [RECORD], "--out", str(path)) == path.read_text()


def test_help_says_how_an_interval_becomes_an_error(capsys):
    with pytest.raises(SystemExit):
        compare.main(["--help"])
    assert "(hi - lo) / (2 * 1.96)" in capsys.readouterr().out
