"""Every family of models, for the tests that they share: add a `Case` here.

Each has a world of two layers, whose early exit is the first, and reads the same texts.
Axes: B rows, T tokens, I input tokens, S cache slots, V vocabulary.
"""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate
from specjax.generate import Output
from specjax.inputs import make_request, make_sampling, pad
from specjax.models import families, gpt, llama, t5, whisper
from specjax.models.cache import KeyValues
from specjax.step import Decoder
from specjax.types import Branches, Features, Model, Params, Prompt
from tests.support import tiny, tiny_llama, tiny_t5, tiny_whisper
from tests.support.tiny import World

B, T, SLOTS, IDS = 3, 5, 12, 29  # ids that every family has
TEXTS = [[0, 12, 3, 8, 25], [0, 5, 21, 7, 2], [0, 28, 1, 0, 14]]
SOURCES = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20], [4]]
# Of numpy, so that to take a part of them compiles nothing.
TOKENS, ZERO = np.array(TEXTS, np.int32), np.zeros(B, np.int32)
INPUTS = t5.Inputs(*pad(SOURCES))


class Case(NamedTuple):
    """A family of models, and its sizes.

    module: of the family. whole: (config, params, tokens, inputs) -> logits without a
    cache. embedding: the path of the table of ids in the parameters. other: a config
    with the parameters that `config` has not. encodes: prompts have inputs, and a cache
    what the encoder gave. hears: these are no ids. portion: of its window caches, where
    it has some. sees: how many tokens the `small` one does, None for all.
    """

    name: str
    module: ModuleType
    config: Any
    small: Any
    world: Callable[[], World]
    whole: Callable
    embedding: tuple[str, ...] = ("embedding",)
    other: Any = None
    encodes: bool = False
    hears: bool = False
    portion: int | None = None
    sees: int | None = None

    def build(self, config) -> Model:
        if self.portion is None:
            return self.module.build(config)
        return self.module.build(config, self.portion)

    def call(self, tokens, start, cache, branches: Branches | None = None):
        """Returns logits [B, T, V] of a call, and the cache."""
        weights = self.world().target_weights
        return _program(self)(weights, tokens, start, cache, branches)

    def fresh(self, rows: int = B):
        """Returns the cache before the first call."""
        return _initial_cache(self, rows)

    def inputs(self, rows: int = B) -> t5.Inputs | Features | None:
        if self.hears:
            return Features(tiny_whisper.sounds(B).frames[:rows])
        if self.encodes:
            return t5.Inputs(INPUTS.tokens[:rows], INPUTS.length[:rows])
        return None

    def prompt(self, rows: int = B) -> Prompt:
        return Prompt(TOKENS[:rows], ZERO[:rows] + T, self.inputs(rows))

    def own(self, cache) -> Sequence[KeyValues]:
        """Returns the layers of a text's cache, without the encoder's part."""
        return cache.own if self.encodes else cache


def weights(config: Any, seed: int) -> Any:
    """Returns random parameters for a config of any family, from its module of
    tests."""
    made = {gpt.Config: tiny, llama.Config: tiny_llama, t5.Config: tiny_t5}
    return (made | {whisper.Config: tiny_whisper})[type(config)].weights(config, seed)


@functools.cache
def _initial_cache(case: Case, rows: int):
    init = jax.jit(case.world().target.init, static_argnums=2)
    return init(case.world().target_weights, case.prompt(rows), SLOTS)


@functools.cache
def _program(case: Case) -> Callable:
    return compile_call(case.world().target)


def compile_call(model: Model) -> Callable:
    """Builds a function (params, tokens, start, cache) -> logits [B, T, V] of a call,
    and the cache."""

    @jax.jit
    def run(params, tokens, start, cache, branches=None):
        features, cache = model.apply(params, tokens, start, cache, branches)
        return model.readout(params, features), cache

    return run


def write_greedy(
    decoder: Decoder, params: Params, prompt: Prompt, *, new: int
) -> Output:
    """Returns greedy texts of `new` tokens, with at most 7 drafted per call."""
    rows, width = prompt.tokens.shape
    request = make_request(jax.random.key(0), prompt, new, make_sampling(rows, 0.0))
    run = generate.build(decoder, width + new + 8)
    return jax.device_get(run(params, prompt, request))


def make_branches(paths: Sequence[Sequence[Sequence[int]]]) -> Branches:
    """Returns `Branches` of trees, one per row: for each node, the nodes from a root to
    it."""
    depth = [[len(path) - 1 for path in row] for row in paths]
    sees = np.zeros((*np.shape(depth), len(depth[0])), bool)
    for row, node in np.ndindex(*np.shape(depth)):
        sees[row, node, list(paths[row][node])] = True
    return Branches(jnp.int32(depth), jnp.array(sees))


def whole_decoder(config: Any, params, tokens, inputs) -> Array:
    """Returns logits of a family without an encoder."""
    del inputs
    model = families.build(config)
    features, _ = model.apply(params, tokens, jnp.zeros(1, jnp.int32), None)
    return model.readout(params, features)


def whole_t5(config: t5.Config, params, tokens, inputs) -> Array:
    return t5.logits(config, params, inputs, tokens)


def whole_whisper(config: whisper.Config, params, tokens, inputs) -> Array:
    """Returns logits without a cache, with a separate readout where there is one, which
    is never the case."""
    network = whisper.Whisper(config)
    features = network.apply({"params": params}, inputs.frames, tokens)
    if "readout" in params:
        return features @ params["readout"]
    return whisper.readout(config, params, features)


GPT = Case("gpt", gpt, tiny.TARGET, tiny.SHALLOW, tiny.transformers, whole_decoder)
T5 = Case("t5", t5, tiny_t5.TARGET, tiny_t5.SMALL, tiny_t5.world, whole_t5)._replace(
    embedding=("token_embedder", "embedding"),
    other=tiny_t5.TARGET._replace(gated=False, tied=True),
    encodes=True,
)
SIZES = tiny_whisper.TARGET, tiny_whisper.SMALL, tiny_whisper.world
WHISPER = Case("whisper", whisper, *SIZES, whole_whisper, ("decoder", "embedding"))
WHISPER = WHISPER._replace(encodes=True, hears=True)


def llama_case(name: str, config: llama.Config, seed: int) -> Case:
    world = tiny_llama.worlds(config, seed)
    case = Case(
        name, llama, config, config._replace(num_layers=1), world, whole_decoder
    )
    return case._replace(portion=tiny_llama.PORTION, sees=config.window)


LLAMA = llama_case("llama", tiny_llama.LLAMA, 4)
QWEN3 = llama_case("qwen3", tiny_llama.QWEN3, 9)
GEMMA2 = llama_case("gemma2", tiny_llama.GEMMA2, 22)
GEMMA3 = llama_case("gemma3", tiny_llama.GEMMA3, 38)
CASES = (GPT, T5, WHISPER, LLAMA, QWEN3, GEMMA3, GEMMA2)
# The last of each module: styles of Llama's kind have one cache and one attention, and
# Gemma 2 has rings, shared keys and caps too.
MODULES = tuple({case.module: case for case in CASES}.values())


@functools.cache
def whole_text_logits(case: Case) -> np.ndarray:
    """Returns logits [B, T, V] of whole texts, without a cache."""
    run = jax.jit(functools.partial(case.whole, case.config))
    return np.asarray(run(case.world().target_weights, TOKENS, case.inputs()))


def assert_close(actual, expected, atol: float = 1e-4) -> None:
    np.testing.assert_allclose(actual, expected, atol=atol)


def differ_by_token(logits, other) -> np.ndarray:
    """Returns for each token whether any logit differs, for the ids that every family
    has."""
    logits, other = (np.asarray(each)[..., :IDS] for each in (logits, other))
    return np.abs(logits - other).max(-1) > 0.1
