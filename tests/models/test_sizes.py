"""A published model has its published number of parameters.

Those that a file of `gin_configs/models` states are `experiments/gpu/paper_size`'s.
"""

import pytest

from specjax.models import gpt, llama

MISTRAL = llama.Config(32000, 4096, 14336, 32, 32, 8, 128)
GEMMA = llama.Config(256000, 2304, 9216, 26, 8, 4, 256, "gemma2", tied=True)
SIZES = {
    "97M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_97M, 97_222_656),
    "6M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_6M, 5_668_864),
    "Mistral 7B": (llama, MISTRAL, 7_241_732_096),
    "Gemma 2 2B": (llama, GEMMA, 2_614_341_888),
}


@pytest.mark.parametrize(("module", "config", "count"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(module, config, count):
    """Of one layer and the rest: layers are alike."""
    each = (config._replace(num_layers=depth) for depth in (1, 2))
    one, two = map(module.num_params, each)
    assert one + (config.num_layers - 1) * (two - one) == count
