"""Replacements for the paper's checkpoints: T5s of the same sizes with random weights,
and a verifier with simulated acceptance.

Random models do not agree with each other, and the cost of a step does not depend on
the tokens that it keeps. So every drafted token is kept with probability alpha,
independently, as Eq. 1 of Leviathan et al. (2023) assumes. The text follows no law.
Axes: B rows, G = gamma.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from specjax.checkpoints import Pretrained
from specjax.keys import root_key
from specjax.models import t5
from specjax.types import Draft, Law, Model, Prompt, Verdict, Verifier
from specjax.verifiers import token

GB = 1e9


@functools.cache
def model(config: t5.Config) -> Model:
    """Returns `t5.build`, cached, because tracing takes seconds at the paper's
    sizes."""
    return t5.build(config)


def make(config: t5.Config, seed: int = 0):
    """Returns parameters in `config.dtype`, created on the device one leaf after the
    other.

    Kernels have the variance 1 / rows, embeddings 1, and norms scale by 1, so that
    activations stay finite.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(model(config).shapes)
    arrays = []
    for at, (path, leaf) in enumerate(leaves):
        key = jax.random.fold_in(root_key(seed), at)
        embeds = "embedding" in jax.tree_util.keystr(path[-1:])
        spread = 1.0 if embeds else leaf.shape[0] ** -0.5
        arrays.append(_leaf(key, spread, leaf.shape, config.dtype))
    return jax.block_until_ready(tree.unflatten(arrays))


def pretrained(name: str, config: t5.Config, seed: int = 0) -> Pretrained:
    """Returns a model with the parameters of `make`; it has no configuration, so that
    it is traced only once."""
    return Pretrained(name, None, model(config), make(config, seed))


@functools.partial(jax.jit, static_argnums=(2, 3))
def _leaf(key: Array, spread: float, shape: tuple[int, ...], dtype: str) -> Array:
    normal = jax.random.normal(key, shape, dtype) * jnp.asarray(spread, dtype)
    return normal if len(shape) > 1 else jnp.ones(shape, dtype)


def weight_bytes(config: t5.Config) -> int:
    return t5.num_params(config) * jnp.dtype(config.dtype).itemsize


def cache_shapes(config: t5.Config, prompt: Prompt, slots: int) -> t5.Cache:
    built = model(config)
    return jax.eval_shape(lambda p, x: built.init(p, x, slots), built.shapes, prompt)


def tree_bytes(tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def step_bytes(config: t5.Config, prompt: Prompt, slots: int) -> int:
    """Returns the bytes that one decoding step must read: those of the decoder, of the
    readout, and of the keys and values of the input.

    It leaves out everything before the first step, one row of the embedding, and the
    keys and values of the text so far, which are thousands of times smaller at the
    paper's sizes.
    """
    decoder = model(config).shapes["decoder"]
    read = sum(leaf.size for leaf in jax.tree.leaves(decoder))
    for name, layer in decoder.items():
        if name.startswith("layers_"):
            across = layer["encoder_decoder_attention"]
            read -= sum(across[side]["kernel"].size for side in ("key", "value"))
    if config.tied:
        read += config.vocab * config.dim
    weights = read * jnp.dtype(config.dtype).itemsize
    return weights + tree_bytes(cache_shapes(config, prompt, slots).read)


def check_room(wanted_bytes: int, stats: Mapping[str, int] | None) -> None:
    """Raises ValueError if `wanted_bytes` are not free, by a device's
    `memory_stats()`.

    A device that reports nothing, such as a CPU, is not checked.
    """
    if not stats or "bytes_limit" not in stats:
        return
    limit = stats["bytes_limit"]
    free = limit - stats.get("bytes_in_use", 0)
    if wanted_bytes > free:
        raise ValueError(
            f"this row needs {wanted_bytes / GB:.1f} GB of the device's memory and"
            f" {free / GB:.1f} of the {limit / GB:.1f} GB that JAX may take are free:"
            " use a device with 80 GB, with XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 where"
            " JAX takes less, or smaller models"
        )


def simulate_acceptance(
    alpha: float | Array, rule: Verifier = token.verifier
) -> Verifier:
    """Returns a verifier that keeps the tokens before the first rejection, where each
    is accepted with probability alpha.

    It costs as much as the rule: the real verdict is computed, and its extra token is
    the one that is added. The random numbers are the verifier's own uniforms, so that
    they do not depend on position or batch.

    Args:
        alpha: in [0, 1], a number or a scalar array.
        rule: `verifiers.token`, or its fused form.
    """

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """Verifies as `verifiers.token.verify` does, but n is drawn at random, and
        accept_prob is alpha.
        """
        real = rule.verify(target, draft, noise, keep_residual)
        gamma = draft.tokens.shape[1]
        live = jnp.arange(gamma) < draft.num[:, None]
        heads = (noise.accept < alpha) & live
        n = jnp.sum(jnp.cumprod(heads, axis=1), axis=1, dtype=jnp.int32)[:, None]

        extra = jnp.take_along_axis(real.tokens, real.num_accepted[:, None], axis=1)
        slots, drafted = jnp.arange(gamma + 1), jnp.pad(draft.tokens, ((0, 0), (0, 1)))
        tokens = jnp.where(slots < n, drafted, jnp.where(slots == n, extra, 0))
        chance = jnp.where(live, alpha, 0.0)
        return real._replace(num_accepted=n[:, 0], tokens=tokens, accept_prob=chance)

    return Verifier(token.noise, verify, law=rule.law)
