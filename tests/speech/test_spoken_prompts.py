"""Recordings as prompts: of `specjax measure`, `audit` and `microscope`."""

import json

import pytest

from specjax import sides
from specjax.cli import audit, measure, microscope
from specjax.measure import jsonl
from specjax.speech import logmel, spoken_prompts
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")
FILES = "a.wav", "sub/b.wav"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heard")
    (folder / "sub").mkdir()
    lines = []
    for seed, name in enumerate(FILES):
        sound.write(folder / name, speech_folders.sound(2.0, seed), logmel.RATE)
        lines.append(json.dumps({"audio": name, "language": "en"}))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def names(place):
    return speech_folders.folders(place)


def flags(names, place, kind="draft") -> list[str]:
    both = ["--target", names["target"], "--draft", names[kind]]
    return [*both, "--data", str(place / "data.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["draft", "apart"])
def test_measure(names, place, tmp_path, capsys, kind):
    few = "--gammas 2 --tokens 8 --texts 2 --rounds 1 --ends".split()
    out = tmp_path / "a.jsonl"
    command = [*flags(names, place, kind), *few, "--out", str(out)]
    assert measure.main(command) == 0
    (record,) = jsonl.read(out)
    measured = record["measured"]
    assert 0 < measured["alpha"] <= 1 and measured["encodes"]
    assert measured["same_greedy_texts"] == 2


def test_audit(names, place, capsys):
    few = "--gamma 2 --tokens 60 --length 8 --batch 4".split()
    assert audit.main([*flags(names, place), *few]) == 0
    assert "impossible tokens: 0" in capsys.readouterr().out


@pytest.mark.slow
def test_microscope(names, place, capsys):
    few = "--gammas 2 --dtype float32 --texts 2 --tokens 6".split()
    assert microscope.main([*flags(names, place), *few]) == 0
    assert "Nothing differs" in capsys.readouterr().out


REFUSED = [
    ('{"prompt": "a"}', 'line 1: want {"audio": file}'),
    ('{"audio": 3}', "audio must be the name of a file; got 3"),
    ('{"audio": "absent.wav"}', "no file at "),
    ('{"audio": "long.wav"}', "has 4.0 s and target hears 3 at once"),
    ('{"audio": "a.wav", "language": "xx"}', "no language 'xx'"),
    ("", 'has no line: write {"audio": file}'),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_a_line_that_is_no_recording_is_named(names, place, line, message):
    sound.write(place / "long.wav", speech_folders.sound(4.0), logmel.RATE)
    (place / "bad.jsonl").write_text(line)
    pair = tuple(sides.model(names[side]) for side in ("target", "draft"))
    with pytest.raises(ValueError, match="bad") as error:
        spoken_prompts.read(place / "bad.jsonl", pair)
    assert message in str(error.value)
