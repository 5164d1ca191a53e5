"""Steps of small pairs compiled on eight CPU devices, beside what a plan predicts: as
JSON, {mesh: [predicted bytes by part, bytes as compiled]}."""

import json

from experiments.gpu.plans import compiled, memory
from experiments.gpu.plans.memory import Plan
from specjax import mesh
from specjax.models import llama, t5

BF16 = "bfloat16"
PAIRS = {
    "data=2,model=4,draft=4": (
        llama.Config(
            512, 128, 256, 3, 16, 8, 16, dtype=BF16, window=64, local=(0, 2), tied=True
        ),
        llama.Config(512, 64, 128, 1, 8, 8, 16, dtype=BF16),
    ),
    "model=8": (
        t5.Config(512, 128, 256, 2, 3, 8, 16, dtype=BF16),
        t5.Config(512, 64, 128, 1, 1, 8, 16, dtype=BF16),
    ),
}


def both(layout: str) -> tuple[dict, dict]:
    pair, plan = PAIRS[layout], Plan(8, 2048, 3, mesh.parse(layout), inputs=256)
    with mesh.using(layout):
        step = compiled.lower(*pair, plan).compile()
    return memory.device(*map(memory.sizes, pair), plan), compiled.taken(step)


if __name__ == "__main__":
    print(json.dumps({layout: both(layout) for layout in PAIRS}))
