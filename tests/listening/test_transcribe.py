"""`specjax transcribe`: what it prints and writes, and what it refuses."""

import json
import runpy
import sys

import pytest

from specjax.listening import transcribe
from specjax.speech import logmel
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    sound.write(folder / "a.flac", speech_folders.sound(2.0), logmel.RATE)
    (folder / "bad.wav").write_bytes(b"no sound")
    return folder


@pytest.fixture(scope="module")
def pair(place) -> list[str]:
    names = speech_folders.folders(place)
    return ["--target", names["target"], "--draft", names["draft"]]


def test_texts_are_printed_and_written_and_a_bad_file_ends_alone(
    place, pair, capsys, monkeypatch
):
    files = [str(place / name) for name in ("bad.wav", "a.flac")]
    greedy = ["--temperature", "0", "--gamma", "3", "--language", "en"]
    out = place / "out"
    asked = [*files, *pair, *greedy, "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["specjax", "transcribe", *asked])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("specjax", run_name="__main__")
    assert ended.value.code == 1
    printed = capsys.readouterr()
    told = json.loads((out / "a.json").read_text())
    texts = [segment["text"].strip() for segment in told["segments"]]
    head, *lines = printed.out.splitlines()
    assert head == f"== {place / 'a.flac'}" and lines == texts != []
    assert told["language"] == "en"
    assert (out / "a.txt").read_text().splitlines() == texts
    assert (out / "a.srt").read_text().startswith("1\n00:00:0")
    assert (out / "a.vtt").read_text().startswith("WEBVTT\n")
    assert not list(out.glob("bad*"))
    assert "bad.wav has no sound that libsndfile reads" in printed.err
    assert "alpha 0." in printed.err and "target calls" in printed.err


REFUSED = [
    ("a.flac --format pdf --out FOLDER", "no format 'pdf': choose of txt"),
    ("a.flac --format srt", "name their folder by --out"),
    ("a.flac --chunked --format srt --out FOLDER", "srt needs times"),
    ("a.flac x/a.wav --out FOLDER", "two recordings would be written to"),
    ("a.flac --out FOLDER/a.flac", "is no folder"),
    ("a.flac --chunked --sequential", "not allowed with"),
    ("a.flac --gamma -1", "--gamma: must be a whole number"),
    ("a.flac --batch 0", "--batch: must be a whole number"),
    ("a.flac --temperatures -1", "--temperatures/--temperature: must be a number"),
    ("a.flac --target code_target", "code_target reads no speech: name a Whisper"),
    ("a.flac --target absent", "no checkpoint at 'absent'"),
    ("", "the following arguments are required: files"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_what_is_typed_wrong_is_told_in_a_line(place, capsys, flags, message):
    with pytest.raises(SystemExit) as ended:
        transcribe.main(flags.replace("FOLDER", str(place)).split())
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert message in printed.err and printed.err.count("\n") == 1


def test_every_flag_has_help():
    for action in transcribe.make_parser()._actions:
        assert action.help, action.option_strings
