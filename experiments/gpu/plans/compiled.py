"""A step of a pair of sizes, compiled for eight devices that are not present.

It is lowered from shapes placed as `runtime.mesh` places them; nothing is allocated.
Axes: B rows, N layers, H heads, S slots, D head width.
"""

import re
import time
from typing import Any

import jax
import jax.numpy as jnp

from experiments.gpu.aot import collectives, compilers, launches
from experiments.gpu.plans.forms import CHIPS, FLOAT32, Config, Plan
from specjax import generate
from specjax.checkpoints import Pretrained, sharding
from specjax.drafts.models import model_source
from specjax.drafts.placement import whole_factory
from specjax.measure import costs
from specjax.models import families
from specjax.models.cache import KeyValues
from specjax.models.lowering import Joined
from specjax.runtime import mesh
from specjax.runtime.mesh import DATA, MODEL

# What the compiler for TPUs says where a program does not fit.
NEEDED = re.compile(r"total memory required[^(]*\(([\d.]+)([GM])\)")


def step(target: Config, draft: Config, *, plan: Plan, chip: str) -> dict:
    """Returns the memory of a step on each device of a slice of `chip`, one of CHIPS,
    and the step's collectives.

    The bytes are of arguments, of temporaries, and in total. Where the compiler says
    that the step does not fit, only the bytes that it needs are returned.
    """
    layout, begun = plan.layout, time.perf_counter()
    text = f"data={layout.data},model={layout.model},draft={layout.draft}"
    slice = compilers.topology(chip, CHIPS[chip].slice)
    with mesh.using(text, slice), compilers.without_cache():
        lowered = lower_step(target, draft, plan)
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if not (match := NEEDED.search(str(error))):
                raise
            needed = float(match[1]) * 2 ** (30 if match[2] == "G" else 20)
            return {"fits": False, "bytes": round(needed)}
    took, rows = device_bytes(compiled), plan.batch // layout.data
    return {
        "fits": took["bytes"] <= CHIPS[chip].memory,
        **took,
        "sent": collectives.count_collectives(compiled.as_text(), plan.gamma),
        "law_bytes": FLOAT32 * rows * (plan.gamma + 1) * target.vocab,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def device_bytes(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Returns the bytes on each device: in total, of arguments, and of temporaries; a
    result that overwrites an argument counts once.
    """
    sizes = compiled.memory_analysis()
    given, besides = sizes.argument_size_in_bytes, sizes.temp_size_in_bytes
    new = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    parts = {"argument_bytes": given, "temp_bytes": besides}
    return {"bytes": given + new + besides, **parts}


def lower_step(target: Config, draft: Config, plan: Plan) -> jax.stages.Lowered:
    """Lowers a step on the mesh in use.

    The state is overwritten, as in a loop of steps, and arguments that a step does not
    read, such as an encoder, are kept.
    """
    drafting = model_source(place_shapes(draft, plan.layout.draft > 1))
    if plan.layout.draft == 1:
        drafting = drafting._replace(factory=whole_factory(drafting.factory))
    pair = costs.Pair(place_shapes(target, True), drafting, plan.slots)
    given = launches.initial_inputs(
        pair, plan.gamma, batch=plan.batch, read=plan.inputs
    )
    split = MODEL if plan.layout.draft > 1 else None
    state = place_tree(given.state, DATA)._replace(
        target_cache=place_cache(given.state.target_cache, MODEL),
        draft_cache=place_cache(given.state.draft_cache, split),
    )
    after = jax.tree.map(lambda leaf: leaf.sharding, state)
    options = dict(keep_unused=True, out_shardings=(after, None))
    step = generate.jit_step(given.decoder, **options)
    return step.lower(given.params, place_tree(given.request, DATA), state)


def place_shapes(config: Config, split: bool) -> Pretrained:
    """Returns a model whose parameters are shapes with a placement, split over the mesh
    or whole.
    """
    model, dtype = families.build(config), jnp.dtype(config.dtype)
    held = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype)  # noqa: E731
    params = jax.tree.map(held, model.shapes)
    params = (
        put_each(params, sharding.shardings(config)) if split else place_tree(params)
    )
    return Pretrained("", None, model, params)


def place_tree(tree: Any, *axes: str | None) -> Any:
    place = jax.sharding.NamedSharding(jax.sharding.get_mesh(), jax.P(*axes))
    return put_each(tree, jax.tree.map(lambda leaf: place, tree))


def put_each(tree: Any, places: Any) -> Any:
    def place_leaf(leaf, place):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

    return jax.tree.map(place_leaf, tree, places)


def place_cache(cache: Any, split: str | None) -> Any:
    """Returns a cache placed with rows over `data` and heads over `split`: [B, H, ...]
    or [B, N, 2, H, ...].
    """

    def place(node):
        if isinstance(node, Joined):
            return place_tree(node, DATA, None, None, split)
        return place_tree(node, DATA, *[split] * isinstance(node, KeyValues))

    known = lambda node: isinstance(node, Joined | KeyValues)  # noqa: E731
    return jax.tree.map(place, cache, is_leaf=known)
