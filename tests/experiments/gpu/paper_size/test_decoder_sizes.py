"""The decoders of the papers have the sizes that were published, by their gin files."""

import re

import gin
import pytest

from experiments import run
from specjax.models import gpt, llama

FAMILIES = ("llama2", "qwen1_5", "gemma", "gpt2", "chinchilla", "lamda", "llama3")
FAMILIES += ("qwen3", "gemma3")
# What their authors call them, in billions of parameters.
CALLED = {"lamda_137b": 137, "lamda_8b": 8, "lamda_2b": 2, "lamda_100m": 0.1}
CALLED |= {"chinchilla_70b": 70, "chinchilla_4b": 4}


def sizes_of(family: str) -> dict[str, tuple[int, llama.Config | gpt.Config]]:
    """By name: the parameters that its comment states, and the configuration."""
    text = (run.ROOT / f"gin_configs/models/{family}.gin").read_text()
    stated = re.findall(r"^# ([\d,]+) parameters.*?^(\w+)_SIZES = @", text, re.M | re.S)
    try:
        with gin.unlock_config():
            gin.parse_config(text)
        return {
            name.lower(): (
                int(count.replace(",", "")),
                gin.query_parameter(
                    f"{name}_SIZES/gin.macro.value"
                ).scoped_configurable_fn(),
            )
            for count, name in stated
        }
    finally:
        gin.clear_config()


def parameters(config: llama.Config | gpt.Config) -> int:
    """From one layer and two, as all are alike: many take seconds to trace."""
    kind = llama if isinstance(config, llama.Config) else gpt
    few = {"local": ()} if kind is llama else {}
    one, two = (
        kind.num_params(config._replace(num_layers=count, **few)) for count in (1, 2)
    )
    return one + (config.num_layers - 1) * (two - one)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_parameters_that_its_file_states(family):
    sizes = sizes_of(family)
    assert len(sizes) >= 2
    for name, (count, config) in sizes.items():
        assert parameters(config) == count, name
        if name in CALLED:
            assert count / 1e9 == pytest.approx(CALLED[name], rel=0.1)
