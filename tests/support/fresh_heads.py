"""Folders of heads with arbitrary weights, of each kind, for any small target."""

from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from specjax.checkpoints import Pretrained, huggingface, names_llama
from specjax.drafters import eagle, eagle3, medusa
from specjax.drafts import blockwise_files, eagle3_files, eagle_files, medusa_files
from specjax.models import llama
from tests.support import tiny

KINDS = "medusa", "blockwise", "eagle", "eagle3"
AT_ONCE = 3  # tokens that heads which draft several at once propose


def write(folder: Path, kind: str, target: Pretrained) -> Path:
    """Writes a head of a kind that reads a target with two layers; returns `folder`."""
    whole: Any = target.required_config
    layer = llama.Config(target.vocab, whole.dim, 8, 1, 2, 1, 4)
    if kind == "eagle3":
        sizes = eagle3.Config(layer, whole.dim, (0, 1))
        own = draw(eagle3.abstract_params(sizes))
        eagle3_files.write(folder, sizes, own, ids=None, target=target, chain=2)
    elif kind == "eagle":
        config = eagle.Config(layer)
        own = flatten_dict(draw(eagle.abstract_params(config)), sep="/")
        fields = names_llama.write_config(layer, None, ())
        huggingface.save_head(folder, fields, own, eagle_files.names(config))
    elif kind == "medusa":
        heads = medusa.Config(target.vocab, whole.dim, AT_ONCE)
        own = draw(medusa.abstract_params(heads))
        medusa_files.write(folder, heads, own, target=target)
    else:
        heads = medusa.Config(target.vocab, whole.dim, AT_ONCE, mlp_dim=8)
        own = draw(medusa.abstract_params(heads))
        blockwise_files.write(folder, heads, own, target=target)
    return folder


def draw(shapes: Any) -> Any:
    """Returns weights so small that a head's laws are nearly uniform, and some of what
    it drafts is kept."""
    return tiny.draw_params(shapes, 3, lambda name, noise: noise / 8)
