"""The cost of a draft model that is itself accelerated, measured as the number of its
calls.

Leviathan et al. (2023), Section 6: the approximation model is accelerated by an even
faster one. By Theorem 3.8 for these two, it makes 1 / E(tokens) calls for each token
that it drafts, where E is Eq. 1 of how often it accepts the faster one's. But a draft
of gamma tokens is short: its last round is cut. Calls are counted a text at a time, as
the target decodes with this draft. Axes: N texts.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.questions.verdict import Question, bootstrap, judge, sum_by_text
from specjax import chunks, fused
from specjax.checkpoints import Pretrained
from specjax.decode_config import change
from specjax.drafts.models import chain
from specjax.drafts.source import DraftSource, Recipe, recipe
from specjax.measure.pairs import Pair
from specjax.measure.texts import Calls, Protocol, decode, join_calls, speculate, width
from specjax.prompts import Prompts
from specjax.theory import closed_forms, predict
from specjax.types import Info, Model, State

QUESTION = Question(
    "Does a draft model that is itself accelerated make as few calls as Theorem 3.8"
    " says of it?",
    "it makes 10 % more calls than acceptances that are independent and as frequent"
    " give for drafts of this length",
    "a little more: acceptances come in runs, and a draft begins where the target"
    " rejected",
)
BOUND = 0.1
STRETCH = 12  # tokens after which the draft model goes on where the target was


def count_calls(model: Recipe) -> Model:
    """Returns the same model with a cache (its own cache, its calls so far [B])."""
    plain = model()

    def init(params: Any, prompt: Any, slots: int) -> tuple[Any, Array]:
        cache = plain.init(params, prompt, slots)
        return cache, jnp.zeros(prompt.length.shape, jnp.int32)

    def apply(
        params: Any, tokens: Array, start: Array, cache: tuple, branches: Any = None
    ) -> tuple[Any, tuple[Any, Array]]:
        tree = () if branches is None else (branches,)
        features, own = plain.apply(params, tokens, start, cache[0], *tree)
        return features, (own, cache[1] + 1)

    return plain._replace(init=init, apply=apply)


def split_hierarchy(source: DraftSource) -> tuple[Pair, int]:
    """Returns the first model of a hierarchy, as a pair with the draft below it, and
    the most tokens that the latter drafts.

    Raises:
        ValueError: the draft is not a hierarchy.
    """
    options = dict(source.factory.options)
    if "models" not in options:
        raise ValueError(
            f"{source.name} is not a hierarchy: name hierarchy:MODEL,DRAFT"
        )
    first, *rest = options["models"]
    model = Pretrained("the draft model", None, first(), source.params.target)
    lower = options["lowest"]
    if rest:
        further = dict(models=tuple(rest), below=options["below"][1:], most=None)
        lower = source.factory.change(**further)
    draft = DraftSource(
        "the draft below it", lower, source.params.draft, source.vocab, source.regime
    )
    return (model, draft), options["below"][0]


def draft_calls(
    pair: Pair, prompts: Prompts, count: int, protocol: Protocol
) -> tuple[Calls, np.ndarray]:
    """Returns the calls of `count` texts, decoded one at a time, and of each the calls
    of the draft's first model and the tokens that it drafted: [N, 2]."""
    target, source = pair
    models = dict(source.factory.options)["models"]
    counted = tuple(recipe(count_calls, model=model) for model in models)
    watched = source._replace(factory=source.factory.change(models=counted))
    wide = width(prompts)
    before = -(-wide // chunks.TOKENS) if wide > 1 else 0  # on the prompt
    found, each, seen = [], [], [0, 0]

    def record(running: np.ndarray, state: State, info: Info) -> None:
        del running  # the one text has not ended
        seen[0] = int(state.draft_cache.model[1][0]) - before
        seen[1] += int(info.drafted[0])

    alone = protocol._replace(batch=1)
    kernels = fused.for_protocol(target, watched, alone)
    for _, calls in decode(
        (target, watched), prompts, count, alone, kernels=kernels, seen=record
    ):
        found.append(calls)
        each.append([*seen])
        seen[:] = 0, 0
    return join_calls(found, count), np.array(each)


def text_places(
    prompts: Prompts, texts: list[np.ndarray]
) -> tuple[Prompts, np.ndarray]:
    """Returns each prompt with its text up to every STRETCH tokens, as prompts, and the
    text of each."""
    every = [
        (row, at)
        for row, text in enumerate(texts)
        for at in range(0, len(text), STRETCH)
    ]
    tokens = [[*prompts.tokens[row], *texts[row][:at].tolist()] for row, at in every]
    inputs = prompts.inputs and [prompts.inputs[row] for row, _ in every]
    return Prompts(tokens, inputs, prompts.ends), np.array([row for row, _ in every])


def rounds(alpha: float, lower: int, gamma: int) -> float:
    """Returns the expected number of calls of a draft model for a draft of `gamma`
    tokens, where each call verifies `lower` tokens of another draft and accepts each
    with probability `alpha`."""
    law = predict.calls_law(np.full(gamma, alpha), lower)
    return float(law @ np.arange(law.size))


def measure(pair: Pair, prompts: Prompts, protocol: Protocol, kept: dict) -> dict:
    """Returns the calls of the draft model per drafted token, and the number that
    Theorem 3.8 and Eq. 1 predict from what the draft model accepts when it continues
    alone from places in the target's texts."""
    del kept  # no text of the target alone
    (inner, lower), options = split_hierarchy(pair[1]), dict(pair[1].factory.options)
    gamma = min(protocol.decode.gamma, options["most"] or protocol.decode.gamma)
    count = min(len(prompts.tokens), -(-protocol.tokens // protocol.decode.new_tokens))
    calls, drafts = draft_calls(pair, prompts, count, protocol)
    plain = pair[1]._replace(
        factory=recipe(chain, model=options["models"][0]),
        params=pair[1].params.target,
    )
    alike = speculate((pair[0], plain), prompts, count, protocol)
    places, text = text_places(prompts, calls.texts)
    short = change(protocol, gamma=lower, new_tokens=STRETCH)
    own = speculate(inner, places, len(text), short)
    shares = sum_by_text(np.stack([own.accepted, own.tested], axis=1), text)
    totals = np.concatenate(
        [drafts, shares, np.stack([calls.accepted, calls.tested], axis=1)], axis=1
    )

    def excess_calls(sums: np.ndarray) -> float:
        made, drafted, accepted, tested = sums[:4]
        return made / drafted / (rounds(accepted / tested, lower, gamma) / gamma) - 1

    def share(one: int, other: int) -> tuple[float, float]:
        return bootstrap(lambda sums: sums[one] / sums[other], totals)

    alpha, alpha_lower, each = share(4, 5), share(2, 3), share(0, 1)
    more, error = bootstrap(excess_calls, totals)
    numbers = {"calls_per_draft_token": each[0], "calls_per_draft_token_se": each[1]}
    numbers |= {"alpha_lower": alpha_lower[0], "alpha_lower_se": alpha_lower[1]}
    numbers |= {"alpha": alpha[0], "alpha_se": alpha[1]}
    numbers |= {
        "alpha_plain": float(alike.accepted.sum() / alike.tested.sum()),
        "by_formula": 1 / float(closed_forms.expected_tokens(alpha_lower[0], lower)),
        "by_length": rounds(alpha_lower[0], lower, gamma) / gamma,
        "excess": more,
        "excess_se": error,
        "gamma": gamma,
        "gamma_lower": lower,
        "tokens": int(calls.tokens.sum()),
        "tokens_per_call": float(calls.tokens.sum() / calls.calls.sum()),
    }
    verdict = [
        judge(
            "beyond what acceptances this frequent give it makes",
            more,
            error=error,
            bound=BOUND,
            most=True,
        )
    ]
    return numbers | {"verdict": verdict, "points": []}
