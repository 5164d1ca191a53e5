"""Plans predict the memory that a compiler needs; times are closed forms; each host
reads its share, measured in real processes.

Compiled are small pairs for eight CPU devices, as `python -m` this; for accelerators
that are not there see `tests/experiments/gpu/aot`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flax.traverse_util import flatten_dict

from experiments.gpu import reading
from experiments.gpu.plans import compiled, forms
from experiments.gpu.plans.forms import CHIPS, Chip, Plan
from experiments.records import records
from specjax import configs
from specjax.models import gpt, llama, t5
from specjax.runtime import mesh
from specjax.runtime.mesh import Layout
from tests.support import devices

ROOT = Path(__file__).resolve().parents[3]
QUICKLY = "--xla_backend_optimization_level=0"
ROWS = records.rows("fits")
XXL, SMALL = (
    t5.Config(32128, 4096, 10240, 24, 24, 64, 64),
    t5.Config(32128, 512, 1024, 8, 8, 6, 64),
)
HELD = "weights", "draft", "caches", "draft_caches"
SLOW_CHIP = Chip(1e9, 1e9, 1e12, 1e8, "", "")
LLAMA = llama.Config(512, 128, 256, 3, 16, 8, 16, dtype="bfloat16")
PAIRS = {
    "data=2,model=4,draft=4": (
        LLAMA._replace(window=64, local=(0, 2), tied=True),
        llama.Config(512, 64, 128, 1, 8, 8, 16, dtype="bfloat16"),
    ),
    "model=8": (
        t5.Config(512, 128, 256, 2, 3, 8, 16, dtype="bfloat16"),
        t5.Config(512, 64, 128, 1, 1, 8, 16, dtype="bfloat16"),
    ),
}


def predicted_and_compiled(layout: str) -> tuple[dict, dict]:
    """Returns the bytes of a step by part: as predicted, and as compiled for eight
    devices."""
    pair, plan = PAIRS[layout], Plan(8, 2048, 3, mesh.parse(layout), inputs=256)
    with mesh.using(layout):
        step = compiled.lower_step(*pair, plan).compile()
    return forms.device(*map(forms.sizes, pair), plan), compiled.device_bytes(step)


@pytest.mark.slow
def test_a_step_is_given_the_bytes_that_are_predicted():
    """Norms and tokens, which are small, are not in the formula: 1 % at these sizes."""
    flags = f"{devices.device_flags(8)} {QUICKLY}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-m", "tests.experiments.gpu.test_plans"],
        env=environment | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for layout, (predicted, taken) in json.loads(done.stdout).items():
        held = sum(predicted[part] for part in HELD)
        assert 1 <= taken["argument_bytes"] / held < 1.02, layout


def test_a_device_holds_its_share_of_laws_and_scores():
    """A draft that is whole on every device has whole laws there."""
    pair = forms.sizes(XXL), forms.sizes(SMALL)
    alone = forms.device(*pair, Plan(8, 512, 7))
    part = forms.device(*pair, Plan(8, 512, 7, Layout(2, 4)))
    assert part["scores"] == alone["scores"] // 8 == (4 + 2) * 4 * 8 * 512 * 64 // 4
    assert part["laws"] == 4 * 4 * (8 * 32128 // 4 + 7 * 32128)
    assert alone["laws"] == 4 * 8 * (8 + 7) * 32128


def test_local_layers_keep_a_window_and_a_portion():
    near = llama.Config(100, 8, 8, 3, 4, 2, 16, window=64, local=(0, 2))
    kept = forms.cache(forms.sizes(near), Plan(5, 4096, 3), 1)
    assert kept == 5 * 2 * 2 * 2 * 16 * (4096 + 2 * (64 + 512))


@pytest.fixture(scope="module")
def sizes():
    """Of T5-XXL and T5-small."""
    return forms.sizes(XXL), forms.sizes(SMALL)


def test_one_row_more_than_fits_does_not(sizes):
    plan = Plan(1, 4096, 7, Layout(2, 4), inputs=64)
    most = forms.largest_batch(*sizes, plan=plan, memory=CHIPS["v5e"].memory)
    for rows, fits in ((most, True), (most + 2, False)):
        need = forms.device(*sizes, plan._replace(batch=rows))["total"]
        assert (need <= CHIPS["v5e"].memory) == fits
    assert forms.largest_batch(*sizes, plan=plan, memory=1e9) == 0


@pytest.mark.parametrize(
    "config",
    [
        gpt.Config(64, 32, 48, 2, 4),
        llama.Config(64, 32, 48, 2, 4, 2, 16),
        t5.Config(64, 32, 48, 1, 2, 4, 16),
    ],
)
def test_a_call_reads_each_matrix_of_the_decoder_once(config):
    """All but the embedding and norms are counted, and for T5 all but the encoder and
    the projections that read its output."""
    module = sys.modules[type(config).__module__]
    tree = module.abstract_params(config)
    tree = tree["decoder"] if isinstance(config, t5.Config) else tree
    flat = flatten_dict(tree, sep="/")
    across = [f"encoder_decoder_attention/{x}/kernel" for x in ("key", "value")]
    unread = "embedding", *across
    read = [x for name, x in flat.items() if x.ndim > 1 and not name.endswith(unread)]
    assert sum(matrix.size for matrix in read) == forms.sizes(config).read


def test_a_call_takes_its_bytes_or_its_products_and_what_it_sends():
    sizes = forms.sizes(gpt.Config(1000, 64, 256, 2, 8))
    plan = Plan(4, 32, 3, Layout(2, 8))
    read = 2 * sizes.read / 8 + forms.cache(sizes, plan, 8)
    sums = 2 * 2 + 1
    moved = 2 * 7 / 8 * sums * 2 * (4 // 2) * 3 * 64
    assert (
        forms.call(sizes, plan, tokens=3, split=8, chip=SLOW_CHIP)
        == read / 1e9 + moved / 1e8
    )
    weak = SLOW_CHIP._replace(flops=1.0)
    products = 3 * (4 // 2) * (2 * sizes.read + 2 * 4 * 32 * 64) / 8
    assert forms.call(sizes, plan, tokens=3, split=8, chip=weak) == pytest.approx(
        products + moved / 1e8
    )
    assert forms.sent_bytes(sizes, plan, tokens=3, split=1) == (0, 0)


def test_the_measured_card_is_no_faster_than_predicted(sizes):
    """T5-XXL alone on one H100 takes 4.35 ms per token, see `gin_configs/chip`."""
    told = forms.step(
        *sizes, plan=Plan(1, 128, 7, inputs=64), chip=CHIPS["h100"], alpha=0.75
    )
    assert 0.7 < told["alone_ms"] / 4.35 < 0.8
    assert told["speed"] == pytest.approx(told["alone_ms"] / told["spec_ms"])


def test_what_cannot_be_planned_or_read_is_refused():
    with pytest.raises(ValueError, match="no format 'zip': one of huggingface, t5x"):
        reading.build(reading.ReadingSetting("zip"))
    with pytest.raises(ValueError, match="unknown chip 'v3': name one of"):
        configs.build(ROWS["v5e_t5"]._replace(bindings=("CHIP = 'v3'",)))
    other = ("DRAFT = %LAMDA_100M_SIZES",)
    with pytest.raises(ValueError, match="name a pair with one tokenizer"):
        configs.build(ROWS["v5e_t5"]._replace(bindings=other))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "read"), [("huggingface", 1), ("t5x", 2), ("orbax", 1)]
)
def test_a_host_of_two_reads_its_half(format, read):
    """An array that is stored in one chunk is read whole."""
    found = reading.measure(reading.ReadingSetting(format, 8))
    assert found["share"] == pytest.approx(0.5, abs=1e-3)
    assert found["read"] == pytest.approx(read, rel=0.05)


if __name__ == "__main__":
    print(json.dumps({layout: predicted_and_compiled(layout) for layout in PAIRS}))
