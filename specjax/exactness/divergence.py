"""A test of whether greedy texts differ by rounding alone, and how often.

A call of gamma + 1 tokens and a call of one token round differently, so that a greedy
text may differ from the baseline's where two logits are nearly tied. There are three
comparisons, at T = 0. Matched shapes: against autoregression in calls of gamma + 1
tokens of which the first is real (`drafters.nothing`); texts must be equal, and on a
CPU logits must be bitwise equal at every row index of a call. Natural shapes: against
calls of one token; the logit of the emitted token is at most 2 eps below the baseline's
largest, where `eps = max |z_AR - z_spec|` up to there. One full forward: every emitted
token is within 2 eps of the largest logit.

Logits are evaluated again from the texts, in calls like those of decoding, so that a
cache which a run read wrongly explains nothing. At T > 0 a token's law, if not
truncated, moves by a total variation of at most (e^(2 eps / T) - 1) / 2. Axes: E
evaluations, N texts, B rows of a batch, T generated tokens, L buffer, V vocabulary."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import decode_config, generate, policies, verifiers
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafters import nothing
from specjax.drafts.source import DraftSource, check_pair
from specjax.fused import reference
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.measure.texts import take, width
from specjax.prompts import Prompts
from specjax.runtime import mesh, progress
from specjax.step import Decoder
from specjax.types import Kernels, Model, Params, Prompt, Request


class Text(NamedTuple):
    """Texts and the logits that they were decoded from.

    tokens [B, L] with the prompt; ids [B, T] generated, -1 after the end; logits [E, B,
    T, V] that chose them, in each of E evaluations."""

    tokens: Array
    ids: np.ndarray
    logits: Array


class Places(NamedTuple):
    """A baseline and a speculative text, compared place by place, [N, T].

    live: one of them has a token here, and they are equal before. differ: they first
    differ here. margin: m = z1 - z2 of the baseline. gap: z1 minus the logit of the
    token that speculation emitted. eps: max `|z_AR - z_spec|` over V and evaluations.
    shift: how much of m the speculative logits take away. tv: total variation of the
    two laws at T = 1. lost: a text's token is not the argmax of its own logits."""

    live: np.ndarray
    differ: np.ndarray
    margin: np.ndarray
    gap: np.ndarray
    eps: np.ndarray
    shift: np.ndarray
    tv: np.ndarray
    lost: np.ndarray


class Comparison(NamedTuple):
    """The comparison of N texts with a baseline: identical + explained + unexplained =
    N.

    places, lost: the numbers of live and of lost places (see `Places`). equal: the
    share of places whose logits are bitwise equal. tv_bound: the bound on one token's
    law from eps_max at T = 1. Rates per place: bound, P(m <= 2 eps_max); expected,
    P(shift >= m) if the two were independent; observed, of differences."""

    texts: int
    identical: int
    explained: int
    unexplained: int
    places: int
    lost: int
    equal: float
    eps_max: float
    eps_mean: float
    tv_max: float
    tv_bound: float
    bound: float
    expected: float
    observed: float


class Oracle(NamedTuple):
    """The comparison of speculative texts with one full forward pass.

    tokens: their number. below: how many are more than 2 eps below the largest logit.
    eps_max: the largest eps."""

    tokens: int
    below: int
    eps_max: float


def compare(base: Text, text: Text) -> Places:
    """Returns the comparison of speculative `text` with the first evaluation of
    `base`."""
    same = base.ids == text.ids
    before = np.cumprod(np.pad(same, ((0, 0), (1, 0)), constant_values=True), axis=1)
    live = before[:, :-1].astype(bool) & ((base.ids >= 0) | (text.ids >= 0))
    measured = jax.device_get(_measure(base.logits[0], text.logits, base.ids, text.ids))
    return Places(live, live & ~same, *measured)


@jax.jit
def _measure(base: Array, logits: Array, ids: Array, emitted: Array) -> Any:
    """Returns the fields of Places from margin to lost."""
    (first, second), best = (jnp.moveaxis(x, -1, 0) for x in jax.lax.top_k(base, 2))
    at_best = _logits_at(logits[0], best[0]) - _logits_at(logits[0], best[1])
    gap = jnp.where(emitted < 0, jnp.inf, first - _logits_at(base, emitted))
    apart = jnp.where(base == logits, 0.0, jnp.abs(base - logits))  # of -inf none
    apart = jnp.max(apart, axis=(0, -1))
    p_base, p_text = jax.nn.softmax(jnp.stack([base, logits[0]]))
    tv = jnp.abs(p_base - p_text).sum(-1) / 2
    lost = (base.argmax(-1) != ids) | (logits[0].argmax(-1) != emitted)
    margin = first - second
    return margin, gap, apart, margin - at_best, tv, lost


def _logits_at(logits: Array, ids: Array) -> Array:
    return jnp.take_along_axis(logits, jnp.maximum(ids, 0)[..., None], axis=-1)[..., 0]


def join(batches: Sequence[Places]) -> Places:
    """Returns batches [B, T] as one [N, T]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)


def summarize(places: Places) -> Comparison:
    """Returns the rates, and the number of texts whose first difference is explained by
    the largest eps up to that place."""
    live, differ = places.live, places.differ
    eps = np.maximum.accumulate(np.where(live, places.eps, 0.0), axis=1)
    explained = int(np.sum(differ & (places.gap <= 2 * eps)))
    margin, shift = places.margin[live], np.sort(places.shift[live])
    most, count = float(places.eps[live].max()), int(live.sum())
    beaten = shift.size - np.searchsorted(shift, margin)  # shifts of m or more
    return Comparison(
        texts=len(live),
        identical=len(live) - int(differ.sum()),
        explained=explained,
        unexplained=int(differ.sum()) - explained,
        places=count,
        lost=int(places.lost[live].sum()),
        equal=float(np.mean(places.eps[live] == 0)),
        eps_max=most,
        eps_mean=float(places.eps[live].mean()),
        tv_max=float(places.tv[live].max()),
        tv_bound=float(min(np.expm1(2 * most) / 2, 1.0)),
        bound=float(np.mean(margin <= 2 * most)),
        expected=float(np.mean(beaten / shift.size)),
        observed=float(differ.sum() / count),
    )


def oracle(places: Places) -> Oracle:
    """Returns the summary of the full forward, with the eps of each whole text."""
    eps = np.where(places.live, places.eps, 0.0).max(1, keepdims=True)
    below = places.live & ~(places.gap <= 2 * eps)
    return Oracle(int(places.live.sum()), int(below.sum()), float(eps.max()))


QUANTILES = {"min": 0.0, "1%": 0.01, "10%": 0.1, "50%": 0.5, "90%": 0.9}


class DivergenceSetting(NamedTuple):
    """The settings of the comparison, which is at temperature 0.

    decode: the settings, whose gamma each of `gammas` takes the place of. gammas: at
    least 1. texts: prompts continued, each once. batch: rows decoded together.
    """

    decode: DecodeConfig
    gammas: tuple[int, ...]
    texts: int = 16
    batch: int = 1


class GammaReport(NamedTuple):
    """The three comparisons for one gamma."""

    gamma: int
    matched: Comparison
    natural: Comparison
    oracle: Oracle


class Report(NamedTuple):
    """The results of `examine`. margins: the margins of every token of the one-row
    texts, [M]. found: by gamma."""

    margins: np.ndarray
    found: list[GammaReport]


def examine(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    setting: DivergenceSetting,
    kernels: Kernels | None = None,
) -> Report:
    """Decodes at T = 0 with and without a draft, and explains the differences.

    pair: target and draft. kernels: the programs that verify and draw; None is the
    setting's rule by the reference. Raises ValueError as `check`."""
    check(pair, prompts, setting)
    target, draft = pair
    kernels = kernels or reference(verifiers.find(setting.decode.rule))
    # One length for all: a longer buffer rounds differently too.
    slots = width(prompts) + setting.decode.new_tokens + max(setting.gammas) + 1
    tokens, params = setting.decode.new_tokens, Params(target.params, draft.params)
    sizes = slots, tokens
    read = build_read(target.model, sizes, rows=1)
    # The baseline always runs on the reference, so that a wrong kernel shows.
    baseline = build_text(Decoder(target.model), sizes, read, starts_in_order(tokens))
    whole = jax.jit(partial(one_call_logits, target.model, sizes))
    drafters = [draft.drafter(gamma, kernels.draw) for gamma in setting.gammas]
    policy = policies.find(setting.decode.policy)
    decoders = [
        Decoder(target.model, drafter, kernels.verifier, policy) for drafter in drafters
    ]
    checkers = [build_checker(decoder, sizes, whole) for decoder in decoders]
    margins = []
    places: list[list] = [[] for _ in checkers]
    for prompt, request in progress.track(requests(prompts, setting), "batches"):
        alone = baseline(params, prompt, request)
        margins.append(compare(alone, alone).margin[alone.ids >= 0])
        for checker, into in zip(checkers, places, strict=True):
            into.append(checker(params, prompt, request, alone))
    found = []
    for gamma, batches in zip(setting.gammas, places, strict=True):
        matched, natural, forward = map(join, zip(*batches, strict=True))
        found.append(
            GammaReport(
                gamma=gamma,
                matched=summarize(matched),
                natural=summarize(natural),
                oracle=oracle(forward),
            )
        )
    return Report(np.concatenate(margins), found)


def check(
    pair: tuple[Pretrained, DraftSource], prompts: Prompts, setting: DivergenceSetting
) -> None:
    """Raises ValueError for a pair that cannot decode, or for meaningless sizes."""
    check_pair(*pair, with_alpha=False)
    decode_config.check(setting.decode)
    if setting.decode.temperature != 0:
        raise ValueError(
            f"temperature must be 0 here; got {setting.decode.temperature}"
        )
    if not setting.gammas or min(setting.gammas) < 1:
        raise ValueError(f"gammas must be at least 1; got {setting.gammas}")
    if min(setting.texts, setting.batch) < 1:
        raise ValueError(f"texts and batch must be at least 1; got {setting}")
    count = min(setting.texts, len(prompts.tokens))
    if count % setting.batch:
        raise ValueError(f"{count} texts do not fill batches of {setting.batch}")


def requests(
    prompts: Prompts, setting: DivergenceSetting
) -> Sequence[tuple[Prompt, Request]]:
    """Returns the first prompts in batches of one shape; at T = 0 each prompt has one
    text."""
    count, batch = min(setting.texts, len(prompts.tokens)), setting.batch
    key, limits = root_key(0), (setting.decode.new_tokens, make_sampling(batch, 0.0))
    chosen = [take(prompts, range(i, i + batch)) for i in range(0, count, batch)]
    return [
        mesh.rows((prompt, make_request(key, prompt, *limits, prompts.ends)))
        for prompt in chosen
    ]


def build_checker(
    decoder: Decoder, sizes: tuple[int, int], whole: Callable
) -> Callable:
    """Returns the function that compares one batch with all three baselines.

    It takes (params, prompt, request, one-row Text) and returns `Places` against the
    matched baseline, the one-row baseline and the full forward. sizes: L and T. whole:
    `one_call_logits`, of the same sizes."""
    target, gamma = decoder.target, decoder.drafter.gamma
    read = build_read(target, sizes, gamma + 1)
    speculate = build_text(
        decoder, sizes, read, starts_at_every_row(sizes[1], gamma + 1)
    )
    same = Decoder(target, nothing.build(gamma))
    matched = build_text(same, sizes, read, starts_in_order(sizes[1]))

    def checker(params: Params, prompt: Prompt, request: Request, alone: Text) -> Any:
        text = speculate(params, prompt, request)
        beside = matched(params, prompt, request)
        forward = whole(params.target, prompt, text.tokens)
        judge = text._replace(logits=forward[None])
        return tuple(compare(base, text) for base in (beside, alone, judge))

    return checker


# A text, and its logits evaluated again.


def starts_in_order(tokens: int) -> list[list[int]]:
    """Returns the starts of the calls of one evaluation, in which a call starts at
    every place.

    As in decoding without a draft, only the first row of a call counts; the next calls
    overwrite the others."""
    return [list(range(tokens))]


def starts_at_every_row(tokens: int, rows: int) -> list[list[int]]:
    """Returns the starts of evaluations in calls of `rows` places.

    Each evaluation is shifted by one place, so that every place has every row index in
    one of them, except the first places, before which no call can start."""
    return [[0, *range(shift, tokens, rows)] for shift in range(rows)]


def build_text(
    decoder: Decoder, sizes: tuple[int, int], read: Callable, begins: list[list[int]]
) -> Callable[[Params, Prompt, Request], Text]:
    """Returns a function that decodes a batch and evaluates it again.

    There is one evaluation for each list of places at which calls begin. read: of
    `build_read`, with the rows of the decoder's own calls."""
    decode = generate.build(decoder, sizes[0])

    def text(params: Params, prompt: Prompt, request: Request) -> Text:
        out = decode(params, prompt, request)
        place = np.asarray(prompt.length)[:, None] + np.arange(sizes[1])
        ids = np.take_along_axis(np.asarray(out.tokens), place, axis=1)
        ids = np.where(place < np.asarray(out.length)[:, None], ids, -1)
        logits = [read(params.target, prompt, out.tokens, starts) for starts in begins]
        return Text(out.tokens, ids, jnp.stack(logits))

    return text


def build_read(model: Model, sizes: tuple[int, int], rows: int) -> Callable:
    """Returns a function that evaluates given tokens in calls of `rows` tokens.

    It takes (params, prompt, whole [B, L], begins), and returns logits [B, T, V] of the
    generated places of `whole` after a prefill. begins: the places at which calls
    begin, in their order; at most T + 1. A later call overwrites what an earlier one
    wrote."""
    slots, tokens = sizes

    @jax.jit
    def run(
        params: Any, prompt: Prompt, whole: Array, begins: Array, count: int
    ) -> Array:
        state = generate.prefill(Decoder(model), Params(params), prompt, slots)
        shape = prompt.length.size, tokens + rows, model.vocab

        def call(i: Any, carried: Any) -> Any:
            cache, logits = carried
            start = prompt.length - 1 + begins[i]
            index = start[:, None] + jnp.arange(rows)
            block = jnp.take_along_axis(whole, index, axis=1)
            features, cache = model.apply(params, block, start, cache)
            z = model.readout(params, features).astype(logits.dtype)
            put = jax.lax.dynamic_update_slice_in_dim
            return cache, put(logits, z, begins[i], axis=1)

        initial = state.target_cache, jnp.zeros(shape)
        return jax.lax.fori_loop(0, count, call, initial)[1][:, :tokens]

    def read(params: Any, prompt: Prompt, whole: Array, begins: Sequence[int]) -> Array:
        padded_begins = np.zeros(tokens + 1, np.int32)
        padded_begins[: len(begins)] = begins
        return run(params, prompt, whole, padded_begins, len(begins))

    return read


def one_call_logits(
    model: Model, sizes: tuple[int, int], params: Any, prompt: Prompt, whole: Array
) -> Array:
    """Returns logits [B, T, V] of the generated places, by one call for all of
    `whole`."""
    cache = model.init(params, prompt, sizes[0])
    features, _ = model.apply(params, whole, jnp.zeros_like(prompt.length), cache)
    place = prompt.length[:, None] - 1 + jnp.arange(sizes[1])

    def at_place(leaf: Array) -> Array:
        index = place.reshape(*place.shape, *[1] * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, index, axis=1)

    return model.readout(params, jax.tree.map(at_place, features))


def failures(found: GammaReport, strict: bool) -> list[str]:
    """Returns in words the promises that were broken.

    strict: the rows of a call must not depend on their index, as on a CPU."""
    matched, natural, gamma = found.matched, found.natural, found.gamma
    wrong = []
    for name, counts in (("matched", matched), ("natural", natural)):
        if counts.unexplained:
            wrong.append(f"{counts.unexplained} unexplained in {name} shapes")
    if found.oracle.below:
        wrong.append(f"{found.oracle.below} tokens below the full forward's largest")
    if strict and matched.identical < matched.texts:
        wrong.append(f"{matched.texts - matched.identical} differ in matched shapes")
    if strict and (lost := matched.lost + natural.lost):
        wrong.append(f"{lost} tokens are not what their logits say")
    return [f"gamma = {gamma}: {failure}" for failure in wrong]
