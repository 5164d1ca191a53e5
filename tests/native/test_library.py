"""The compiled library: made once for a machine, or a line says why there is none."""

import ctypes
import os
import sys
import tempfile
from pathlib import Path

import pytest

from specjax.native import library, product
from specjax.native.cache_folder import NOWHERE, cache_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A cache of its own, and nothing known of the machine."""
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(library, "register", rows)  # XLA has one
    forget()
    yield
    forget()  # the next asks anew, of the machine's own cache


def forget():
    library.loaded.cache_clear()
    library.loaded_int8.cache_clear()


def rows(path, functions):
    del functions
    return ctypes.cdll.LoadLibrary(str(path)).thin_most_rows()


@pytest.fixture
def compiler():
    if library.compiler() is None:
        pytest.skip("no C++ compiler")
    return library.compiler()


def compiled(folder):
    return list((folder / "cache" / "native").iterdir())


def test_it_is_compiled_once_and_again_if_it_is_damaged(
    tmp_path, compiler, monkeypatch
):
    """Never loaded either: of a part of it the process would end."""
    assert library.problem() is None
    [path] = compiled(tmp_path)
    good, asked = path.read_bytes(), []

    def compile_again(command, timeout):
        asked.append(command)
        Path(command[-1]).write_bytes(good)

    place = path.with_name(path.name.rpartition("-")[0])
    monkeypatch.setattr(library, "place_of", lambda command, sources: place)
    monkeypatch.setattr(library, "ran", compile_again)
    for number, bad in enumerate((good, b"", good[:9000], good[:-1] + b"?")):
        path.unlink()  # what is loaded keeps what it was
        path.write_bytes(bad)
        library.loaded.cache_clear()
        assert library.problem() is None
        assert compiled(tmp_path) == [path] and path.read_bytes() == good
        assert len(asked) == number


def test_products_in_eight_bits_have_a_library_of_their_own(compiler, monkeypatch):
    asked = []

    def note(command, place, source):
        asked.append((place.name.rpartition("-")[0], source))

    monkeypatch.setattr(library, "compile_to", note)
    library.loaded(), library.loaded_int8()
    assert asked == [("thin", library.SOURCE), ("thin_int8", library.INT8_SOURCE)]
    assert library.sources("float32", "bfloat16") == (library.SOURCE,)
    assert library.sources("int8") == (library.SOURCE, library.INT8_SOURCE)


def test_another_processor_source_or_compiler_has_a_library_of_its_own(
    tmp_path, compiler, monkeypatch
):
    def place(command=compiler):
        return library.place_of(command, (library.INT8_SOURCE, library.SOURCE))

    places = [place()]
    monkeypatch.setattr(library, "processor", lambda: "another")
    places.append(place())
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-DNDEBUG"))
    places.append(place())
    other = tmp_path / "thin.cc"
    other.write_text("// nothing")
    monkeypatch.setattr(library, "SOURCE", other)
    places.append(place())
    places.append(place([*compiler, "-O0"]))
    for number in 1, 2:  # the same command, another version
        script = tmp_path / "compiler"
        script.write_text(f"#!/bin/sh\necho version {number}\n")
        script.chmod(0o755)
        places.append(place([str(script)]))
    assert len(set(places)) == 7


def test_a_machine_without_a_compiler_is_told_the_remedy(monkeypatch):
    monkeypatch.setattr(library.shutil, "which", lambda name: None)
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    assert "pip install ziglang" in library.problem()


def test_a_machine_without_one_decodes_by_xla_and_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(library.shutil, "which", lambda name: None)
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    product._warn.cache_clear()
    assert [product.in_use() for _ in range(3)] == ["xla"] * 3
    [record] = caplog.records
    assert "no C++ compiler was found" in record.getMessage()
    product._warn.cache_clear()


@pytest.mark.parametrize("command", ["false", "no-such-compiler", "true", "latin1"])
def test_a_compiler_that_makes_nothing_is_named_with_the_remedy(
    tmp_path, monkeypatch, command
):
    if command == "latin1":  # what it says of itself, and of what is wrong
        path = tmp_path / command
        path.write_bytes(b"#!/bin/sh\necho \xfc; echo 'error: \xfc' >&2; test $# = 1\n")
        path.chmod(0o755)
        command = str(path)
    monkeypatch.setenv("CXX", command)
    problem = library.problem()
    assert problem.startswith(command)
    assert "pip install ziglang" in problem
    assert "\n" not in problem


def test_a_command_that_is_none_is_named_and_nothing_stands_for_none(monkeypatch):
    monkeypatch.setenv("CXX", "g++ 'O3")
    assert library.problem().startswith('CXX="g++ \'O3" is no command')
    monkeypatch.setenv("CXX", " ")
    blank = library.compiler()
    monkeypatch.delenv("CXX")
    assert blank == library.compiler()


def test_an_error_of_the_compiler_is_quoted(tmp_path, compiler, monkeypatch):
    broken = tmp_path / "thin.cc"
    broken.write_text("int main() { return nothing; }")
    monkeypatch.setattr(library, "SOURCE", broken)
    assert "error: " in library.problem()
    assert not compiled(tmp_path)


def test_a_cache_that_cannot_be_written_is_told(tmp_path, compiler, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "file"))
    assert "file" in library.problem()
    assert library.problem().endswith(library.ELSEWHERE)


def test_whatever_loading_raises_leaves_decoding_to_xla(
    tmp_path, compiler, monkeypatch
):
    def fails(path, functions):
        raise RuntimeError("of XLA")

    monkeypatch.setattr(library, "compile_to", lambda command, place, source: place)
    monkeypatch.setattr(library, "register", fails)
    assert "cannot be loaded (of XLA)" in library.problem()
    library.loaded.cache_clear()
    monkeypatch.setattr(library, "place_of", fails)
    assert "made no library" in library.problem()


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
