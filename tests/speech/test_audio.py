"""Sound from any file becomes one channel at one rate, and errors name bad files."""

import os
import struct
import sys

import numpy as np
import pytest

from specjax.speech import audio, containers

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

SECONDS = 3
FORMATS = {"wav": "PCM_16", "flac": "PCM_16", "ogg": "VORBIS", "mp3": None}


def tone(rate: int, seconds: float = SECONDS) -> np.ndarray:
    time = np.arange(int(rate * seconds)) / rate
    return 0.5 * np.sin(2 * np.pi * 440 * time)


def save(path, samples, rate=audio.RATE, subtype=None):
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_every_rate_becomes_16_kilohertz(rate, tmp_path):
    heard = audio.read(save(tmp_path / "a.wav", tone(rate), rate, "FLOAT"))
    expected = tone(audio.RATE)
    assert heard.samples.dtype == np.float32 and heard.notes == ()
    assert abs(len(heard.samples) - len(expected)) <= 1
    inner = slice(1000, len(expected) - 1000)
    assert np.abs(heard.samples[inner] - expected[inner]).max() < 1e-3


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_heard(kind, tmp_path):
    if kind.upper() not in soundfile.available_formats():
        pytest.skip(f"this libsndfile writes no {kind}")
    path = save(tmp_path / f"a.{kind}", tone(44_100), 44_100, FORMATS[kind])
    heard = audio.read(path).samples
    assert abs(len(heard) / audio.RATE - SECONDS) < 0.1
    power = np.abs(np.fft.rfft(heard[:16_000]))
    assert power.argmax() == 440


def test_channels_are_averaged(tmp_path):
    both = np.stack([tone(16_000), np.zeros(48_000)], 1)
    heard = audio.read(save(tmp_path / "a.wav", both, subtype="FLOAT"))
    np.testing.assert_allclose(heard.samples, both[:, 0] / 2, atol=1e-6)


@pytest.mark.parametrize("rate", [16_000, 11_025])
def test_blocks_are_the_whole(rate, tmp_path):
    path = save(tmp_path / "a.wav", tone(rate, 7.3), rate)
    levels = []
    parts = list(audio.blocks(path, 2, levels.append))
    assert [len(part) for part in parts[:-1]] == [32_000] * 3
    np.testing.assert_array_equal(np.concatenate(parts), audio.read(path).samples)
    (level,) = levels
    assert level.size == int(7.3 * rate) and level.peak == pytest.approx(0.5, abs=1e-3)


def test_what_is_odd_is_noted(tmp_path):
    for samples, told in (
        (np.zeros(16_000), "is silent"),
        (np.clip(4 * tone(16_000), -1, 1), "is clipped"),
        (np.stack([tone(16_000), -tone(16_000)], 1), "cancel"),
    ):
        (note,) = audio.read(save(tmp_path / "a.wav", samples)).notes
        assert told in note


@pytest.fixture
def faulty(tmp_path):
    """A folder of files with one fault each, by their names."""
    (tmp_path / "text.wav").write_text("These are words.\n" * 9)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "folder.wav").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    nothing = save(tmp_path / "nothing.wav", np.zeros(0)).read_bytes()
    words = b"LIST" + struct.pack("<I", 4) + b"INFO"
    (tmp_path / "words.wav").write_bytes(nothing + words)
    save(tmp_path / "short.wav", np.zeros(100))
    save(tmp_path / "slow.wav", np.zeros(1000), 100)
    samples = tone(16_000)
    samples[24_000] = np.nan
    save(tmp_path / "nan.wav", samples, subtype="FLOAT")
    return tmp_path


FAULTS = {
    "absent": "there is no file",
    "text": "no sound that libsndfile can read",
    "empty": "is empty",
    "nothing": "has no samples",
    "words": "has no samples",
    "short": "shorter than 0.01 s",
    "slow": "100 samples a second",
    "folder": "is a folder",
    "pipe": "is not a file",
    "nan": "first 1.50 s from its start",
}


def test_a_bad_file_is_told_in_one_line(faulty):
    for kind, told in FAULTS.items():
        with pytest.raises(ValueError, match=told) as error:
            audio.read(faulty / f"{kind}.wav")
        assert "\n" not in str(error.value) and f"{kind}.wav" in str(error.value)


ZERO, CUT = (
    "has 0 samples according to its header: the 3.0 s",
    "is cut off: it has 3.0 s",
)
HEADERS = {
    "ffmpeg's pipe": (0xFFFFFFFF, 0xFFFFFFFF, None),
    "sox's pipe": (0x7FFFFFFF + 37, 0x7FFFFFFF - 7, None),
    "an old arecord's": (0x80000024, 0x80000000, None),
    "never finished": (0, 0, ZERO),
    "half finished": (96_036, 0, ZERO),
    "planned": (288_036, 288_000, f"{CUT} and its header says 9.0 s"),
}


LISTED = b"LIST" + struct.pack("<I", 3) + b"abc\0"


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize(("subtype", "listed"), [("PCM_16", b""), ("FLOAT", LISTED)])
def test_sound_is_read_whatever_the_header_says(kind, subtype, listed, tmp_path):
    path = save(tmp_path / "a.wav", tone(16_000), subtype=subtype)
    whole, content = audio.read(path).samples, path.read_bytes()
    riff, data, note = HEADERS[kind]
    data *= 2 if data == 288_000 and subtype == "FLOAT" else 1
    head, sound = content.split(b"data", 1)
    sizes = struct.pack("<I", riff), struct.pack("<I", data)
    parts = [head[:4], sizes[0], head[8:], listed, b"data", sizes[1], sound[4:]]
    path.write_bytes(b"".join(parts))
    heard = audio.read(path)
    np.testing.assert_array_equal(heard.samples, whole)
    assert len(heard.notes) == (note is not None)
    assert note is None or note in heard.notes[0]


CONTAINERS = {"rf64": "wav", "aiff": "aiff", "au": "au", "w64": "w64"}
CONTAINERS |= {"ogg": "ogg", "opus": "ogg", "mp3": "mp3"}
CODED = {"ogg": "VORBIS", "opus": "OPUS", "mp3": "MPEG_LAYER_III"}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container_that_was_cut_is_told_and_no_whole_one(kind, tmp_path):
    name = kind if kind == "rf64" else CONTAINERS[kind]
    if name.upper() not in soundfile.available_formats():
        pytest.skip(f"this libsndfile writes no {kind}")
    path, form = tmp_path / f"a.{CONTAINERS[kind]}", dict(format=name.upper())
    noise = np.random.default_rng(0).normal(0, 0.1, 99_000)
    soundfile.write(path, noise, 16_000, subtype=CODED.get(kind, "PCM_16"), **form)
    assert audio.read(path).notes == ()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    (note,) = audio.read(path).notes
    assert "is cut off" in note


def test_frames_of_mp3_without_a_count_are_gone_through(tmp_path):
    """The file has a constant bit rate, as recorders stream it: 128 kbit/s, 44,100
    samples per second."""
    frame = bytes([0xFF, 0xFB, 0x90, 0x00]).ljust(417, b"\0")
    tagged = b"ID3\4\0\0\0\0\1\2" + bytes(130)
    for content, cut in {
        (frame * 9, False),
        (tagged + frame * 9, False),
        (frame * 9 + b"TAG".ljust(128, b"\0"), False),
        (frame * 9 + frame[:100], True),
    }:
        (tmp_path / "a.mp3").write_bytes(content)
        assert containers.find(tmp_path / "a.mp3").cut == cut
    (tmp_path / "a.mp3").write_bytes(b"no sound at all")
    assert containers.find(tmp_path / "a.mp3") is None


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_a_cut_file_is_heard_up_to_its_cut(kind, tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.1, 99_000)
    path = save(tmp_path / f"a.{kind}", noise)
    whole, content = audio.read(path).samples, path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    heard = audio.read(path)
    (note,) = heard.notes
    assert "is cut off" in note and "\n" not in note
    count = len(heard.samples)
    assert 44_000 < count < 49_501
    np.testing.assert_array_equal(heard.samples, whole[:count])
    if kind == "flac":
        path.write_bytes(content[:200])  # a header, and no frame
        with pytest.raises(ValueError, match="is damaged at its start"):
            audio.read(path)


def test_a_missing_library_names_its_extra(tmp_path, monkeypatch):
    path = save(tmp_path / "a.wav", tone(16_000))
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(ValueError, match=r"pip install 'specjax\[speech\]'$"):
        audio.read(path)
    with pytest.raises(ValueError, match="more than 0"):
        audio.blocks(path, 0)
