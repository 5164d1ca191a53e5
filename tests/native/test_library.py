"""The library is compiled once for a machine, or one line says why it is not."""

import ctypes
import os
import sys
import tempfile
from pathlib import Path

import pytest

from specjax.native import library, product
from specjax.runtime.cache_folder import NOWHERE, cache_folder


def rows(path):
    return ctypes.cdll.LoadLibrary(str(path)).thin_most_rows()


def raise_runtime_error(*arguments):
    raise RuntimeError("of XLA")


def forget():
    library.compiled_library.cache_clear()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A cache of its own, and nothing known of the machine."""
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(library, "register", rows)  # XLA has one
    forget()
    yield
    forget()  # the next call asks the machine's own cache again


@pytest.fixture
def compiler():
    if library.compiler() is None:
        pytest.skip("no C++ compiler")
    return library.compiler()


def script(path: Path, said: bytes) -> str:
    path.write_bytes(b"#!/bin/sh\n" + said)
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_it_is_compiled_once_and_again_if_it_is_damaged(
    tmp_path, compiler, monkeypatch
):
    """A damaged library is never loaded: a part of it would end the process."""
    assert library.problem() is None
    [path] = (tmp_path / "cache" / "native").iterdir()
    good, asked, commands = path.read_bytes(), [], len(library.UNITS) + 1

    def copy_library(command, timeout):
        asked.append(command)
        Path(command[-1]).write_bytes(good)

    place = path.with_name(path.name.rpartition("-")[0])
    monkeypatch.setattr(library, "library_prefix", lambda command: place)
    monkeypatch.setattr(library, "run_command", copy_library)
    for number, bad in enumerate((good, b"", good[:9000], good[:-1] + b"?")):
        path.unlink()  # what is loaded keeps what it was
        path.write_bytes(bad)
        forget()
        assert library.problem() is None and path.read_bytes() == good
        assert [*path.parent.iterdir()] == [path] and len(asked) == number * commands


def test_another_processor_source_or_compiler_has_a_library_of_its_own(
    tmp_path, compiler, monkeypatch
):
    def place(command=compiler):
        return library.library_prefix(command)

    places = [place(), place([*compiler, "-O0"])]
    (tmp_path / "other.cc").write_text("// nothing")
    for name, other in (
        ("fingerprint", lambda: "another"),
        ("FLAGS", (*library.FLAGS, "-DNDEBUG")),
        ("UNITS", (tmp_path / "other.cc",)),
    ):
        monkeypatch.setattr(library, name, other)
        places.append(place())
    for said in b"echo 1", b"echo 2":  # the same command, another version
        places.append(place([script(tmp_path / "compiler", said)]))
    assert len(set(places)) == 7


def test_a_machine_without_a_compiler_decodes_by_xla_and_is_told_once(
    monkeypatch, caplog
):
    monkeypatch.setattr(library.shutil, "which", lambda name: None)
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    product.warn_once.cache_clear()
    assert [product.in_use() for _ in range(3)] == ["xla"] * 3
    [record] = caplog.records
    assert "no C++ compiler was found" in record.getMessage()
    assert "pip install ziglang" in record.getMessage()
    product.warn_once.cache_clear()


BAD = b"echo \xfc; echo 'error: \xfc' >&2; test $# = 1\n"  # no UTF-8


@pytest.mark.parametrize("command", ["false", "nothing", "true", "bad", "g++ 'O3"])
def test_a_compiler_that_makes_nothing_is_named(tmp_path, monkeypatch, command):
    command = script(tmp_path / command, BAD) if command == "bad" else command
    monkeypatch.setenv("CXX", command)
    problem = library.problem()
    assert command in problem and "\n" not in problem
    assert "pip install ziglang" in problem or "is not a command" in problem


def test_an_error_of_the_compiler_is_quoted(tmp_path, compiler, monkeypatch):
    (tmp_path / "other.cc").write_text("int main() { return nothing; }")
    monkeypatch.setattr(library, "UNITS", (tmp_path / "other.cc",))
    monkeypatch.setenv("CXX", " ")  # stands for none
    assert "error: " in library.problem()
    assert not [*(tmp_path / "cache" / "native").iterdir()]


def test_a_cache_that_cannot_be_written_is_told(compiler, monkeypatch):
    monkeypatch.setenv("SPECJAX_CACHE", __file__)
    assert __file__ in library.problem()
    assert library.problem().endswith(library.ELSEWHERE)


def test_whatever_loading_raises_leaves_decoding_to_xla(compiler, monkeypatch):
    monkeypatch.setattr(library, "compile_to", lambda command, place: place)
    for name, problem in (
        ("register", "cannot be loaded (of XLA)"),
        ("library_prefix", "compiled no library"),
    ):
        monkeypatch.setattr(library, name, raise_runtime_error)
        library.compiled_library.cache_clear()
        assert problem in library.problem()


def test_the_folder_is_the_named_one_the_users_or_a_private_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SPECJAX_CACHE")
    assert cache_folder() == tmp_path / "xdg/specjax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home/.cache/specjax"
    private = tmp_path / f"specjax-{os.getuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", "/dev/null/home")  # no folder can be made there
    assert cache_folder() == private and private.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("HOME")
    monkeypatch.setitem(sys.modules, "pwd", None)  # nor is anything known of the user
    assert cache_folder() == private
    private.chmod(0o777)  # another user may have written there
    assert cache_folder().parent == tmp_path and cache_folder() != private
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    assert cache_folder() == NOWHERE
