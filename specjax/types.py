"""What crosses the borders between models, drafters, verifiers and the step.

p is the target M_p, q the drafter M_q, gamma the number of drafted tokens, as in
Leviathan et al. (2023), https://arxiv.org/abs/2211.17192. Contracts are signatures,
state is a pytree, keys and params are explicit.
Axes: B rows, T tokens in one call, G = gamma, V vocabulary, L buffer, R table rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

# Tokens are drawn by inverse CDF in two steps: a block of this many ids, then an id in
# it. One size for the whole project, so that tuning a kernel never changes a text.
BLOCK = 256


class Sampling(NamedTuple):
    """How each row turns logits into a law (Section 2.2). None is statically off.

    temperature: [B] float32, 0 is argmax. top_k: [B] int32, at least 1.
    top_p: [B] float32 in (0, 1]. min_p: [B] float32 in [0, 1].
    """

    temperature: Array
    top_k: Array | None = None
    top_p: Array | None = None
    min_p: Array | None = None


class Table(NamedTuple):
    """Logits of R contexts that differ from a common row in M places each.

    Row r is `offset[r] + base`, but `logits[r, m]` at id `ids[r, m]`; an unused place
    has an id of V or more. base [V], offset [R], ids [R, M] int32, logits [R, M].
    """

    base: Array
    offset: Array
    ids: Array
    logits: Array


class Reduced(NamedTuple):
    """Logits of some of the ids, and none of the others (`models.reduced_vocab`).

    logits [..., K]. ids [K] int32, ascending: whose they are. place [V] int32: where an
    id is among them, K if it is not. The two have no row of their own: all share them.
    """

    logits: Array
    ids: Array
    place: Array


class Law(NamedTuple):
    """The distribution that a token is drawn from: raw logits and five scalars a row.

    exp(scale * (z - top) - lse) at the ids with (z, -id) >= (tau, -tie), for the row z.
    logits: [..., V] as the model wrote them, never masked or copied; or a Table, whose
    row is then named by `row`; or Reduced, outside of which nothing is drawn. scale,
    top, tau, tie, lse: [...]: 1 / temperature (1 where greedy), largest logit, smallest
    logit kept, last id kept among those equal to tau, logsumexp of what is kept; apart
    from `top`, so that a low temperature does not cost digits. row: [...] int32, or
    None for dense logits.
    """

    logits: Array | Table | Reduced
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
    """What a verifier keeps.

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
    """tokens [B, T] right-padded, length [B] at least 1.

    inputs: what an encoder reads, or any text to copy from: tokens [B, S] right-padded,
    length [B] at least 1; `Features` or `Encoded` for a model that listens; None if
    there is none.
    """

    tokens: Array
    length: Array
    inputs: Any = None


class Features(NamedTuple):
    """What an encoder hears: frames [B, F, M] of M bands, floating point. Every frame
    counts: what is shorter than a window ends in silence."""

    frames: Array


class Encoded(NamedTuple):
    """What an encoder gave, states [B, S, E], for models that share it: it runs once
    for target and draft."""

    states: Array


class Request(NamedTuple):
    """One row each; never changes during a run.

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
    """Carried between steps. `length` is the only cursor, so rejecting needs no undo.

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
    budget: Array
    context: Any = None
    policy: Any = None


class Info(NamedTuple):
    """Measured in one step, never carried; zero in a row that had ended.

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
    """Weights of the two sides; an early-exit draft may name the target's own."""

    target: Any
    draft: Any = None


class Branches(NamedTuple):
    """How the tokens of one call, which lie slot by slot, follow each other in a tree.

    A tree of M tokens may be read in several calls: a call of T are its last T so far,
    and it begins in slot start - (M - T), which for M = T is `start`.
    depth: [B, M] int32, token i stands at position begin + depth[i]. sees: [B, T, M]
    bool, whether token i of the call sees token j of the tree, itself among them; all
    see the text before the tree.
    """

    depth: Array
    sees: Array


class Model(NamedTuple):
    """A language model. Features and readout apart: nobody pays for unread logits.

    init: (params, Prompt, L) -> cache, leaves [B, ...]; an encoder runs here.
    apply: (params, tokens [B, T], start [B], cache, Branches | None = None) ->
    (features [B, T, D], cache): writes slots start .. start + T - 1, attends to slots
    up to its own; of a tree, to the text before and to what its branches say.
    readout: (params, features [..., D]) -> logits [..., V] float32; of a model that
    only drafts maybe `Reduced`. vocab: V. shapes: the parameter tree as
    ShapeDtypeStructs, to check what is given.
    slots: positions that the model can tell apart, None if unbounded; no text is
    longer, but a buffer may be.
    encodes: whether prompts need `inputs`.
    portion: tokens of one call that its cache has room for besides those that are still
    seen; a longer call is worked off in such portions. None if its cache keeps all.
    reads: kinds of inputs that are no ids, such as `Features`, that prompts may have,
    with the shape of a row in place of arrays.
    trained: positions that it was trained for, where it goes on beyond them by the same
    arithmetic; None if nothing says.
    keep: (cache, start [B], path [B, D]) -> cache, in which slots start + 0 .. D - 1
    hold what slots start + path held: the nodes of a tree that were kept, one after the
    other; path[:, i] >= i. None: it verifies chains alone.
    """

    init: Callable
    apply: Callable
    readout: Callable
    vocab: int
    shapes: Any = None
    slots: int | None = None
    encodes: bool = False
    portion: int | None = None
    reads: tuple = ()
    trained: int | None = None
    keep: Callable | None = None


class TokenAutomaton(NamedTuple):
    """What a text may go on with, as an automaton; see `models.constrained`.

    begin: (tokens [B, T], length [B]) -> state of rows that have these tokens.
    advance: (state, token [B]) -> state after one more. apply: (state, logits [..., V])
    -> logits [..., V], of forbidden ids -inf. State is a pytree with leaves [B, ...] of
    int32, uint32 or float32; in `apply` of any leading axes.
    """

    begin: Callable
    advance: Callable
    apply: Callable


class Kept(NamedTuple):
    """A call of the target in a step, for a drafter that observes it.

    tokens [B, G + 1]: the last committed one, then those drafted, of which `num` [B]
    are real. law [B, G + 1]: the target's after each; of a tree, after each node.
    count [B]: drafted tokens that were accepted.
    """

    tokens: Array
    law: Law
    num: Array
    count: Array


class Drafter(NamedTuple):
    """Proposes tokens.

    init: (params, Prompt, L) -> cache. draft: (key [B], params, Request, State) ->
    (Draft, cache). gamma: G, the most that it drafts. vocab: V, None for any.
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
    observe: (params, cache, Kept) -> cache, which learns from what the target said in
    a step; None learns nothing, and costs nothing.
    """

    init: Callable
    draft: Callable
    gamma: int
    vocab: int | None = None
    shapes: Any = None
    slots: int | None = None
    siblings: str | None = None
    depth: int | None = None
    widths: tuple[int, ...] = ()
    stops: bool = False
    observe: Callable | None = None


class FusedRule(NamedTuple):
    """Static: what Algorithm 1 compares, told to a kernel that computes it.

    lenience: l of Appendix A.5, `scaled` whether its residual is p - l q. sigmoid:
    (alpha, beta) of the lossy rule of Wagner et al. (2024), Eq. 5, or None.
    """

    lenience: float = 1.0
    scaled: bool = False
    sigmoid: tuple[float, float] | None = None


class Verifier(NamedTuple):
    """Keeps a prefix of a draft and adds a token; all randomness is an argument.

    noise: (request key [B], start [B], G, V) -> noise, of the verifier's own shape, for
    the iteration that begins at length `start`.
    verify: (Law [B, G + 1], Draft, noise, keep_residual=False) -> Verdict, pure.
    guarantee: "exact law", "pathwise" (besides, the text is that of the same keys
    without a drafter), or in what it is lossy. coupled: it keeps most where drafts are
    drawn by `drafters.rollout.coupled`. law: (logits [B, G + 1, V], Sampling) -> the
    target's Law as `verify` wants it, for a fused one; None is `probs.standardize`.
    rule: what `verify` computes, where a kernel may stand for it; None where none does.
    siblings: the kinds of `Drafter.siblings` whose trees it verifies; () is chains.
    """

    noise: Callable
    verify: Callable
    guarantee: str = "exact law"
    coupled: bool = False
    law: Callable | None = None
    rule: FusedRule | None = None
    siblings: tuple[str, ...] = ()


class Lossy(NamedTuple):
    """Static: a rule that gives up the target's law. build: (number) -> Verifier;
    number: the one taken for the bare name; meaning: what it is."""

    build: Callable
    number: float
    meaning: str


class Kernels(NamedTuple):
    """What reads the logits of both models in a decoder, and how it was chosen.

    verifier: of speculative steps. draw: how drafts are drawn, of `drafters.rollout`.
    alone: the verifier of the baseline, gamma = 0. record: what ran and why, plain, for
    whatever is measured with it.
    """

    verifier: Verifier
    draw: Callable
    alone: Verifier
    record: dict


class Policy(NamedTuple):
    """Chooses how much to draft next from what was measured, never from the target.

    init: (B, G) -> (budget [B], carry), leaves [B, ...].
    update: (budget, carry, Info) -> (budget, carry).
    go_on: (carry, Law [B], token [B], slot) -> (carry, bool [B]), told of each token as
    it was drawn and from what: whether the row's next is drafted. The token is kept:
    one that is dropped for what it is biases the text. None: the budget alone decides.
    widths: as `Drafter.widths`, of the lengths that it chooses; those that are not
    below gamma count for nothing.
    """

    init: Callable
    update: Callable
    go_on: Callable | None = None
    widths: tuple[int, ...] = ()
