"""Recordings are prompts of `specjax measure`, `audit` and `microscope`."""

import json

import pytest

from specjax import drafts, pretrained
from specjax.cli import audit, measure, microscope
from specjax.measure import jsonl
from specjax.speech import logmel, spoken_prompts
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
FILES = "a.wav", "sub/b.wav"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heard")
    (folder / "sub").mkdir()
    for seed, name in enumerate(FILES):
        sound.write(folder / name, speech_folders.sound(2.0, seed), logmel.RATE)
    lines = [json.dumps({"audio": name, "language": "en"}) for name in FILES]
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder


FLAGS = {
    audit: "--gamma 2 --tokens 60 --length 8 --batch 4",
    measure: "--gammas 2 --tokens 8 --texts 2 --rounds 1 --ends",
    microscope: "--gammas 2 --dtype float32 --texts 2 --tokens 6",
}
SAYS = {
    audit: "impossible tokens: 0",
    measure: " costs most",
    microscope: "Nothing differs",
}
CASES = (measure, "draft"), (audit, "apart"), (microscope, "few")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "kind"), CASES)
def test_a_command_decodes_them(names, place, tmp_path, capsys, command, kind):
    asked = ["--target", names["target"], "--draft", names[kind]]
    asked += ["--data", str(place / "data.jsonl"), *FLAGS[command].split()]
    asked += ["--out", str(tmp_path / "a.jsonl")] if command is measure else []
    assert command.main(asked) == 0
    assert SAYS[command] in capsys.readouterr().out
    if command is measure:
        (record,) = jsonl.read(tmp_path / "a.jsonl")
        measured = record["measured"]
        assert 0 < measured["alpha"] <= 1 and measured["encodes"]
        assert measured["same_greedy_texts"] == 2


REFUSED = [
    ('{"prompt": "a"}', 'line 1: write {"audio": file}'),
    ('{"audio": 3}', "audio must be the name of a file; got 3"),
    ('{"audio": "absent.wav"}', "there is no file "),
    ('{"audio": "long.wav"}', "has 4.0 s and target reads 3 s at once"),
    ('{"audio": "a.wav", "language": "xx"}', "no language 'xx'"),
    ("", 'is empty: write {"audio": file}'),
]


def test_lines_are_recordings_and_what_is_none_is_named(names, place):
    sound.write(place / "long.wav", speech_folders.sound(4.0), logmel.RATE)
    both = (pretrained.load(names[side]) for side in ("target", "draft"))
    pair = drafts.pair(*both)
    _, read = spoken_prompts.read(place / "data.jsonl", pair)
    assert len(read.tokens) == len(read.inputs) == 2
    for line, message in REFUSED:
        (place / "bad.jsonl").write_text(line)
        with pytest.raises(ValueError, match="bad") as error:
            spoken_prompts.read(place / "bad.jsonl", pair)
        assert message in str(error.value)
