"""Heads in pickles of PyTorch are those in safetensors."""

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from specjax import drafts
from tests.support import head_folders

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("write", "pickled"),
    [
        (head_folders.write_eagle, "pytorch_model.bin"),
        (head_folders.write_medusa, "medusa_lm_head.pt"),
        (lambda folder: head_folders.write_eagle3(folder, "midlayer"), None),
    ],
)
def test_a_pickle_holds_the_same_head(write, pickled, tmp_path):
    folder, target = write(tmp_path / "head"), head_folders.target()
    wanted = drafts.load_draft(str(folder), target)
    (file,) = folder.glob("*.safetensors")
    tensors = {name: torch.from_numpy(x) for name, x in load_file(file).items()}
    torch.save(tensors, folder / (pickled or "pytorch_model.bin"))
    file.unlink()
    found = drafts.load_draft(str(folder), target)
    assert found.name == wanted.name
    jax.tree.map(np.testing.assert_array_equal, found.params, wanted.params)
