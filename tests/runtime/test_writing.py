"""A file keeps its old content until the new one is complete; a full disk is an error
of one line."""

import errno
import os

import pytest

from specjax.runtime import console, writing


def test_a_file_is_there_whole_or_as_it_was(tmp_path, monkeypatch):
    path, link = tmp_path / "made" / "a.txt", tmp_path / "link"
    writing.write_whole(path, ["naïve ", b"text\n"])
    link.symlink_to(path)
    writing.write_whole(link, b"new\n")
    assert link.is_symlink() and path.read_text() == "new\n"

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"^{path} cannot be written \(No space .*free"):
        writing.write_whole(path, b"torn")
    assert path.read_text() == "new\n" and os.listdir(path.parent) == ["a.txt"]


def test_a_full_device_is_one_line_with_its_path_and_what_is_kept(capsys, monkeypatch):
    monkeypatch.setattr(console, "leave", lambda code: print(f"code {code}"))
    for write in (
        lambda: writing.write_whole(writing.Path("/dev/full"), b"x"),
        lambda: open("/dev/full", "wb", buffering=0).write(b"x"),
    ):
        with console.handle_stops(lambda: "start the same command again to continue"):
            write()
        told = capsys.readouterr()
        assert told.out == "code 1\n" and told.err.count("\n") == 1
        assert "No space left on device" in told.err
        assert told.err.endswith("; start the same command again to continue\n")
    assert str(writing.write_error("a", PermissionError(13, "Permission denied"))) == (
        "a cannot be written (Permission denied): check its folder, and try again"
    )
