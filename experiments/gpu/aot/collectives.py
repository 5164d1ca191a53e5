"""Counts the collectives in a step of speculative decoding on a mesh.

The step is compiled for the devices of this machine, by XLA's partitioner
(`runtime.mesh`); a CPU acts as eight devices. The collectives are read from the
optimized HLO, those of a loop as often as it runs. Bytes are those of results on one
device: the traffic of the network for them is not counted. Axes: B rows, G = gamma, L
slots.
"""

import re
from collections import Counter
from functools import partial
from typing import NamedTuple

import jax

from experiments.gpu.aot import hlo
from specjax import drafts, generate
from specjax.checkpoints import Pretrained
from specjax.drafts.placement import place_pair
from specjax.drafts.source import DraftLike, DraftSource, pair_files
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import costs
from specjax.measure.row import Measurement
from specjax.runtime import mesh

KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
DONE = re.compile(rf" ({'|'.join(KINDS)})-done\(")
FUSED = re.compile(r" fusion\((?=.* calls=%all-reduce-scatter)")  # a TPU's


class ShardingSetting(NamedTuple):
    """The sizes of a step on a mesh.

    Attributes:
        batch: the number of rows of all devices.
        slots: the number of slots of the caches.
        input_tokens: the number of tokens of an encoder's input.
    """

    gamma: int = 5
    batch: int = 8
    slots: int = 128
    input_tokens: int = 64


def build(
    target: Pretrained, draft: DraftLike, setting: ShardingSetting
) -> Measurement:
    """Returns the measurement of one row: the collectives in a step of this pair on the
    row's mesh.

    Raises:
        ValueError: the models are no pair.
    """
    target, draft = drafts.pair(target, draft)
    run = partial(count, target, draft, setting)
    return Measurement(run, __name__, pair_files(target, draft), target.dtype)


def count(target: Pretrained, draft: DraftSource, setting: ShardingSetting) -> dict:
    """Returns the collectives in a step that drafts gamma tokens, by kind, with their
    bytes, and the bytes of the largest.

    law_bytes: the bytes of the target's logits for a device's rows, if they were
    gathered.

    Raises:
        ValueError: there is no mesh.
    """
    if (layout := mesh.layout.value) is None:
        raise ValueError("nothing is sent on one device: name a mesh, 'data=4,model=2'")
    rows = setting.batch // layout.data
    kind = jax.devices()[0].device_kind
    return {
        **setting._asdict(),
        "device": f"{layout.data * layout.model} x {kind}",
        **count_collectives(compile_step(target, draft, setting), setting.gamma),
        "law_bytes": 4 * rows * (setting.gamma + 1) * target.vocab,
    }


def count_collectives(text: str, gamma: int) -> dict:
    """Returns the collectives of a step's optimized HLO, by kind, and their bytes.

    A collective whose begin and end are separate counts at its end, where its result is
    alone.
    """
    text = FUSED.sub(" reduce-scatter(", DONE.sub(r" \1(", text))
    crossing = executed_collectives(hlo.read(text), gamma)
    found = Counter(kernel.opcode for kernel in crossing)
    sizes = Counter()
    for kernel in crossing:
        sizes[kernel.opcode] += kernel.bytes
    return {
        **{name: found[kind] for kind, name in KINDS.items()},
        **{f"{name}_bytes": sizes[kind] for kind, name in KINDS.items()},
        "collectives": len(crossing),
        "bytes": sum(sizes.values()),
        "largest_bytes": max((kernel.bytes for kernel in crossing), default=0),
    }


def compile_step(
    target: Pretrained, draft: DraftSource, setting: ShardingSetting
) -> str:
    """Returns the text of a step's optimized HLO."""
    mesh.check_rows(setting.batch)
    pair = costs.Pair(*place_pair(target, draft), setting.slots)
    inputs = [[1] * setting.input_tokens] * setting.batch if target.encodes else None
    prompt = make_prompt([[0]] * setting.batch, inputs)
    sampling = make_sampling(setting.batch, 1.0)
    request = make_request(root_key(0), prompt, 1, sampling)
    prompt, request = mesh.rows((prompt, request))
    gamma = setting.gamma
    state = costs.begin(pair, gamma, prompt, request)
    step = generate.jit_step(pair.decoder(gamma))
    return step.lower(pair.params(gamma), request, state).compile().as_text()


def executed_collectives(sequence: hlo.Sequence, gamma: int) -> list[hlo.Kernel]:
    """Returns each collective as often as it is executed.

    A loop whose end the program decides is the loop over drafted tokens, which runs
    gamma - 1 times.
    """
    every = hlo.repeat_kernels(sequence, gamma - 1)
    return [kernel for kernel in every if kernel.opcode in KINDS]
