"""Weights that do not fit are refused before any of them is read."""

import jax
import numpy as np
import pytest

from specjax import checkpoints
from specjax.checkpoints import memory
from specjax.checkpoints.archive import Archive, Source
from tests.support.checkpoint_folders import read_nothing, write_folder

SHAPES = {
    "w": jax.ShapeDtypeStruct((30_000, 50_000), np.dtype("float32")),
    "b": jax.ShapeDtypeStruct((50_000,), np.dtype("float32")),
}
STORED = {name: jax.ShapeDtypeStruct(x.shape, np.float16) for name, x in SHAPES.items()}
SOURCES = {name: Source(name) for name in SHAPES}
HELD = Archive(STORED, None, "here")


class Device:
    platform, device_kind = "gpu", "NVIDIA H100"


def check(dtype="float32", sharding=None):
    memory.check("mine", HELD, SOURCES, SHAPES, dtype=dtype, sharding=sharding)


def set_free_memory(monkeypatch, free, where="memory"):
    monkeypatch.setattr(memory, "available", lambda device: (free, where))


def test_what_fits_by_a_byte_and_what_does_not(monkeypatch):
    """While the largest array is read, memory holds it twice more: as stored and as
    cast."""
    weights, reading = 4 * (1_500_000_000 + 50_000), 6 * 1_500_000_000
    set_free_memory(monkeypatch, weights + reading)
    check()
    set_free_memory(monkeypatch, weights + reading - 1)
    with pytest.raises(ValueError) as caught:
        check()
    assert str(caught.value) == (
        "mine needs 15.0 GB of memory in float32 and 15.0 GB are free: take 3.0 GB by"
        " --dtype bfloat16 or 1.5 GB by --dtype int8, a smaller model, or more memory"
    )
    check("bfloat16")
    check("int8")
    set_free_memory(
        monkeypatch, weights, "NVIDIA H100"
    )  # what is read waits in another memory
    check()
    set_free_memory(monkeypatch, 2_000_000_000, "NVIDIA H100")
    with pytest.raises(ValueError, match=r"3.0 GB of NVIDIA H100 in bfloat16 .* int8"):
        check("bfloat16")
    check("int8")
    set_free_memory(monkeypatch, 0)
    with pytest.raises(ValueError, match=r"take fewer other programs, a smaller"):
        check("int8")
    set_free_memory(monkeypatch, None)
    check()


def test_nothing_is_read_of_a_model_that_does_not_fit(monkeypatch, tmp_path):
    folder = write_folder(tmp_path)
    read_nothing(monkeypatch)
    set_free_memory(monkeypatch, 1000)
    with pytest.raises(ValueError, match=r"^v1_1 needs 0.0 GB of memory in float32"):
        checkpoints.load(folder)


def test_what_the_system_says(tmp_path):
    """The smaller of the machine's and the container's memory counts."""
    file = tmp_path / "meminfo"
    assert memory.machine_memory(file) is None
    file.write_text("MemTotal:  9 kB\nMemAvailable:   7 kB\nSwapFree: 5 kB\n")
    assert memory.machine_memory(file) == 7 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert memory.container_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 250\ninactive_file 40\n")
    assert memory.container_memory(tmp_path) == 740
    old = tmp_path / "old" / "memory"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("500\n")
    (old / "memory.usage_in_bytes").write_text("100\n")
    (old / "memory.stat").write_text("total_inactive_file 1\n")
    assert memory.container_memory(old.parent) == 401


def test_the_less_of_machine_and_container_or_what_an_accelerator_says(monkeypatch):
    for machine, group, wanted in ((7, 9, 7), (7, 5, 5), (None, 5, 5)):
        monkeypatch.setattr(memory, "machine_memory", lambda told=machine: told)
        monkeypatch.setattr(memory, "container_memory", lambda told=group: told)
        assert memory.available(jax.local_devices()[0]) == (wanted, "memory")
    for stats, wanted in (({"bytes_limit": 80, "bytes_in_use": 30}, 50), (None, None)):
        device = Device()
        device.memory_stats = lambda stats=stats: stats
        assert memory.available(device) == (wanted, "NVIDIA H100")


def test_shards_are_held_against_the_devices_that_they_lie_on(monkeypatch):
    """Each of four devices has a quarter of the matrix and all of the vector."""

    class Divided(jax.sharding.Sharding):
        """A sharding that divides the first axis by four for arrays that have two
        axes."""

        devices = tuple(Device() for _ in range(4))
        addressable_devices = property(lambda self: self.devices)

        def shard_shape(self, shape):
            return (shape[0] // 4, *shape[1:]) if len(shape) > 1 else shape

    need = 4 * (1_500_000_000 // 4 + 50_000)
    for sharding in (Divided(), dict.fromkeys(SHAPES, Divided())):
        set_free_memory(monkeypatch, need, "NVIDIA H100")
        check(sharding=sharding)
        set_free_memory(monkeypatch, need - 1, "NVIDIA H100")
        words = r"1.5 GB of NVIDIA H100 in float32 on each of 4 devices .*more devices$"
        with pytest.raises(ValueError, match=words):
            check(sharding=sharding)
        reading = 6 * 1_500_000_000 // 4  # one shard, in the memory that it lies in
        set_free_memory(monkeypatch, need + reading)
        check(sharding=sharding)
        set_free_memory(monkeypatch, need + reading - 1)
        with pytest.raises(ValueError, match=r"GB of memory in float32 on each of 4"):
            check(sharding=sharding)
