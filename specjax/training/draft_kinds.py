"""The drafts that can be trained: what each reads, how it is initialized, and its loss.

Axes: D features of the target, K ids of a head, V of the target.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from specjax.checkpoints import Pretrained
from specjax.drafters import eagle3, medusa
from specjax.drafters import heads as parts
from specjax.models import families, llama
from specjax.training import forward, heads, written
from specjax.training.heads import Objective
from specjax.training.target_states import Lesson, Reads

# Of learning, for each kind: lower for what begins with the target's weights.
RATES = {"small": 4e-3, "early_exit": 5e-4}
RATES |= {"medusa": 1e-3, "blockwise": 1e-3, "eagle3": 3e-3}
# The sizes that each kind reads, beside `dtype`.
READ = {
    "small": ("layers", "dim", "mlp_dim", "num_heads"),
    "early_exit": ("layers",),
    "medusa": ("layers", "heads"),
    "blockwise": ("mlp_dim", "heads"),
    "eagle3": ("mlp_dim", "num_heads", "vocab", "taps", "turns"),
}
SHOWN = "held_out alpha_1", "held_out best_1"  # of the curve, beside the bar
TURNS = 2  # of an EAGLE-3 head
MATCHED = 2.0  # root mean square of the products that find a token again
SMALL_START = 0.1  # what a fresh layer adds, relative to a fresh product


class Sizes(NamedTuple):
    """The sizes of a draft; None stands for the default of its kind.

    Attributes:
      layers: the number of layers of a small model, or how many of the target's first
        ones begin an early exit.
      dim: the width of a small model.
      mlp_dim: the width of its feed-forward layer, or a head's.
      num_heads: the number of heads of attention.
      vocab: K, how many ids an EAGLE-3 head proposes.
      taps: the places of the target that an EAGLE-3 head reads.
      heads: the number of heads of Medusa, or blockwise parallel.
      turns: how often an EAGLE-3 head is unrolled.
      dtype: the dtype of activations while it is trained.
    """

    layers: int | None = None
    dim: int | None = None
    mlp_dim: int | None = None
    num_heads: int | None = None
    vocab: int | None = None
    taps: tuple[int, ...] | None = None
    heads: int | None = None
    turns: int | None = None
    dtype: str = "float32"


class Learner(NamedTuple):
    """A draft to be trained.

    Attributes:
      config: its sizes.
      init: key -> initial parameters.
      loss: (parameters, batch) -> scalar.
      measure: as of `loop.Task`.
      shown: what stands beside the bar.
      ids: [K], those of the target that it says; None for all.
    """

    config: Any
    init: Callable[[Array], Any]
    loss: Callable[[Any, Lesson], Array]
    measure: Callable[[Any, Lesson], dict[str, tuple[Array, Array]]]
    shown: tuple[str, ...]
    ids: np.ndarray | None = None


def reads(kind: str, target: Pretrained, sizes: Sizes) -> Reads:
    """Returns the hidden states that a draft of this kind reads. Raises ValueError for
    a target that cannot give them."""
    if kind in ("medusa", "blockwise"):
        return Reads(last=True)
    if kind != "eagle3":
        return Reads()
    whole: Any = target.required_config
    if "taps" not in whole._fields:
        raise ValueError(
            f"{target.name} is a {target.family}, whose layers are not tapped: name a"
            " GPT or a model of Llama's kind"
        )
    taps = default_taps(whole.num_layers) if sizes.taps is None else sizes.taps
    families.of(whole).check(whole._replace(taps=taps))
    return Reads(taps=taps)


def default_taps(layers: int) -> tuple[int, ...]:
    """Returns those places that EAGLE-3 taps which a target of `layers` layers has."""
    taps = eagle3.default_taps(layers)
    return tuple(sorted({min(max(k, 0), layers) for k in taps}))


def eagle3_learner(
    target: Pretrained, sizes: Sizes, goal: Objective, ids: np.ndarray | None
) -> Learner:
    """Returns an EAGLE-3 head, initialized with the target's readout and its last tap.

    ids: [K], those that it says, ascending; None for all.
    """
    whole: Any = target.required_config
    dim, count = whole.dim, sizes.num_heads or max(1, whole.num_heads // 2)
    layer = llama.Config(
        vocab=target.vocab,
        dim=dim,
        mlp_dim=sizes.mlp_dim or dim,
        num_layers=1,
        num_heads=count,
        key_heads=count,
        head_width=whole.head_width,
        dtype=sizes.dtype,
        eps=getattr(whole, "eps", 1e-6),
    )
    config = eagle3.Config(
        layer=layer,
        target_dim=dim,
        taps=reads("eagle3", target, sizes).taps,
        draft_vocab=None if ids is None else ids.size,
        norm_before_residual=True,
    )
    eagle3.check(config)

    def init(key: Array) -> Any:
        params = nn.meta.unbox(eagle3.init_params(key, config))
        join = params["join"]["kernel"]
        last = jnp.zeros_like(join).at[-dim:].set(jnp.eye(dim))
        params["join"]["kernel"] = last + SMALL_START * join
        # Attention begins where a token's embedding meets a state that contains it: at
        # what followed the same token before.
        query, keys = (params["layer"]["attention"][x] for x in ("query", "key"))
        shape = dim, query["kernel"].shape[1]
        alike = (
            MATCHED * dim**-0.5 * jax.random.normal(jax.random.fold_in(key, 1), shape)
        )
        query["kernel"] = query["kernel"].at[:dim].set(alike)
        keys["kernel"] = keys["kernel"].at[dim:].set(alike)
        for part in (
            params["layer"]["attention"]["out"],
            params["layer"]["mlp"]["out"],
        ):
            part["kernel"] = SMALL_START * part["kernel"]
        said = readout_of(target)[:, slice(None) if ids is None else ids]
        own: Any = target.params
        if isinstance(whole, llama.Config):
            offset = llama.STYLES[whole.style].offset
            params["norm"] = {
                "scale": offset + jnp.array(own["norm"]["scale"], jnp.float32)
            }
        return params | {"readout": jnp.array(said, jnp.float32)}

    predict_turns = heads.eagle3_turns(config, sizes.turns or TURNS)
    return head_learner(config, init, predict_turns, goal=goal, ids=ids)


def medusa_learner(target: Pretrained, sizes: Sizes, goal: Objective) -> Learner:
    """Returns Medusa's heads, each initialized with the target's own readout."""
    whole: Any = target.required_config
    config = medusa.Config(
        vocab=target.vocab,
        dim=whole.dim,
        heads=sizes.heads or 3,
        layers=sizes.layers or 1,
        dtype=sizes.dtype,
    )
    medusa.check(config)
    shapes = medusa.abstract_params(config)

    def init(key: Array) -> Any:
        del key  # a block that adds half of silu(0) = 0 begins as nothing
        params = jax.tree.map(lambda of: jnp.zeros(of.shape), shapes)
        own = readout_of(target)
        each = [jnp.array(own, jnp.float32) for _ in range(config.heads)]
        return params | {"readout": tuple(each)}

    return head_learner(config, init, heads.medusa_turns(config), goal=goal)


def blockwise_learner(target: Pretrained, sizes: Sizes, goal: Objective) -> Learner:
    """Returns blockwise parallel heads, each initialized with the target's own
    readout."""
    whole: Any = target.required_config
    config = medusa.Config(
        vocab=target.vocab,
        dim=whole.dim,
        heads=sizes.heads or 3,
        mlp_dim=sizes.mlp_dim or whole.dim,
        dtype=sizes.dtype,
    )
    medusa.check(config)
    shapes = medusa.abstract_params(config)

    def init(key: Array) -> Any:
        params = {name: jnp.zeros(of.shape) for name, of in shapes.items()}
        inner = jax.random.normal(key, params["in"].shape) * whole.dim**-0.5
        return params | {"in": inner}

    tables = parts.with_target(None, target.params)["target"]
    predict_turns = heads.blockwise_turns(config, families.build(whole).readout, tables)
    return head_learner(config, init, predict_turns, goal=goal)


def head_learner(
    config: Any,
    init: Callable[[Array], Any],
    predict_turns: heads.PredictTurns,
    *,
    goal: Objective,
    ids: np.ndarray | None = None,
) -> Learner:
    """Returns a head that minimizes the weighted mean of the losses of its turns.

    Args:
      config: the configuration of its drafter.
      init: (key) -> its first parameters.
      predict_turns: returns its logits in each turn.
      goal: its loss.
      ids: [K], those of the target that it proposes, ascending; None is all.
    """
    return Learner(
        config=config,
        init=init,
        loss=heads.objective(predict_turns, goal),
        measure=heads.measure(predict_turns),
        shown=SHOWN,
        ids=ids,
    )


def model_learner(
    target: Pretrained, sizes: Sizes, goal: Objective, kind: str
) -> Learner:
    """Returns a draft model with its own weights: for the kind "small", a fresh Llama;
    for "early_exit", the target's first layers with its readout."""
    whole: Any = target.required_config
    if kind == "early_exit":
        family = families.of(whole)
        config: Any = family.first_layers(whole, exit_layers(target, sizes))
        config = config._replace(dtype=sizes.dtype)
    else:
        dim, count = sizes.dim or 64, sizes.num_heads or 2
        config = llama.Config(
            vocab=target.vocab,
            dim=dim,
            mlp_dim=sizes.mlp_dim or 4 * dim,
            num_layers=sizes.layers or 2,
            num_heads=count,
            key_heads=count,
            head_width=dim // count,
            dtype=sizes.dtype,
        )
    families.of(config).check(config)

    def init(key: Array) -> Any:
        if kind == "small":
            return forward.fresh(config)(key)
        shapes = flatten_dict(families.of(config).abstract_params(config))
        own = flatten_dict(target.params)
        return unflatten_dict({x: jnp.array(own[x], jnp.float32) for x in shapes})

    def predict_turns(params: Any, lesson: Lesson) -> list[heads.Turn]:
        logits = written.logits(config, params, lesson.whole.texts)
        return [heads.Turn(logits, shift=0, first=0)]

    return Learner(
        config=config,
        init=init,
        loss=heads.objective(predict_turns, goal),
        measure=heads.measure(predict_turns),
        shown=SHOWN,
    )


def exit_layers(target: Pretrained, sizes: Sizes) -> int:
    """Returns how many of a target's layers initialize an early exit. Raises ValueError
    for more layers than it has."""
    whole: Any = target.required_config
    most = getattr(whole, families.of(whole).layers)
    layers = sizes.layers or max(1, most // 4)
    if not 1 <= layers < most:
        raise ValueError(
            f"{target.name} has {most} layers, of which 1 to {most - 1} can draft; got"
            f" {layers}"
        )
    return layers


def readout_of(target: Pretrained) -> Any:
    """Returns the matrix [D, V] that a target's last states are multiplied by."""
    params: Any = target.params
    return params["readout"] if "readout" in params else params["embedding"].T
