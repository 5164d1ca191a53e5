"""Starts: numbers computed by hand, and the rows of small processes."""

import pytest

from experiments.starts import measure
from experiments.starts.measure import StartSetting

SMALL = StartSetting(rounds=1, new_tokens=4, layers=1, dim=64)


def test_medians_of_cold_and_warm_processes_in_turns(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    seen = []

    def run(environment):
        assert "JAX_COMPILATION_CACHE_DIR" not in environment
        seen.append(environment["SPECJAX_COMPILATION_CACHE"])
        return {"total": [9, 2, 5, 1, 7, 4][len(seen) - 1], "xla": len(seen)}

    got = measure.time_in_turns(run, 3)
    assert seen[::2] == seen[1::2] and len({*seen}) == 3  # a cache for each round
    assert got == {
        "rounds": 3,
        "cold_total": 7,
        "cold_xla": 3,
        "cold_low": 5,
        "cold_high": 9,
        "warm_total": 2,
        "warm_xla": 4,
        "warm_low": 1,
        "warm_high": 4,
    }


@pytest.mark.slow
def test_a_folder_is_written_and_started():
    row = measure.row_of_a_folder("code_target", "copying", setting=SMALL)
    got = row.run()
    assert (
        got["parameters"] == 2 * 8192 * 64 + 64 * (7 * 64 + 3 * 192 - 3 * 64) + 3 * 64
    )
    assert got["draft"] == "copying" and got["target"] == "folder"
    for how in ("cold", "warm"):
        parts = (got[f"{how}_{name}"] for name in ("import", "read", "program", "text"))
        assert got[f"{how}_total"] == pytest.approx(sum(parts))
    assert 0 < got["warm_xla"] < got["cold_xla"] < got["cold_program"]


def test_a_command_until_its_first_line_and_what_fails():
    words = "specjax", "--version"
    row = measure.row_of_a_command(words, setting=SMALL)
    got = row.run()
    assert got["command"] == "specjax --version" and 0 < got["cold_total"] < 60
    with pytest.raises(RuntimeError, match=r"^the command failed: specjax nothing$"):
        measure.row_of_a_command(("specjax", "nothing"), setting=SMALL).run()
    with pytest.raises(RuntimeError, match=r"^the process that was timed failed: "):
        measure.measure_pair("nothing", "copying", SMALL)
    with pytest.raises(ValueError, match=r"^rounds, new_tokens, layers and dim must"):
        measure.row_of_a_pair("code_target", "copying", setting=StartSetting(0))
