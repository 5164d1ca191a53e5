"""A draft with another tokenizer proposes only tokens that both vocabularies have.

This is token-level intersection (TLI) of Timor et al. (ICML 2025),
https://arxiv.org/abs/2502.05202: q restricted to the common tokens and renormalized,
which is a `Reduced` law over the target's ids. The draft reads the target's text in its
own ids: a token that both have as one id, any other as several pieces. Its text is
therefore longer, by a different amount in each row. Where each token ends in it is
stored in the slot of that token, so that rejecting needs no undo here either. Axes: B
rows, T tokens in one call, S slots of the target, V ids of the target, K of them
common, M pieces of a token, P pieces of a call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.types import Branches, Draft, Drafter, Model, Prompt, Reduced

PIECES = 8  # the most pieces of a token; of a longer one the last are read
AT_ONCE = 32  # the most pieces of a row in one call of the draft


class Spelling(NamedTuple):
    """The tables by which a draft with another tokenizer reads the ids of a target.

    Attributes:
      ids: [K], the common ids, ascending.
      own: [K], the draft's ids for them.
      pieces, num: [V, M] and [V], the draft's ids that each target id is read as, and
        how many.
      head: [0 or 1], a token of the draft that begins its text.
    """

    ids: np.ndarray
    own: np.ndarray
    pieces: np.ndarray
    num: np.ndarray
    head: np.ndarray

    @property
    def stretch(self) -> int:
        """The number of the draft's ids for which there is room, for each id of the
        target."""
        return math.ceil(self.num.mean())

    def params(self, model: Any) -> dict[str, Any]:
        """Returns the parameters of `in_target_vocab`, around those of the draft."""
        place = np.full(self.num.size, self.ids.size)
        place[self.ids] = np.arange(self.ids.size)
        arrays = self._asdict() | {"place": place}
        arrays = {name: jnp.asarray(x, jnp.int32) for name, x in arrays.items()}
        return arrays | {"model": model}


def spelling(
    target: Sequence[bytes | None],
    draft: Sequence[bytes | None],
    *,
    same: Mapping[int, int],
    names: Sequence[str | None],
    head: Sequence[int] = (),
) -> Spelling:
    """Returns the tables of a target and a draft.

    A token is cut at the longest piece that the draft has; bytes without a piece are
    left out.

    Args:
      target: what each id writes, None for special ids.
      draft: what each id writes, None for special ids.
      same: special ids of the target that the draft also has, such as the end of a
        text, with the draft's ids for them.
      names: the names of the target's ids, by which other special ids are read; one
        without a name is read as the draft's id 0.
      head: see `Spelling`.
    """
    # Of ids that write the same, the last counts: pieces come after single bytes.
    draft_ids, target_ids = (
        {x: i for i, x in enumerate(each) if x} for each in (draft, target)
    )
    longest = max(map(len, draft_ids), default=0)

    def tokenize(text: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(text):
            ends = range(min(longest, len(text) - at), 0, -1)
            size = next((n for n in ends if text[at : at + n] in draft_ids), 0)
            ids += [draft_ids[text[at : at + size]]] if size else []
            at += size or 1
        return ids[-PIECES:] or [0]

    pieces = np.zeros((len(target), PIECES), np.int32)
    count = np.zeros(len(target), np.int32)
    for i, text in enumerate(target):
        name = (names[i] or "").encode()
        ids = [same[i]] if i in same else tokenize(name if text is None else text)
        pieces[i, : len(ids)], count[i] = ids, len(ids)
    common = {i: draft_ids[x] for x, i in target_ids.items() if x in draft_ids}
    common |= dict(same)
    ids = np.array(sorted(common), int)
    own = np.array([common[i] for i in ids], int)
    return Spelling(ids, own, pieces[:, : count.max()], count, np.array(head, int))


class TargetVocabCache(NamedTuple):
    """The cache of a draft in the target's vocabulary.

    model: the draft's own cache.
    ends: [B, S + 1], the draft's length after each number of target tokens.
    """

    model: Any
    ends: Array


def in_target_vocab(model: Model, vocab: int, stretch: int) -> Model:
    """Returns a model over the `vocab` ids of a target, which runs the draft in its own
    ids.

    Its parameters are `Spelling.params`. stretch: the ids of the draft for which it has
    room, for each slot of the target; a text that needs more is read wrongly, see
    `limit_to_room`.
    """

    def init(params: Any, prompt: Prompt, slots: int) -> TargetVocabCache:
        batch, head = prompt.length.size, params["head"]
        own = room(model, stretch, slots) + AT_ONCE
        cache = model.init(params["model"], prompt, own)
        ends = jnp.zeros((batch, slots + 1), jnp.int32).at[:, 0].set(head.size)
        if head.size:
            block = jnp.broadcast_to(head, (batch, head.size))
            _, cache = model.apply(params["model"], block, 0 * ends[:, 0], cache)
        return TargetVocabCache(cache, ends)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: TargetVocabCache,
        branches: Branches | None = None,
    ) -> tuple[Array, TargetVocabCache]:
        begin = jnp.take_along_axis(cache.ends, start[:, None], axis=1)
        after = jnp.cumsum(params["num"][tokens], axis=1)
        put = jax.vmap(jax.lax.dynamic_update_slice)
        ends = put(cache.ends, begin + after, start[:, None] + 1)
        if branches is not None:  # drafted tokens are one id of the draft each
            block = params["pieces"][tokens, 0]
            features, own = model.apply(
                params["model"], block, begin[:, 0], cache.model, branches
            )
            return features, TargetVocabCache(own, ends)
        last = room(model, stretch, ends.shape[1] - 1)
        width = min(tokens.shape[1], AT_ONCE, model.portion or AT_ONCE)
        stream = spell_out(params, tokens, after, width)
        total = after[:, -1]

        def read(carry: tuple) -> tuple:
            at, features, own = carry
            block = jax.lax.dynamic_slice_in_dim(stream, at, width, axis=1)
            # A row that is done writes after its end, and never over its own text.
            here = jnp.minimum(begin[:, 0] + jnp.minimum(at, total), last)
            out, own = model.apply(params["model"], block, here, own)
            index = after - 1 - at  # the place of each token's last piece in this call
            last_piece = jnp.clip(index, 0, width - 1)[..., None]
            found = jnp.take_along_axis(out, last_piece, axis=1)
            inside = ((index >= 0) & (index < width))[..., None]
            return at + width, jnp.where(inside, found, features), own

        shape = jax.eval_shape(
            model.apply, params["model"], stream[:, :width], begin[:, 0], cache.model
        )[0]
        features = jnp.zeros((*tokens.shape, shape.shape[-1]), shape.dtype)
        carry = jnp.int32(0), features, cache.model
        most = jnp.max(total)
        _, features, own = jax.lax.while_loop(lambda x: x[0] < most, read, carry)
        return features, TargetVocabCache(own, ends)

    def readout(params: Any, features: Array) -> Reduced:
        logits = model.readout(params["model"], features)[..., params["own"]]
        return Reduced(logits, params["ids"], params["place"])

    portion = model.portion and max(model.portion - PIECES, 1)
    return model._replace(
        init=init,
        apply=apply,
        readout=readout,
        vocab=vocab,
        portion=portion,
        shapes=None,
        keep=None,
    )


def room(model: Model, stretch: int, slots: int) -> int:
    """Returns the number of the draft's ids that fit, for a target with `slots` slots.

    Each token of the target is at most `stretch` ids of the draft.
    """
    return min(stretch * slots, model.slots or stretch * slots)


def spell_out(params: Any, tokens: Array, after: Array, width: int) -> Array:
    """Returns the draft's ids for tokens [B, T], one token after the other: [B, P],
    where P is a multiple of `width`.

    after: [B, T], the cumulative counts of pieces; entries beyond them are arbitrary.
    """
    most = params["pieces"].shape[1] * tokens.shape[1]
    place = jnp.arange(-(-most // width) * width)
    which = jax.vmap(lambda row: jnp.searchsorted(row, place, side="right"))(after)
    which = jnp.minimum(which, tokens.shape[1] - 1)
    whose, ends = (jnp.take_along_axis(x, which, axis=1) for x in (tokens, after))
    count = params["num"][whose]
    inside = jnp.clip(place - ends + count, 0, params["pieces"].shape[1] - 1)
    return params["pieces"][whose, inside]


def limit_to_room(drafter: Drafter, model: Model, stretch: int) -> Drafter:
    """Returns a drafter that drafts nothing where the draft has no room for the text.

    drafter: by `in_target_vocab`, of the draft `model`. The room must hold the text and
    what would be drafted, in the draft's ids.
    """

    def draft(
        key: Array, params: Any, request: Any, state: Any, *go_on: Callable
    ) -> tuple[Draft, TargetVocabCache]:
        draft, cache = drafter.draft(key, params, request, state, *go_on)
        end = jnp.take_along_axis(cache.ends, state.length[:, None], axis=1)[:, 0]
        last = room(model, stretch, cache.ends.shape[1] - 1)
        fits = end + drafter.gamma <= last + 1
        return draft._replace(num=jnp.where(fits, draft.num, 0)), cache

    return drafter._replace(draft=draft)
