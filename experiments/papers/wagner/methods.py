"""The ways to verify that Wagner et al. (2024) compare, and two more.

baseline: Section 3.1, written out. exact: the same law, fused. sigmoid: Section 3.2.2,
lossy. always: every draft is kept, a control that the paper does not have. Axes: B
rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from experiments.papers.wagner import baseline as naive
from specjax import fused, probs
from specjax.checkpoints import Pretrained
from specjax.drafters.rollout import for_rule
from specjax.drafts.models import build_law, chain, constant
from specjax.drafts.source import DraftSource, recipe
from specjax.fused import Sizes
from specjax.types import (
    Draft,
    Drafter,
    Kernels,
    Law,
    Model,
    Sampling,
    Verdict,
    Verifier,
)
from specjax.verifiers import sigmoid, token

TOP_K = 50  # the default of the Transformers library, which the paper decodes with


class Method(NamedTuple):
    """A way to verify.

    Attributes:
        name: the name of its numbers in a record.
        top_k: the top-k of target and draft alike, None without; see `filter_pair`.
        scale, dtype: of a sigmoid, None for the others.
        drafted: (logits, Sampling) -> Law, the form in which `verifier` receives the
            draft's logits where it is timed alone; None is `probs.standardize`.
        draw: a function of `drafters.rollout`, None for the verifier's own.
    """

    name: str
    verifier: Verifier
    top_k: int | None = None
    scale: float | None = None
    dtype: str = "float32"
    drafted: Callable | None = None
    draw: Callable | None = None

    def drafter(self, draft: DraftSource, gamma: int) -> Drafter:
        return draft.drafter(gamma, self.draw or for_rule(self.verifier))

    def kernels(self) -> Kernels:
        plain = fused.reference(self.verifier)
        return plain._replace(draw=self.draw or plain.draw)


def keep_everything(
    target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
) -> Verdict:
    """Keeps every drafted token; the token after them is drawn from p."""
    live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
    weights = probs.dense(probs.take(target, draft.num))
    tokens = token.emit(draft, draft.num, probs.pick(weights, noise.sample))
    residual = weights if keep_residual else None
    return Verdict(draft.num, tokens, live.astype(weights.dtype), residual=residual)


everything = Verifier(token.noise, keep_everything, "lossy: keeps every draft")


def baseline_method(top_k: int | None = None) -> Method:
    return _with_filter_name(
        Method("baseline", naive.verifier, top_k, drafted=sigmoid.law)
    )


def exact_method(top_k: int | None = None) -> Method:
    return _with_filter_name(Method("exact", token.verifier, top_k))


def sigmoid_method(
    scale: float, dtype: str = "float32", top_k: int | None = None
) -> Method:
    """Returns the sigmoid method with -alpha = beta = scale, as everywhere in the
    paper.
    """
    name = f"sigmoid_1e{round(float(jnp.log10(scale)))}"
    name += "_half" if dtype == "float16" else ""
    rule = sigmoid.build(-scale, scale, dtype)
    return _with_filter_name(Method(name, rule, top_k, scale, dtype, sigmoid.law))


def keep_all_method(top_k: int | None = None) -> Method:
    return _with_filter_name(Method("always", everything, top_k))


def _with_filter_name(method: Method) -> Method:
    end = "" if method.top_k is None else f"_top{method.top_k}"
    return method._replace(name=method.name + end)


def with_kernels(
    methods: Sequence[Method], asked: str, sizes: Sizes
) -> tuple[list[Method], dict[str, dict]]:
    """Returns the methods with the kernels that `specjax.fused` chooses, and the
    records of these choices by method.

    All draw their drafts in the same way; the baseline and `always` have no kernel.
    """
    replaced, records = [], {}
    for method in methods:
        chosen = fused.choose(asked, method.verifier, sizes)
        records[method.name] = chosen.record
        changes = dict(verifier=chosen.verifier, draw=chosen.draw)
        if chosen.verifier.law is not method.verifier.law:
            changes["drafted"] = chosen.verifier.law  # which reads nothing twice
        replaced.append(method._replace(**changes))
    return replaced, records


def text_methods(scale: float) -> list[Method]:
    """Returns the methods that a main row compares, without a filter and with the
    library's own.
    """
    methods = []
    for top_k in (None, TOP_K):
        methods += [baseline_method(top_k), exact_method(top_k)]
        methods += [sigmoid_method(scale, top_k=top_k), keep_all_method(top_k)]
    return methods


def scale_methods(scales: Sequence[float]) -> list[Method]:
    """Returns the methods that a row of scales compares: every scale in both
    precisions.
    """
    methods = []
    for top_k in (None, TOP_K):
        kinds = [
            sigmoid_method(s, kind, top_k) for s in scales for kind in sigmoid.DTYPES
        ]
        methods += [baseline_method(top_k), *kinds, keep_all_method(top_k)]
    return methods


def filter_pair(
    pair: tuple[Pretrained, DraftSource], top_k: int | None
) -> tuple[Pretrained, DraftSource]:
    """Returns the pair with logits that are truncated before verification.

    In each row the `top_k` largest logits remain, and those equal to the smallest of
    them; the others are -inf.
    """
    if top_k is None:
        return pair

    def truncate(model: Model) -> Model:
        def readout(params, features: Array) -> Array:
            z = model.readout(params, features)
            return jnp.where(select_largest(z, top_k), z, -jnp.inf)

        return model._replace(readout=readout)

    target, draft = pair
    model = truncate(draft.model())
    build = constant(model)
    factory = recipe(chain, model=build)
    return (
        target._replace(model=truncate(target.model)),
        draft._replace(factory=factory, law=build_law(model), model=build),
    )


def select_largest(z: Array, count: int) -> Array:
    """Returns bool [..., V]: the `count` largest of each row, and those equal to the
    last of them."""
    sampling = Sampling(jnp.ones(len(z)), top_k=jnp.full(len(z), count, jnp.int32))
    return z >= probs.standardize(z, sampling).tau[..., None]
