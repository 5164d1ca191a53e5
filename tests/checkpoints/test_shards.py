"""Weights go straight to the devices of a mesh, and training states from mesh to mesh.

Both are done in a process that has eight devices, see `tests.support.shards`.
"""

from functools import partial

import pytest

from tests.support import devices, shards

told = partial(devices.told, "tests.support.shards")


def test_every_format_is_read_straight_to_its_shards(tmp_path):
    """They are those that would be placed afterwards, each number was read once, and a
    pair writes the same texts."""
    found = told("loaded", str(tmp_path))
    assert found.keys() == {"huggingface", "zoo", "t5x", "scanned", "orbax"}
    assert len([*(tmp_path / "huggingface").glob("model-*")]) > 1
    for name, each in found.items():
        assert each == {"same": True, "read": 1.0, "texts": True}, name


@pytest.mark.slow
def test_a_training_state_goes_on_under_another_mesh(tmp_path):
    """Saved on four devices it goes on over others and on one, and from one on four;
    and what a full disk does not take leaves what was kept before."""
    found = told("kept", str(tmp_path))
    pairs = [(shards.KEPT, other) for other in shards.OTHERS] + [("", shards.KEPT)]
    assert found["same"] == {f"{at} to {other}": True for at, other in pairs}
    assert found["full"].keys() == {shards.KEPT, ""}
    for line, steps in found["full"].values():
        assert "cannot be written (File too large): free some space" in line
        assert "\n" not in line and steps == [3, 7]
