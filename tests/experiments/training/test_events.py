"""Curves as events: each point once, of runs that go on too."""

import sys
import types

import pytest

from experiments.training import events


class Writer:
    def __init__(self, folder: str):
        self.folder = folder

    def add_scalar(self, *point) -> None:
        WRITTEN.append((self.folder, *point))

    def flush(self) -> None:
        pass


WRITTEN = []


def test_each_point_is_written_once(tmp_path, monkeypatch, capsys):
    library = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", library)
    runs, to = tmp_path / "runs", tmp_path / "events"
    (runs / "a").mkdir(parents=True)
    curve = runs / "a" / events.CURVE
    curve.write_text('{"step": 5, "loss": 2.5, "valid": 3.0}\n{"step": 10, "lo')

    def goes_on(seconds):
        if len(WRITTEN) > 2:
            raise StopIteration
        curve.write_text(curve.read_text() + 'ss": 1.5}\n')

    monkeypatch.setattr(events.time, "sleep", goes_on)
    with pytest.raises(StopIteration):
        events.main([str(runs), "--to", str(to), "--every", "1"])
    a = str(to / "a")
    first = {(a, "loss", 2.5, 5), (a, "valid", 3.0, 5)}
    assert {*WRITTEN[:2]} == first and WRITTEN[2:] == [(a, "loss", 1.5, 10)]
    to.mkdir()
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for words, told in (
        ((str(tmp_path / "none"), "--to", "x"), "no curve.jsonl below"),
        ((str(runs), "--to", str(to)), "name a new folder"),
        ((str(runs), "--to", str(tmp_path / "new")), "pip install '.[events]'"),
    ):
        with pytest.raises(SystemExit):
            events.main([*words])
        assert told in capsys.readouterr().err
