"""A published model has its published number of parameters."""

from types import ModuleType

import pytest

from specjax.models import gpt, llama, t5

LLAMA = llama.Config(32000, 4096, 11008, 32, 32, 32, 128)
QWEN = llama.Config(151936, 1024, 3072, 28, 16, 8, 128, "qwen3", tied=True)
GEMMA = llama.Config(256000, 2304, 9216, 26, 8, 4, 256, "gemma2", tied=True)
SIZES = {
    "97M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_97M, 97_222_656),
    "6M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_6M, 5_668_864),
    "T5 v1.1 small": (t5, t5.Config(32128, 512, 1024, 8, 8, 6, 64), 76_961_152),
    "Llama 2 7B": (llama, LLAMA, 6_738_415_616),
    "Mistral 7B": (llama, LLAMA._replace(mlp_dim=14336, key_heads=8), 7_241_732_096),
    "Qwen 3 0.6B": (llama, QWEN, 596_049_920),
    "Gemma 2 2B": (llama, GEMMA, 2_614_341_888),
}


def size(module: ModuleType, config, depth: int) -> int:
    """With so many layers in each stack."""
    stacks = {name for name in config._fields if name.endswith("layers")}
    return module.num_params(config._replace(**dict.fromkeys(stacks, depth)))


@pytest.mark.parametrize(("module", "config", "count"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(module, config, count):
    """Of one layer and the rest: layers are alike."""
    one, two = (size(module, config, depth) for depth in (1, 2))
    (depth,) = {getattr(config, x) for x in config._fields if x.endswith("layers")}
    assert one + (depth - 1) * (two - one) == count
