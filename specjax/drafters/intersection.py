"""A draft with another tokenizer: it says the tokens that both vocabularies have.

Token-level intersection (TLI) of Timor et al. (ICML 2025),
https://arxiv.org/abs/2502.05202: q restricted to the common tokens and renormalised,
which is a `Reduced` law of the target's ids. The draft reads the target's text in its
own ids: a token that it has as one id, another piece by piece. So its text is longer,
and each row's own: the end of every token is kept in a slot of that token, and
rejecting needs no undo, as ever.
Axes: B rows, T tokens in one call, S slots of the target, V ids of the target, K of
them common, M pieces of a token, P pieces of a call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Branches, Draft, Drafter, Model, Prompt, Reduced

PIECES = 8  # of a token, at most; of a longer one the last are read
AT_ONCE = 32  # pieces that a row is read by in one call of the draft


class Spelling(NamedTuple):
    """How the ids of a target are read by a draft. ids [K]: the common ones, ascending;
    own [K]: what they are to the draft. pieces [V, M] and count [V]: the draft's ids
    that each is read as. head [0 or 1]: what the draft's text begins with besides."""

    ids: np.ndarray
    own: np.ndarray
    pieces: np.ndarray
    count: np.ndarray
    head: np.ndarray

    @property
    def stretch(self) -> int:
        """How many ids of the draft there is room for, for each of the target's."""
        return math.ceil(self.count.mean())

    def params(self, model: Any) -> dict[str, Any]:
        """The parameters of `told`, for a draft's own."""
        place = np.full(self.count.size, self.ids.size)
        place[self.ids] = np.arange(self.ids.size)
        arrays = self._asdict() | {"place": place}
        arrays = {name: jnp.asarray(x, jnp.int32) for name, x in arrays.items()}
        return arrays | {"model": model}


def spelling(
    target: Sequence[bytes | None],
    draft: Sequence[bytes | None],
    same: Mapping[int, int],
    names: Sequence[str | None],
    head: Sequence[int] = (),
) -> Spelling:
    """The tables of a pair. target, draft: what each id writes, None of special ones.
    same: special ids of the target that the draft has, as the end of a text, and what
    they are to it. names: of the target's ids, by which other special ones are read;
    one without a name is read as the draft's id 0. head: see `Spelling`. A token is cut
    at the longest piece that the draft has, and what it has no piece of is left out."""
    # Of ids that write the same, the last: pieces come after those of single bytes.
    known, mine = ({x: i for i, x in enumerate(each) if x} for each in (draft, target))
    longest = max(map(len, known), default=0)

    def cut(text: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(text):
            ends = range(min(longest, len(text) - at), 0, -1)
            size = next((n for n in ends if text[at : at + n] in known), 0)
            ids += [known[text[at : at + size]]] if size else []
            at += size or 1
        return ids[-PIECES:] or [0]

    pieces = np.zeros((len(target), PIECES), np.int32)
    count = np.zeros(len(target), np.int32)
    for i, text in enumerate(target):
        name = (names[i] or "").encode()
        ids = [same[i]] if i in same else cut(name if text is None else text)
        pieces[i, : len(ids)], count[i] = ids, len(ids)
    common = {i: known[x] for x, i in mine.items() if x in known} | dict(same)
    ids = np.array(sorted(common), int)
    own = np.array([common[i] for i in ids], int)
    return Spelling(ids, own, pieces[:, : count.max()], count, np.array(head, int))


class Told(NamedTuple):
    """model: the draft's own cache. ends [B, S + 1]: its length after the first so many
    tokens of the target."""

    model: Any
    ends: Array


def told(model: Model, vocab: int, stretch: int) -> Model:
    """A draft among the `vocab` ids of a target, with the parameters of
    `Spelling.params`. stretch: its room is so many ids for each slot of the target; a
    text that takes more is read wrong, see `held`."""

    def init(params: Any, prompt: Prompt, slots: int) -> Told:
        batch, head = prompt.length.size, params["head"]
        own = room(model, stretch, slots) + AT_ONCE
        cache = model.init(params["model"], prompt, own)
        ends = jnp.zeros((batch, slots + 1), jnp.int32).at[:, 0].set(head.size)
        if head.size:
            block = jnp.broadcast_to(head, (batch, head.size))
            _, cache = model.apply(params["model"], block, 0 * ends[:, 0], cache)
        return Told(cache, ends)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Told,
        branches: Branches | None = None,
    ) -> tuple[Array, Told]:
        begin = jnp.take_along_axis(cache.ends, start[:, None], axis=1)
        after = jnp.cumsum(params["count"][tokens], axis=1)
        put = jax.vmap(jax.lax.dynamic_update_slice)
        ends = put(cache.ends, begin + after, start[:, None] + 1)
        if branches is not None:  # drafted ones, which are an id each
            block = params["pieces"][tokens, 0]
            call = block, begin[:, 0], cache.model, branches
            features, own = model.apply(params["model"], *call)
            return features, Told(own, ends)
        last = room(model, stretch, ends.shape[1] - 1)
        width = min(tokens.shape[1], AT_ONCE, model.portion or AT_ONCE)
        stream = spelled_out(params, tokens, after, width)
        total = after[:, -1]

        def read(carry: tuple) -> tuple:
            at, features, own = carry
            block = jax.lax.dynamic_slice_in_dim(stream, at, width, axis=1)
            # A row that is done writes behind its end, and never over what it holds.
            here = jnp.minimum(begin[:, 0] + jnp.minimum(at, total), last)
            out, own = model.apply(params["model"], block, here, own)
            index = after - 1 - at  # of each token's last piece in this call
            last_piece = jnp.clip(index, 0, width - 1)[..., None]
            found = jnp.take_along_axis(out, last_piece, axis=1)
            inside = ((index >= 0) & (index < width))[..., None]
            return at + width, jnp.where(inside, found, features), own

        block = stream[:, :width], begin[:, 0], cache.model
        shape = jax.eval_shape(model.apply, params["model"], *block)[0]
        features = jnp.zeros((*tokens.shape, shape.shape[-1]), shape.dtype)
        carry = jnp.int32(0), features, cache.model
        most = jnp.max(total)
        _, features, own = jax.lax.while_loop(lambda x: x[0] < most, read, carry)
        return features, Told(own, ends)

    def readout(params: Any, features: Array) -> Reduced:
        logits = model.readout(params["model"], features)[..., params["own"]]
        return Reduced(logits, params["ids"], params["place"])

    portion = model.portion and max(model.portion - PIECES, 1)
    own = dict(vocab=vocab, portion=portion, shapes=None, keep=None)
    return model._replace(init=init, apply=apply, readout=readout, **own)


def room(model: Model, stretch: int, slots: int) -> int:
    """The draft's ids that count, for so many slots of the target."""
    return min(stretch * slots, model.slots or stretch * slots)


def spelled_out(params: Any, tokens: Array, after: Array, width: int) -> Array:
    """The pieces of tokens [B, T], one after the other, [B, P]: P is a multiple of
    `width`; what lies beyond `after`, their counts summed up [B, T], is any."""
    most = params["pieces"].shape[1] * tokens.shape[1]
    place = jnp.arange(-(-most // width) * width)
    which = jax.vmap(lambda row: jnp.searchsorted(row, place, side="right"))(after)
    which = jnp.minimum(which, tokens.shape[1] - 1)
    whose, ends = (jnp.take_along_axis(x, which, axis=1) for x in (tokens, after))
    count = params["count"][whose]
    inside = jnp.clip(place - ends + count, 0, params["pieces"].shape[1] - 1)
    return params["pieces"][whose, inside]


def held(drafter: Drafter, model: Model, stretch: int) -> Drafter:
    """A drafter by `told`, of the draft `model`, which drafts nothing where the text
    and what would be drafted take more of the draft's ids than there is room for."""

    def draft(
        key: Array, params: Any, request: Any, state: Any, *go_on: Callable
    ) -> tuple[Draft, Told]:
        draft, cache = drafter.draft(key, params, request, state, *go_on)
        end = jnp.take_along_axis(cache.ends, state.length[:, None], axis=1)[:, 0]
        last = room(model, stretch, cache.ends.shape[1] - 1)
        fits = end + drafter.gamma <= last + 1
        return draft._replace(num=jnp.where(fits, draft.num, 0)), cache

    return drafter._replace(draft=draft)
