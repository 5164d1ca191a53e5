"""Compiled programs are kept on disk, if the user may write there and wants it."""

import os

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from specjax.runtime import compilation_cache

FOLDER, LEAST, MOST = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_compilation_cache_max_size",
)


@pytest.fixture
def unset(monkeypatch, tmp_path):
    """JAX's settings as nobody set them, and the user's folder among temporary ones."""
    before = {name: jax.config.values[name] for name in (FOLDER, LEAST, MOST)}
    for name, value in {FOLDER: None, LEAST: 1.0, MOST: -1}.items():
        jax.config.update(name, value)
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(compilation_cache.VARIABLE, raising=False)
    compilation_cache.open_folder.cache_clear()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.open_folder.cache_clear()
    reset_cache()


def test_jax_keeps_programs_in_the_users_folder_of_this_processor(unset, monkeypatch):
    compilation_cache.turn_on()
    (folder,) = (unset / "cache" / "programs").iterdir()
    assert jax.config.values[FOLDER] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert 0 < jax.config.values[MOST] <= 2**30 and jax.config.values[LEAST] < 1
    # Another processor has another folder, of this user's own choice too.
    monkeypatch.setenv(compilation_cache.VARIABLE, str(unset / "mine"))
    monkeypatch.setattr(compilation_cache, "fingerprint", lambda: "another")
    jax.config.update(FOLDER, None)
    compilation_cache.turn_on()
    (other,) = (unset / "mine").iterdir()
    assert jax.config.values[FOLDER] == str(other) and other.name != folder.name


@pytest.mark.parametrize("why", ["asked", "off", "disabled", "unwritable"])
def test_it_stays_as_it_is(unset, monkeypatch, why):
    """JAX already has a folder, the user does not want one, or none can be created."""
    if why == "asked":
        jax.config.update(FOLDER, str(unset / "own"))
    elif why == "off":
        monkeypatch.setenv(compilation_cache.VARIABLE, "OFF")
    elif why == "disabled":
        jax.config.update("jax_enable_compilation_cache", False)
    else:
        monkeypatch.setenv("SPECJAX_CACHE", __file__)
    before = jax.config.values[FOLDER]
    try:
        compilation_cache.turn_on()
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert jax.config.values[FOLDER] == before and not list(unset.iterdir())


@pytest.mark.parametrize("whose", ["owner", "group"])
def test_nothing_is_kept_for_a_user_without_a_name(unset, monkeypatch, whose):
    """OpenShift has such users: JAX would otherwise warn for every program."""

    def nameless(path):
        raise KeyError("uid not found: 54321")

    monkeypatch.setattr(compilation_cache.Path, whose, nameless)
    compilation_cache.turn_on()
    assert jax.config.values[FOLDER] is None


def test_what_was_cut_off_or_is_not_used_any_more_is_removed(unset):
    compilation_cache.turn_on()
    (folder,) = (unset / "cache" / "programs").iterdir()
    for name in ("whole-cache", "whole-atime", "torn-cache"):
        (folder / name).write_bytes(b"program")
    old = folder.with_name("0" * 16)
    others = old, folder.with_name("1" * 16), folder.with_name("mine")
    for other in others:
        other.mkdir()
        (other / compilation_cache.LOCK).touch()
    for other in (old, others[2]):
        os.utime(other, (0, 0))
    compilation_cache.open_folder.cache_clear()
    jax.config.update(FOLDER, None)
    compilation_cache.turn_on()
    assert {path.name for path in folder.glob("*-*")} == {"whole-cache", "whole-atime"}
    assert [path.exists() for path in others] == [False, True, True]


def test_a_program_is_read_back_and_the_oldest_give_way(unset, monkeypatch):
    """JAX has forgotten it, as in another process."""
    monkeypatch.setattr(compilation_cache, "SHORTEST", 0.0)
    hits, heard = [], []
    hear = lambda name, **_: heard.append(name.endswith("/cache_hits"))  # noqa: E731
    jax.monitoring.register_event_listener(hear)
    try:
        for _ in range(2):
            reset_cache()
            jax.clear_caches()
            compilation_cache.turn_on()
            assert jax.jit(lambda x: 3 * x + 1)(1) == 4
            hits.append(sum(heard))
    finally:
        jax.monitoring.unregister_event_listener(hear)
    (folder,) = (unset / "cache" / "programs").iterdir()
    assert hits[0] == 0 < hits[1] and [*folder.glob("jit__lambda*-cache")]
    assert [*folder.glob("*-atime")]  # what is removed is what was not used for longest
