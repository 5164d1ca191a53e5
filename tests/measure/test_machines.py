"""Records keep the processor, and the speed of the target alone on it."""

import pytest

from specjax.measure import baseline
from specjax.runtime import processor

X86 = """processor\t: 0
model name\t: Some CPU @ 2.00GHz
flags\t\t: fpu sse4_2 avx2 avx512_vnni made_up

processor\t: 1
model name\t: Another
"""
ARM = "processor: 0\nFeatures: fp asimd i8mm\nCPU part: 0xd40\n"


@pytest.mark.parametrize(
    ("text", "model", "sets"),
    [
        (
            X86,
            "Some CPU @ 2.00GHz",
            ["sse4_2", "avx2", "avx512_vnni"],
        ),
        (ARM, "aarch64", ["asimd", "i8mm"]),
        ("", "aarch64", []),
    ],
)
def test_the_processor_is_named_with_what_it_can_do(
    text, model, sets, tmp_path, monkeypatch
):
    (tmp_path / "cpuinfo").write_text(text)
    known = processor.read_cpuinfo(tmp_path / "cpuinfo")
    monkeypatch.setattr(processor, "read_cpuinfo", lambda: known)
    monkeypatch.setattr(processor.platform, "system", lambda: "Linux")
    monkeypatch.setattr(processor.platform, "processor", lambda: "")
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")
    told = processor.describe.__wrapped__()
    assert (told["model"], told["instruction_sets"]) == (model, sets)
    assert told["cores"] >= 1


def test_a_machine_without_a_list_of_processors_has_an_empty_one(tmp_path):
    assert processor.read_cpuinfo(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("measured", "ms"),
    [
        ({"gamma": [2, 0], "seconds": [1.0, 3.0], "tokens": 1000}, 3.0),
        ({"gamma": [1, 2], "seconds": [1.0, 3.0], "tokens": 1000}, None),
        ({"gamma": 4, "tokens_per_second": {"alone": 50.0, "drafted": 99.0}}, 20.0),
        ({"token_ms_alone": 7.5, "tokens": 3}, 7.5),
        ({"token_ms": 4.4, "gamma": 7}, 4.4),
        ({"alpha": 0.5, "tokens": 10}, None),
    ],
)
def test_the_time_of_a_token_alone_is_found_in_every_kind_of_row(measured, ms):
    assert baseline.token_ms(measured) == ms
