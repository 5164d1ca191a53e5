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
    """By name: the parameters that its comment tells, and the configuration."""
    text = (run.ROOT / f"gin_configs/models/{family}.gin").read_text()
    told = re.findall(r"^# ([\d,]+) parameters.*?^(\w+)_SIZES = @", text, re.M | re.S)
    try:
        with gin.unlock_config():
            gin.parse_config(text)
        configs = {
            name.lower(): gin.query_parameter(f"{name}_SIZES/gin.macro.value")
            for _, name in told
        }
        built = {name: it.scoped_configurable_fn() for name, it in configs.items()}
    finally:
        gin.clear_config()
    counts = {name.lower(): int(count.replace(",", "")) for count, name in told}
    return {name: (counts[name], built[name]) for name in built}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_parameters_that_its_file_tells(family):
    sizes = sizes_of(family)
    assert len(sizes) >= 2
    for name, (count, config) in sizes.items():
        kind = llama if isinstance(config, llama.Config) else gpt
        assert kind.num_params(config) == count, name
        if name in CALLED:
            assert count / 1e9 == pytest.approx(CALLED[name], rel=0.1)
