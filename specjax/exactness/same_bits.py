"""Checks that drafts leave every bit of greedy texts: `specjax certify --bits`.

With native operations (`specjax.native`) the bits of a row's logits depend on nothing
but the row's own text. Here a case, a target with a draft, is decoded alone, with
chains, with trees and in a batch, and one text is read in calls of several shapes.
Axes: B texts, G = gamma, T tokens, L buffer, V vocabulary.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import drafts, generate, native, verifiers, zoo
from specjax.checkpoints import int8_weights
from specjax.drafters import autoregressive, nothing
from specjax.drafters import tree as trees
from specjax.drafts.source import check_pair
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.models import families, few_rows, gpt, llama, t5
from specjax.runtime import console
from specjax.step import Decoder
from specjax.topologies import kary
from specjax.types import Drafter, Model, Params, Prompt

DTYPES = "float32", "bfloat16", "int8", "int8_dynamic"
TURNS = DTYPES[::3], DTYPES[1:3]  # of tiny models in turn, unless dtypes are named
GAMMA, NODES, TOKENS = 4, 6, 32  # of a chain, of a tree, of a text
SAME, OTHER = "same bits", "DIFFERENT"
NAMES = "target dtype calls chain tree batch verdict".split()
SIZES: dict[str, Any] = dict(vocab=211, dim=72, mlp_dim=136, num_layers=1, num_heads=4)
LLAMA = llama.Config(**SIZES, key_heads=2, head_width=18, biased=True)
FAMILIES: dict[str, families.Config] = {
    "gpt": gpt.Config(**SIZES),
    "llama": LLAMA,
    "qwen3": LLAMA._replace(style="qwen3", tied=True, biased=False),
    "gemma2": LLAMA._replace(
        style="gemma2", window=6, local=(0,), score_cap=20.0, biased=False, num_layers=2
    ),
    "t5": t5.Config(211, 72, 136, 1, 2, 4, 18),
}
TEXTS = (
    "def add(|class Stack:\n|import os\n|while True:\n|try:\n    import json\n"
    "|@property\n|for line in file:\n|def main(argv=None):\n"
).split("|")


class Draft(NamedTuple):
    """The drafts of a case: a drafter, and its weights."""

    drafter: Drafter
    params: Any


class Case(NamedTuple):
    """A target and its drafts.

    Attributes:
      name, dtype: of the target.
      model, params: the target.
      chain: drafts of GAMMA tokens.
      tree: drafts of NODES nodes; None where the draft writes no trees.
      prompt: [B] prompts, which fit in one native call.
    """

    name: str
    dtype: str
    model: Model
    params: Any
    chain: Draft
    tree: Draft | None
    prompt: Prompt


class Found(NamedTuple):
    """The numbers of what is equal in every bit, each with the number of all.

    Attributes:
      calls: rows of logits, of calls on one token against calls on G + 1, alone and
        beside other texts.
      chain, tree: texts with drafts, against the target's own; tree may be None.
      batch: texts drafted together, against the target's own, each written alone.
    """

    calls: tuple[int, int]
    chain: tuple[int, int]
    tree: tuple[int, int] | None
    batch: tuple[int, int]

    @property
    def wrong(self) -> list[str]:
        """Returns the names of what is not all equal."""
        each = self._asdict().items()
        return [name for name, it in each if it is not None and it[0] < it[1]]


def tiny(family: str, dtype: str) -> Case:
    """Returns a random model of a family, and as its draft the same model with other
    weights, which is right at times."""
    config = FAMILIES[family]
    if dtype == "bfloat16":
        config = config._replace(dtype=dtype)
    init = families.of(config).init_params
    params = jax.tree.map(lambda x: 3 * x, nn.meta.unbox(init(root_key(3), config)))
    other = jax.tree.map(lambda x: 1.02 * x + 0.003, params)
    own, drafting = (_in_dtype(weights, dtype) for weights in (params, other))
    model = families.build(config)
    random = np.random.default_rng(0)
    ids = [random.integers(1, config.vocab, count).tolist() for count in (5, 3, 4, 1)]
    inputs = None
    if family == "t5":
        ids, inputs = [[0]] * len(ids), ids
    parent = kary.build(2)(NODES)
    return Case(
        name=f"tiny {family}",
        dtype=dtype,
        model=model,
        params=own,
        chain=Draft(autoregressive.build(model, GAMMA), drafting),
        tree=Draft(trees.build(model, parent), drafting),
        prompt=make_prompt(ids, inputs),
    )


def _in_dtype(params: Any, dtype: str) -> Any:
    if dtype == "float32":
        return params
    if dtype == "bfloat16":
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    return int8_weights.round_params(params, dtype)


def pair_case(target: str, draft: str, dtype: str) -> Case:
    """Returns the case of two models by their names. Raises ValueError where they
    cannot decode together, or the target reads its prompts by an encoder."""
    model, source = drafts.pair(drafts.load_target(target, dtype), draft)
    check_pair(model, source, with_alpha=False)
    if model.encodes:
        raise ValueError(f"{target} has an encoder: --bits takes a model without one")
    if model.tokenizer is None:
        raise ValueError(f"{target} has no tokenizer, which --bits reads texts with")
    rows = few_rows.MOST_FLOAT32 // (GAMMA + 1)
    count = min(len(TEXTS), rows)
    width = few_rows.MOST_FLOAT32 // count
    ids = [model.tokenizer.encode(text)[:width] for text in TEXTS[:count]]
    branches = None
    if source.model is not None:
        _, grown = drafts.pair(model, f"tree:{draft}")
        branches = Draft(grown.drafter(NODES), grown.params)
    return Case(
        name=target,
        dtype=dtype,
        model=model.model,
        params=model.params,
        chain=Draft(source.drafter(GAMMA), source.params),
        tree=branches,
        prompt=make_prompt(ids),
    )


def compare(case: Case) -> Found:
    """Returns what of a case is equal in every bit."""
    each = [_row(case.prompt, i) for i in range(len(case.prompt.tokens))]
    alone = _writer(case, Draft(nothing.drafter, None))
    own = _join(map(alone, each))

    def count(texts: np.ndarray) -> tuple[int, int]:
        return int((texts == own).all(1).sum()), len(own)

    chained = _writer(case, case.chain)
    return Found(
        calls=compare_calls(case, own),
        chain=count(_join(map(chained, each))),
        tree=None
        if case.tree is None
        else count(_join(map(_writer(case, case.tree, "recursive"), each))),
        batch=count(chained(case.prompt)),
    )


def _row(prompt: Prompt, i: int) -> Prompt:
    return jax.tree.map(lambda x: x[i : i + 1], prompt)


def _join(rows: Any) -> np.ndarray:
    return np.concatenate([*rows])


def _writer(
    case: Case, draft: Draft, rule: str = "token"
) -> Callable[[Prompt], np.ndarray]:
    """Returns the function that decodes prompts [B] at temperature 0: ids [B, L]."""
    slots = case.prompt.tokens.shape[1] + TOKENS + NODES + 1
    decoder = Decoder(case.model, draft.drafter, verifiers.find(rule))
    run = generate.build(decoder, slots)

    def write(prompt: Prompt) -> np.ndarray:
        sampling = make_sampling(len(prompt.tokens), 0.0)
        request = make_request(root_key(0), prompt, TOKENS, sampling)
        return np.asarray(
            run(Params(case.params, draft.params), prompt, request).tokens
        )

    return write


def compare_calls(case: Case, texts: np.ndarray) -> tuple[int, int]:
    """Compares the logits of G + 1 tokens of each text [B, L] that begin with its
    prompt's last; returns the `calls` of `Found`."""
    each = [_row(case.prompt, i) for i in range(len(case.prompt.tokens))]
    model, slots, count = case.model, texts.shape[1], GAMMA + 1

    @functools.partial(jax.jit, static_argnames="at_once")
    def read(params: Any, prompt: Prompt, texts: Array, at_once: bool) -> Array:
        state = generate.prefill(Decoder(model), Params(params), prompt, slots)
        start = prompt.length - 1
        part = jnp.take_along_axis(texts, start[:, None] + jnp.arange(count), axis=1)

        def call(cache: Any, given: Any) -> tuple[Any, Array]:
            tokens, at = given
            features, cache = model.apply(params, tokens, start + at, cache)
            return cache, model.readout(params, features)

        if at_once:
            return call(state.target_cache, (part, 0))[1]
        steps = part.T[..., None], jnp.arange(count)
        logits = jax.lax.scan(call, state.target_cache, steps)[1]  # [G + 1, B, 1, V]
        return logits[:, :, 0].swapaxes(0, 1)

    def read_each(at_once: bool) -> np.ndarray:
        rows = zip(each, texts[:, None], strict=True)
        return _join(read(case.params, *row, at_once=at_once) for row in rows)

    singly, others = read_each(False), [read_each(True)]
    others.append(np.asarray(read(case.params, case.prompt, texts, at_once=True)))
    same = [(singly == other).all(-1) for other in others]
    return int(np.sum(same)), np.size(same)


def cases(
    target: str | None, draft: str | None, dtypes: Sequence[str]
) -> Iterator[Case]:
    """Yields the cases of the table: those of a named pair, or the bundled code pair
    and tiny models of each family. dtypes: () is all of the pair, and two of each tiny
    model."""
    for dtype in dtypes or DTYPES:
        yield pair_case(target or zoo.MODELS[0], draft or zoo.MODELS[1], dtype)
    if target is None and draft is None:
        for i, family in enumerate(FAMILIES):
            for dtype in dtypes or TURNS[i % 2]:
                yield tiny(family, dtype)


def problem() -> str | None:
    """Returns why no call here is native, so that the promise does not apply; None if
    calls are."""
    if (backend := jax.default_backend()) != "cpu":
        return f"a {backend} computes every call by XLA"
    return native.problem()


def certify(
    parser: console.Parser, target: str | None, draft: str | None, dtypes: Sequence[str]
) -> dict:
    """Prints the table, and returns the fields of --json."""
    if (why := problem()) is not None:
        print(f"The promise of the same bits does not apply here: {why}.")
        return {"passed": True, "applies": False, "bits": []}
    form = "{:16} {:12} {:>9} {:>6} {:>6} {:>6} {:>6}  {}"
    print(
        f"Equal in every bit: calls: logits of 1 and of {GAMMA + 1} rows; chain, tree,"
        " batch: greedy\ntexts with drafts and the target's own; s: seconds."
    )
    print(form.format(*NAMES[:-1], "s", NAMES[-1]))
    lines, began = [], time.perf_counter()
    with console.handle_stops(lambda: "the lines above are whole"):
        with parser.report_errors():
            for case in cases(target, draft, dtypes):
                found, now = compare(case), time.perf_counter()
                seconds, began = now - began, now
                verdict = " ".join([OTHER, *found.wrong]) if found.wrong else SAME
                cells = ["-" if it is None else f"{it[0]}/{it[1]}" for it in found]
                cells = [case.name, case.dtype, *cells, f"{seconds:.1f}", verdict]
                print(form.format(*cells), flush=True)
                line = case.name, case.dtype, *found, verdict
                named_line = dict(zip(NAMES, line, strict=True))
                lines.append(named_line | {"seconds": seconds})
    wrong = [
        f"{it['target']} in {it['dtype']}" for it in lines if it["verdict"] != SAME
    ]
    some = f"bits differ: {', '.join(wrong)}"
    print(some if wrong else f"{len(lines)} checks, all of the same bits")
    return {"passed": not wrong, "applies": True, "bits": lines}
