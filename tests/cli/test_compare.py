"""`specjax compare` finds the known differences of small files."""

import copy
import json

import pytest

from specjax.cli import compare

MEASURED = {"target": "code_target", "draft": "code_small", "temperature": 0.0}
MEASURED |= {"exactness": "exact law", "batch": 1, "alpha": 0.6, "alpha_se": 0.03}
MEASURED |= {"estimates": {"counts": {"value": 0.5, "se": 0.04}}}
MEASURED["estimates"]["chen_r"] = {"value": 0.4, "se": None}
MEASURED |= {"gamma": [0, 1, 3], "best_gamma": 3, "target_ms": 2.0}
MEASURED |= {"c": [None, 0.06, 0.05], "c_ci": [None, [0.05, 0.07], [0.04, 0.06]]}
MEASURED |= {"v": [1.0, 1.2, 1.5], "v_ci": [[1, 1], [1.1, 1.3], [1.4, 1.6]]}
MEASURED |= {"speedup": [1.0, 1.3, 1.6], "speedup_ci": [[1, 1], [1.2, 1.4], [1.5, 1.7]]}
MEASURED |= {"best_speedup": 1.6, "best_speedup_ci": [1.5, 1.7]}
MEASURED |= {"target_ms_ci": [1.902, 2.098]}  # a standard error of 0.05
PROVENANCE = {"commit": "aaaa", "dirty": False, "seed": 0, "date": "2026-01-01"}
PROVENANCE |= {"versions": {"jax": "0.10.2", "numpy": "2.4.6"}, "dtype": "float32"}
PROVENANCE |= {"device": {"platform": "cpu", "kind": "cpu"}}
PROVENANCE |= {"config": "# Parameters:\nplayers.model.name = 'a'\nTOKENS = 10\n"}
RECORD = {"row": "small_t0_b1", "table": "table2", "scale": "laptop", "published": None}
RECORD |= {"measured": MEASURED, "provenance": PROVENANCE}


def record(measured=(), provenance=(), **fields) -> dict:
    """Returns RECORD with other fields; `...` removes a measured one."""
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

    def run_compare(a, b, *flags):
        names = [write(tmp_path / f"{x}.jsonl", *y) for x, y in (("a", a), ("b", b))]
        assert compare.main([*names, *flags]) == 0
        text = capsys.readouterr().out
        return json.loads(text) if "--json" in flags else text

    return run_compare


def difference(document, quantity, gamma=None):
    (row,) = document["rows"]
    keys = "quantity", "gamma"
    (entry,) = [x for x in row["compared"] if [x[k] for k in keys] == [quantity, gamma]]
    return entry


def test_intervals_by_hand(run):
    # sqrt(0.03^2 + 0.04^2) = 0.05; and a recorded interval counts as its standard
    # error: 0.05 and 0.025, half widths of 0.098 and 0.049.
    other = {"alpha": 0.7, "alpha_se": 0.04, "target_ms": 2.5}
    other = record(other | {"target_ms_ci": [2.451, 2.549]})
    document = run([RECORD], [other], "--json")
    entry = difference(document, "alpha")
    assert (entry["a"], entry["b"], entry["ratio"]) == (0.6, 0.7, None)
    assert entry["interval"] == pytest.approx([0.1 - 1.96 * 0.05, 0.1 + 1.96 * 0.05])
    assert entry["marked"] and entry["difference"] == pytest.approx(0.1)
    entry, reach = difference(document, "target_ms"), (0.098**2 + 0.049**2) ** 0.5
    assert entry["interval"] == pytest.approx([0.5 - reach, 0.5 + reach])
    assert entry["ratio"] == pytest.approx(1.25)


@pytest.mark.parametrize(("errors", "marked"), [(3, True), (-3, True), (-1, False)])
def test_three_standard_errors_are_marked_and_one_is_not(run, errors, marked):
    other = record({"alpha": 0.6 + errors * 0.03 * 2**0.5})
    document = run([RECORD], [other], "--json")
    assert difference(document, "alpha")["marked"] is marked
    assert document["marked"] == marked
    (line,) = [x for x in run([RECORD], [other]).splitlines() if "  alpha" in x[:7]]
    assert line.endswith("*") is marked


def test_what_is_compared(run, tmp_path):
    document = run([RECORD], [RECORD], "--json")
    assert document["marked"] == 0
    (row,) = document["rows"]
    assert row["unequal"] == row["provenance"] == []
    text = run([RECORD], [RECORD], "--out", str(tmp_path / "out.txt"))
    assert text == (tmp_path / "out.txt").read_text()
    assert "10 comparisons, 0 marked" in text and "about 0.5 of them" in text
    assert "Provenance: the same" in text and "differs" not in text
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
    ({}, {"best_gamma": 1, "batch": 8}, [("batch", 1, 8), ("best_gamma", 3, 1)]),
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
    name, _, _ = unequal[0]
    assert f"  {name} differs: " in run([record(a)], [record(b)])


SEED = {"seed": 9}


def test_a_row_without_errors_must_be_equal_in_everything(run):
    a, b = (RECORD | {"measured": {"alpha": [0, 1], "speed": x}} for x in (1.5, 1.6))
    (row,) = run([a], [b], "--json")["rows"]
    assert row["unequal"] == [{"name": "speed", "a": 1.5, "b": 1.6}]


def test_provenance_that_differs_is_listed(run, monkeypatch):
    elsewhere = {"commit": "bbbb", "device": {"platform": "gpu", "kind": "H"}}
    elsewhere |= {"versions": {"jax": "0.11.0", "numpy": "2.4.6"}, "seed": 1}
    elsewhere |= {"config": "# Others:\nTOKENS = 20\nplayers.model.name = 'a'\n"}
    elsewhere |= {"date": "2026-02-02", "inputs": {"m.safetensors": "0f", "p": "1"}}
    monkeypatch.setitem(PROVENANCE, "inputs", {"m.safetensors": "0e", "p": "1"})
    document = run([RECORD], [record(provenance=elsewhere)], "--json")
    (row,) = document["rows"]
    assert [tuple(entry.values()) for entry in row["provenance"]] == [
        ("commit", "aaaa", "bbbb"),
        ("device.platform", "cpu", "gpu"),
        ("device.kind", "cpu", "H"),
        ("versions.jax", "0.10.2", "0.11.0"),
        ("seed", 0, 1),
        ("inputs.m.safetensors", "0e", "0f"),
        ("TOKENS", "10", "20"),
    ]
    text = run([RECORD], [record(provenance=elsewhere)])
    assert "  commit: aaaa | bbbb\n" in text and "Other devices" in text
    rows, commit = [RECORD, record(row="second")], {"commit": "bbbb"}
    others = record(provenance=commit), record(row="second", provenance=commit | SEED)
    text = run(rows, others)  # what they share is said once
    assert "  commit: aaaa | bbbb\n  seed: 0 | 9 (second)\n" in text
    assert "Other devices" not in text


def test_a_setting_is_told_once_and_flags_of_what_is_printed_never(run):
    a = {"config": "draft = 'copying'\njson = False\nout = 'a'\nseed = 0\n"}
    b = {"config": "draft = 'suffix'\njson = True\nout = 'b'\nseed = 9\n", **SEED}
    text = run([record(provenance=a)], [record(provenance=b)])
    told = "  seed: 0 | 9\n  draft: 'copying' | 'suffix'\n"
    assert text.endswith(f"Provenance differs:\n{told}")


def test_small_differences_keep_their_digits_and_a_busy_machine_is_told(run):
    ends = {"c": [None, 3e-5, 5e-5], "c_ci": [None, [2e-5, 4e-5], [4.99e-5, 5.01e-5]]}
    text = run([record(ends)], [RECORD])
    assert " 3.00e-05 " in text and " 0.0600 " in text
    slow = {"target_ms": 2.5, "target_ms_ci": [2.402, 2.598]}
    said = "one target took 1.25 times as long in B"
    assert said in run([RECORD], [record(slow)])
    near = {"target_ms": 2.2, "target_ms_ci": [2.102, 2.298]}  # 2 standard errors
    for other in (near, slow | {"batch": 8}):
        assert "one target" not in run([RECORD], [record(other)])


def test_one_row_a_file_is_compared_whatever_it_is_called(run):
    document = run([RECORD], [record(row="other")], "--json")
    assert [row["row"] for row in document["rows"]] == ["small_t0_b1 | other"]
    assert document["only_in_a"] == document["only_in_b"] == []


def test_rows_are_matched_by_name_and_their_last_record_counts(run):
    newer = record({"alpha": 0.9})
    a, b = [RECORD, newer, record(row="old")], [record(row="new"), RECORD]
    document = run(a, b, "--json")
    assert (document["only_in_a"], document["only_in_b"]) == (["old"], ["new"])
    assert [row["row"] for row in document["rows"]] == ["small_t0_b1"]
    assert difference(document, "alpha")["a"] == 0.9
    text = run(a, b)
    assert "Only in A: old\n" in text and "Only in B: new\n" in text
    document = run(a, [*a, record(row="new")], "--row", "old", "--json")
    assert [row["row"] for row in document["rows"]] == ["old"]
    assert document["only_in_a"] == []


def test_a_torn_last_line_is_told_and_left_out(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    write(path, RECORD, end='{"row": "torn", "measu')
    assert compare.read(path) == {"small_t0_b1": RECORD}
    assert f"{path}, line 2: torn" in capsys.readouterr().err
