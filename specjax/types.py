"""The types that models, drafters, verifiers, policies and the step exchange.

p is the target M_p, q the drafter M_q, gamma the number of drafted tokens, as in
Leviathan et al. (2023), https://arxiv.org/abs/2211.17192. Contracts are signatures:
each function that a `Model`, `Drafter`, `Verifier`, `Policy` or `TokenAutomaton` holds
has a type with its arguments and its result, whose names are free. State is a pytree,
keys and params are explicit.
Axes: B rows, T tokens in one call, G = gamma, V vocabulary, L buffer, R table rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

# Tokens are drawn by inverse CDF in two steps: a block of this many ids, then an id in
# it. One size for the whole project, so that tuning a kernel never changes a text.
BLOCK = 256


class Sampling(NamedTuple):
    """The settings by which each row turns logits into a law (Section 2.2). None means
    that a setting is off at compile time.

    temperature: [B] float32, 0 is argmax. top_k: [B] int32, at least 1.
    top_p: [B] float32 in (0, 1]. min_p: [B] float32 in [0, 1].
    """

    temperature: Array
    top_k: Array | None = None
    top_p: Array | None = None
    min_p: Array | None = None


class Table(NamedTuple):
    """The logits of R contexts, each of which differs from a common row in M places.

    Row r is `offset[r] + base`, but `logits[r, m]` at id `ids[r, m]`; an unused place
    has an id of V or more. base [V], offset [R], ids [R, M] int32, logits [R, M].
    """

    base: Array
    offset: Array
    ids: Array
    logits: Array


class Reduced(NamedTuple):
    """The logits of some of the ids; the other ids have no logits
    (`models.reduced_vocab`).

    logits [..., K]. ids [K] int32, ascending: whose they are. place [V] int32: where an
    id is among them, K if it is not. The two have no row of their own: all share them.
    """

    logits: Array
    ids: Array
    place: Array


# An Array [..., V], a `Table` or a `Reduced`; `probs` tells them apart.
Logits = Any


class Law(NamedTuple):
    """The distribution that a token is drawn from: raw logits and five scalars for each
    row.

    exp(scale * (z - top) - lse) at the ids with (z, -id) >= (tau, -tie), for the row z.
    logits: [..., V] as the model wrote them, never masked or copied; or a Table, whose
    row is then named by `row`; or Reduced, outside of which nothing is drawn. scale,
    top, tau, tie, lse: [...]: 1 / temperature (1 where greedy), largest logit, smallest
    logit kept, last id kept among those equal to tau, logsumexp of what is kept; apart
    from `top`, so that a low temperature does not cost digits. row: [...] int32, or
    None for dense logits.
    """

    logits: Logits
    scale: Array
    top: Array
    tau: Array
    tie: Array
    lse: Array
    row: Array | None = None


class Draft(NamedTuple):
    """A proposal: `tokens` [B, G], of which the first `num` [B] are real.

    law: what each was drawn from, [B, G]; None is certainty (a deterministic drafter).
    parent: [B, G] int32, of each node of a tree the one that it follows, see
    `specjax.trees`; None is a chain. A node's law is then that of its first sibling.
    policy: what `Policy.go_on` carries after the last token; None where it was not
    asked.
    """

    tokens: Array
    num: Array
    law: Law | None
    parent: Array | None = None
    policy: Any = None


class Verdict(NamedTuple):
    """The tokens that a verifier keeps of a draft, and the one that it adds.

    num_accepted: [B], n of Algorithm 1, at most `Draft.num`.
    tokens: [B, G + 1]: n accepted, one more, then 0 (never read).
    accept_prob: [B, G]: what each uniform was compared with; 0 beyond `Draft.num`.
    path: [B, G] nodes, of which the first n are kept, for a tree; None is the chain.
    residual: [B, V] weights (not normalised) that the one more was drawn from; only
    where it was asked for.
    """

    num_accepted: Array
    tokens: Array
    accept_prob: Array
    path: Array | None = None
    residual: Array | None = None


class Prompt(NamedTuple):
    """The beginning of each row's text.

    tokens: [B, T], right-padded. length: [B], at least 1.
    inputs: what an encoder reads, or any text to copy from: tokens [B, S] right-padded,
    length [B] at least 1; `Features` or `Encoded` for a model that listens; None if
    there is none.
    """

    tokens: Array
    length: Array
    inputs: Any = None


class Features(NamedTuple):
    """The sound that an encoder hears: frames [B, F, M] of M bands, floating point.
    Every frame counts: sound that is shorter than a window ends in silence."""

    frames: Array


class Encoded(NamedTuple):
    """The output of an encoder, states [B, S, E], for models that share it: it runs
    once for target and draft."""

    states: Array


class Request(NamedTuple):
    """The settings of each row, which never change during a run.

    key: [B] PRNG keys: nothing about batch mates enters. sampling: Sampling.
    start, limit: [B] lengths at which the row begins and ends.
    eos: [B] id that ends the row, -1 for none; [B, E] where each of several ids does.
    """

    key: Array
    sampling: Sampling
    start: Array
    limit: Array
    eos: Array


class State(NamedTuple):
    """The state that steps carry. `length` is the only cursor, so rejecting needs no
    undo.

    tokens: [B, L] prompt, then output, stale from `length` on; G + 1 slots to spare.
    length: [B] tokens committed. The target has not been fed the last of them yet.
    target_cache, draft_cache: opaque to the step.
    budget: [B] tokens that the drafter may draft next, at most G. NumPy's where it is
    known as a program is compiled, as it is in `draft` of a step without a policy.
    context: what a copying drafter may copy from besides `tokens`, or None.
    policy: what an adaptive rule carries, or None.
    """

    tokens: Array
    length: Array
    target_cache: Any
    draft_cache: Any
    budget: Array | np.ndarray
    context: Any = None
    policy: Any = None


class Info(NamedTuple):
    """The measurements of one step, which are never carried; zero in a row that had
    ended.

    drafted [B]; accepted [B] drafted tokens that were committed; tested [B] drafted
    tokens that were decided on, up to the row's end; emitted [B] tokens committed;
    accept_prob [B, G]; tokens [B, G] as drafted; full [B] bool, the whole draft kept.
    Of a tree: the path that was kept and then the other nodes; tested, levels that were
    decided on; full, up to a leaf.
    logprob [B, G + 1]: log p of each token committed, 0 beyond them, by the target's
    raw logits at temperature 1 and its rules; None where it was not asked for.
    """

    drafted: Array
    accepted: Array
    tested: Array
    emitted: Array
    accept_prob: Array
    tokens: Array
    full: Array
    logprob: Array | None = None


class Params(NamedTuple):
    """The weights of target and draft; an early-exit draft may name the target's."""

    target: Any
    draft: Any = None


class Branches(NamedTuple):
    """The tree that the tokens of one call form, which lie slot by slot.

    A tree of M tokens may be read in several calls: a call of T are its last T so far,
    and it begins in slot start - (M - T), which for M = T is `start`.
    depth: [B, M] int32, token i stands at position begin + depth[i]. sees: [B, T, M]
    bool, whether token i of the call sees token j of the tree, itself among them; all
    see the text before the tree.
    """

    depth: Array
    sees: Array


class ModelInit(Protocol):
    """Returns a model's cache for a prompt, with leaves [B, ...] and room for `slots`
    tokens; an encoder runs here."""

    def __call__(self, params: Any, prompt: Prompt, slots: int, /) -> Any: ...


class Hidden(NamedTuple):
    """The hidden states of a call's tokens, as a head that drafts reads them.

    last: [B, T, D], after the last layer and its norm, what the readout multiplies.
    taps: [B, T, D] each, the residual stream at the places that a configuration names,
    without a norm; () where it names none. Place k is what enters layer k, so that 0 is
    the embedding and the number of layers is what the last norm reads.
    """

    last: Array
    taps: tuple[Array, ...] = ()


class ModelApply(Protocol):
    """Returns the features of tokens [B, T], a pytree with leaves [B, T, ...], and the
    cache that includes them.

    Writes slots start .. start + T - 1, start [B], and attends to slots up to a token's
    own; of a tree, to the text before it and to what its branches say.
    """

    def __call__(
        self,
        params: Any,
        tokens: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
        /,
    ) -> tuple[Any, Any]: ...


class ModelReadout(Protocol):
    """Returns the logits [..., V] float32 of features, whose leaves are [..., D]; a
    model that only drafts may return `Reduced`."""

    def __call__(self, params: Any, features: Any, /) -> Any: ...


class ReadHidden(Protocol):
    """Returns the hidden states in the features that a model's `apply` returned."""

    def __call__(self, features: Any, /) -> Hidden: ...


class KeepPath(Protocol):
    """Returns a cache in which the slots from start [B] on hold the contents of the
    slots start + path [B, D]: the nodes of a tree that were kept, one after the other.

    path: [B, D], with path[:, i] >= i.
    """

    def __call__(self, cache: Any, start: Array, path: Array, /) -> Any: ...


class Model(NamedTuple):
    """A language model. Features and readout are separate, so that logits are computed
    only where they are read.

    init, apply, readout: see `ModelInit`, `ModelApply`, `ModelReadout`. vocab: V.
    Features are opaque to all but the model's own functions; `trees`, `chunks` and
    drafters index their first axes.
    shapes: the parameter tree as ShapeDtypeStructs, to check what is given.
    slots: positions that the model can tell apart, None if unbounded; no text is
    longer, but a buffer may be.
    encodes: whether prompts need `inputs`.
    portion: tokens of one call that its cache has room for besides those that are still
    seen; a longer call is worked off in such portions. None if its cache keeps all.
    reads: kinds of inputs that are not ids, such as `Features`, that prompts may have,
    with the shape of a row in place of arrays.
    trained: positions that it was trained for, where it goes on beyond them by the same
    arithmetic; None if nothing says.
    keep: see `KeepPath`; None for a model that verifies chains alone.
    hidden: see `ReadHidden`; None for a model without hidden states that a head reads.
    observe: see `ObserveTarget`, of a head: a model that drafts from the hidden states
    of a target, beside the tokens. None for a model that reads tokens alone.
    """

    init: ModelInit
    apply: ModelApply
    readout: ModelReadout
    vocab: int
    shapes: Any = None
    slots: int | None = None
    encodes: bool = False
    portion: int | None = None
    reads: tuple = ()
    trained: int | None = None
    keep: KeepPath | None = None
    hidden: ReadHidden | None = None
    observe: "ObserveTarget | None" = None


class BeginAutomaton(Protocol):
    """Returns the state of rows that have these tokens [B, T], of lengths [B]."""

    def __call__(self, tokens: Array, length: Array, /) -> Any: ...


class AdvanceAutomaton(Protocol):
    """Returns the state after one token [B] more."""

    def __call__(self, state: Any, token: Array, /) -> Any: ...


class MaskLogits(Protocol):
    """Returns logits [..., V] with -inf at the ids that a state forbids. The leading
    axes are those of the state, which may be any."""

    def __call__(self, state: Any, logits: Array, /) -> Array: ...


class TokenAutomaton(NamedTuple):
    """The tokens that may continue a text, as an automaton; see `models.constrained`.

    begin, advance, apply: see `BeginAutomaton`, `AdvanceAutomaton`, `MaskLogits`. State
    is a pytree with leaves [B, ...] of int32, uint32 or float32.
    """

    begin: BeginAutomaton
    advance: AdvanceAutomaton
    apply: MaskLogits


class TargetCall(NamedTuple):
    """A call of the target, in the form that a drafter observes: one of a step, or on a
    portion of a prompt.

    tokens [B, T]: of a step, T = G + 1, the last committed one, then those drafted, of
    which `num` [B] are real; of a prompt, T of its tokens, num = accepted.
    law [B, T]: the target's after each token; of a tree, after each node. None for a
    prompt, whose logits nobody reads.
    accepted [B]: drafted tokens that were accepted; of a prompt, the tokens after the
    first up to the last but one of the text, less than 0 where the text ends before.
    start [B]: the slot of the first token.
    features: the target's hidden states of the text's tokens from slot `start` on,
    accepted + 1 of them, of a tree those on the path that was kept; the rest is never
    to be read. None unless the drafter `needs_features`.
    """

    tokens: Array
    law: Law | None
    num: Array
    accepted: Array
    start: Array
    features: Hidden | None = None


class GoOn(Protocol):
    """Returns a policy's carry, and whether each row's next token is drafted, [B] bool;
    called with each token [B] once it is drawn, and the Law [B] that it was drawn from.

    The token is kept: a token that is dropped for what it is biases the text.
    """

    def __call__(
        self, carry: Any, law: Law, token: Array, slot: Any, /
    ) -> tuple[Any, Array]: ...


class DrawToken(Protocol):
    """Returns a token [B] for a slot of the draft, and the Law [B] that it is drawn
    from, given logits [B, V]."""

    def __call__(self, logits: Any, slot: Any, /) -> tuple[Array, Law]: ...


class BeginDraw(Protocol):
    """Returns the `DrawToken` of one step, by its DRAFT keys [B]; see
    `drafters.rollout`."""

    def __call__(self, key: Array, request: Request, state: State, /) -> DrawToken: ...


class DrafterInit(Protocol):
    """Returns a drafter's cache for a prompt, with room for `slots` tokens."""

    def __call__(self, params: Any, prompt: Prompt, slots: int, /) -> Any: ...


class DraftTokens(Protocol):
    """Returns a draft, drawn by keys [B], and the drafter's cache after it.

    If `Drafter.stops` is true, a `GoOn` may follow the state as a further argument; it
    decides after each token whether the draft of a row goes on.
    """

    def __call__(
        self, key: Array, params: Any, request: Request, state: State, /
    ) -> tuple[Draft, Any]: ...


class ObserveTarget(Protocol):
    """Returns a drafter's cache, updated by a call of the target.

    It is called after every step, and where the drafter needs features, for each
    portion of a prompt, in order. What it stores is addressed by slot, so that the same
    call twice is the same as once.
    """

    def __call__(self, params: Any, cache: Any, call: TargetCall, /) -> Any: ...


class Drafter(NamedTuple):
    """The side that proposes tokens.

    init, draft: see `DrafterInit`, `DraftTokens`. gamma: G, the most that it drafts.
    vocab: V, None for any.
    shapes: the parameter tree as ShapeDtypeStructs, None to leave it unchecked.
    slots: positions that it can tell apart, None if unbounded; where a text is longer,
    it drafts nothing.
    siblings: how the children of a node are drawn, of one that drafts trees: "without"
    or "with" replacement, each of its "own" law and apart from the others, or
    "certain", by no law at all; gamma is then the number of nodes. None drafts chains.
    depth: tokens on the longest path of its trees, None is gamma.
    widths: lengths below gamma that its drafts often do not exceed: the target's call
    is compiled for each, and reads no more tokens than the least that holds them.
    stops: whether `draft` takes a `Policy.go_on` after the state, by which a row's
    draft ends.
    observe: see `ObserveTarget`; None learns nothing, and costs nothing.
    needs_features: whether `observe` reads `TargetCall.features`. A step of a drafter
    that does not carries none.
    """

    init: DrafterInit
    draft: DraftTokens
    gamma: int
    vocab: int | None = None
    shapes: Any = None
    slots: int | None = None
    siblings: str | None = None
    depth: int | None = None
    widths: tuple[int, ...] = ()
    stops: bool = False
    observe: ObserveTarget | None = None
    needs_features: bool = False


class FusedRule(NamedTuple):
    """The comparison of Algorithm 1, in the form that a kernel computes it. Static.

    lenience: l of Appendix A.5, `scaled` whether its residual is p - l q. sigmoid:
    (alpha, beta) of the lossy rule of Wagner et al. (2024), Eq. 5, or None.
    """

    lenience: float = 1.0
    scaled: bool = False
    sigmoid: tuple[float, float] | None = None


class DrawNoise(Protocol):
    """Returns a verifier's noise, whose shape is its own, for the iteration that begins
    at lengths `start` [B], from the rows' keys [B]."""

    def __call__(self, key: Array, start: Array, gamma: int, vocab: int, /) -> Any: ...


class Verify(Protocol):
    """Returns the tokens that are kept of a draft, given the target's Law [B, G + 1].
    Pure.

    keep_residual: whether the verdict has its `residual`.
    """

    def __call__(
        self, target: Law, draft: Draft, noise: Any, /, keep_residual: bool = False
    ) -> Verdict: ...


class ReadLaw(Protocol):
    """Returns the law of logits [B, G + 1, V], such as `probs.standardize`."""

    def __call__(self, logits: Any, sampling: Sampling, /) -> Law: ...


class Verifier(NamedTuple):
    """The rule that keeps a prefix of a draft and adds a token; its randomness is an
    argument.

    noise, verify: see `DrawNoise`, `Verify`.
    guarantee: "exact law", "pathwise" (besides, the text is that of the same keys
    without a drafter), or in what it is lossy. coupled: it keeps most where drafts are
    drawn by `drafters.rollout.draw_coupled`. law: the target's as `verify` wants it,
    for a fused one; None is `probs.standardize`.
    rule: what `verify` computes, where a kernel may stand for it; None where none does.
    siblings: the kinds of `Drafter.siblings` whose trees it verifies; () is chains.
    """

    noise: DrawNoise
    verify: Verify
    guarantee: str = "exact law"
    coupled: bool = False
    law: ReadLaw | None = None
    rule: FusedRule | None = None
    siblings: tuple[str, ...] = ()


class Lossy(NamedTuple):
    """A rule that gives up the target's law. Static. build: (number) -> Verifier;
    number: the default, for a name without one; meaning: what the number is."""

    build: Callable[[float], Verifier]
    number: float
    meaning: str


class Kernels(NamedTuple):
    """The functions that read the logits of both models in a decoder, and how they were
    chosen.

    verifier: the verifier of speculative steps. draw: how drafts are drawn, of
    `drafters.rollout`. alone: the verifier of the baseline, gamma = 0. record: what ran
    and why, plain, for whatever is measured with it.
    """

    verifier: Verifier
    draw: BeginDraw
    alone: Verifier
    record: dict


class PolicyInit(Protocol):
    """Returns the first budget [B] and a policy's carry, with leaves [B, ...]."""

    def __call__(self, batch: int, gamma: int, /) -> tuple[Array, Any]: ...


class PolicyUpdate(Protocol):
    """Returns the next budget [B] and a policy's carry, by the measurements of a
    step."""

    def __call__(self, budget: Any, carry: Any, info: Info, /) -> tuple[Array, Any]: ...


class Policy(NamedTuple):
    """The rule that chooses how much to draft next, from past measurements and never
    from the target.

    init, update: see `PolicyInit`, `PolicyUpdate`.
    go_on: see `GoOn`; None: the budget alone decides.
    widths: as `Drafter.widths`, of the lengths that it chooses; those that are not
    below gamma count for nothing.
    """

    init: PolicyInit
    update: PolicyUpdate
    go_on: GoOn | None = None
    widths: tuple[int, ...] = ()
