"""Prompts, requests and sampling settings, and the checks that they can be decoded."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from specjax import keys, probs
from specjax.runtime import hosts, jax_flags
from specjax.step import Decoder, hook_and_widths
from specjax.types import Encoded, Features, Model, Params, Prompt, Request, Sampling


def make_prompt(
    texts: Sequence[Sequence[int]], inputs: Sequence[Sequence[int]] | None = None
) -> Prompt:
    """Returns a prompt of token lists of different lengths, right-padded.

    Args:
      texts: a list per row, with at least the start token.
      inputs: what an encoder reads, a list per row.

    Raises:
      ValueError: for an empty list.
    """
    if not texts or not all(len(text) for text in texts):
        raise ValueError("a prompt is empty: begin each with the model's start token")
    if inputs is None:
        return Prompt(*pad(texts))
    if len(inputs) != len(texts) or not all(len(text) for text in inputs):
        raise ValueError(
            f"{len(texts)} prompts and {len(inputs)} inputs, of which none may be"
            " empty: give each row its own, at least the end token"
        )
    return Prompt(*pad(texts), pad(inputs))


def pad(texts: Sequence[Sequence[int]], width: int = 0) -> tuple[Array, Array]:
    """Returns token lists right-padded with 0, and their lengths: [B, T], [B].

    T is the longest length, or `width`.
    """
    length = np.array([len(text) for text in texts], np.int32)
    tokens = np.zeros((len(texts), max(width, length.max())), np.int32)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = text
    return jnp.asarray(tokens), jnp.asarray(length)


def bucket(width: int, most: int | None = None) -> int:
    """Returns the width that prompts of up to `width` tokens are padded to.

    Prompts of one width share what is compiled. The widths are 8 and its doubles up to
    512, then multiples of 256; 1 stays 1, the width of every decoder's start token.
    Where the bucket would be above `most`, there is no room and the result is `width`.
    """
    if width <= 1:
        return width
    shared = max(8, 1 << (width - 1).bit_length())
    shared = shared if shared <= 512 else -(-width // 256) * 256
    return width if most is not None and shared > most else shared


def pad_to_bucket(prompt: Prompt, most: int | None = None) -> Prompt:
    """Returns the same prompt, padded to the `bucket` of its width.

    It has at most `most` tokens. The tokens that an encoder reads are padded likewise.
    """

    def pad(tokens: Array, width: int) -> Array:
        # With NumPy, because JAX would compile each width.
        more = width - tokens.shape[1]
        return jnp.asarray(np.pad(np.asarray(tokens), ((0, 0), (0, more))))

    tokens, length, inputs = prompt
    if isinstance(inputs, tuple) and not isinstance(inputs, (Features, Encoded)):
        read, *rest = inputs
        inputs = pad(read, bucket(read.shape[1])), *rest
    return Prompt(pad(tokens, bucket(tokens.shape[1], most)), length, inputs)


def make_request(
    key: Array,
    prompt: Prompt,
    new_tokens: int | Array,
    sampling: Sampling,
    eos: int | Sequence[int] = -1,
) -> Request:
    """Returns a request for each row of the prompt.

    Args:
      key: one typed key of any implementation, which is split over the rows, or [B]
        keys.
      prompt: a prompt of B rows.
      new_tokens: the most tokens to write, one number for every row or [B].
      sampling: settings [B].
      eos: the id that ends a text, or several such ids; -1 or empty for none.
    """
    batch = prompt.length.shape[0]
    each = keys.make_safe(key) if key.ndim else keys.split(key, batch)
    limit = prompt.length + jnp.asarray(new_tokens, jnp.int32)
    ids = [eos] if isinstance(eos, int | np.integer) else list(eos) or [-1]
    if len(ids) == 1:
        end = jnp.full(batch, ids[0], jnp.int32)
    else:
        end = jnp.broadcast_to(jnp.array(ids, jnp.int32), (batch, len(ids)))
    return Request(each, sampling, prompt.length, limit, end)


def make_sampling(
    batch: int,
    temperature: float | ArrayLike,
    **truncation: float | ArrayLike | None,
) -> Sampling:
    """Returns the settings of a batch: temperature, and any of top_k, top_p and min_p.

    Each is one value for every row, or [B] values; None leaves it out.
    """

    def per_row(name: str, value: float | ArrayLike) -> Array:
        dtype = jnp.int32 if name == "top_k" else jnp.float32
        if name == "top_k" and not isinstance(value, Array):
            value = np.minimum(value, np.iinfo(np.int32).max)  # more keeps every id too
        if np.ndim(value) and np.shape(value) != (batch,):
            raise ValueError(
                f"{name} has shape {np.shape(value)} for {batch} rows: give one value,"
                " or one per row"
            )
        return jnp.broadcast_to(jnp.asarray(value, dtype), (batch,))

    settings = {"temperature": temperature} | truncation
    return Sampling(
        **{
            name: per_row(name, value)
            for name, value in settings.items()
            if value is not None
        }
    )


def check(
    decoder: Decoder, slots: int, params: Params, prompt: Prompt, request: Request
) -> None:
    """Raises ValueError, with a remedy, for anything that could not be decoded.

    This covers vocabularies that differ, parameters of another shape, tokens out of
    range, a buffer that is too short, and sampling settings out of range.
    """
    jax_flags.check()
    target, drafter = decoder.target, decoder.drafter
    hook_and_widths(drafter, decoder.policy)
    if drafter.vocab is not None and drafter.vocab != target.vocab:
        raise ValueError(
            f"the drafter has a vocabulary of {drafter.vocab}, the target one of"
            f" {target.vocab}: speculative decoding needs the same tokens on both sides"
        )
    for side, weights, shapes in (
        ("target", params.target, target.shapes),
        ("draft", params.draft, drafter.shapes),
    ):
        check_shapes(side, weights, shapes)
    check_prompt(target, slots, prompt)
    check_inputs(target, prompt)
    check_limits(decoder, slots, prompt, request)
    probs.check(request.sampling, prompt.tokens.shape[0])


def check_shapes(side: str, weights: Any, shapes: Any) -> None:
    """Raises ValueError unless all parameters are there, with the shapes that the model
    has."""
    if shapes is None:
        return
    # Anything with a shape is a parameter, such as an `Int8`.
    flat = jax.tree_util.tree_flatten_with_path(weights, lambda x: hasattr(x, "shape"))
    have = dict(flat[0])
    wrong = []
    for path, wanted in jax.tree_util.tree_flatten_with_path(shapes)[0]:
        shape = have[path].shape if path in have else "missing"
        if shape != wanted.shape:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            wrong.append(f"{name}: {shape}, not {wanted.shape}")
    if wrong:
        raise ValueError(
            f"the {side}'s parameters do not fit; load those of this model (and unbox"
            " fresh ones, flax.linen.meta.unbox):\n  " + "\n  ".join(wrong)
        )


def check_tokens(
    target: Model, name: str, padded: tuple, *, batch: int, remedy: str
) -> np.ndarray:
    """Returns the ids [B, S], after a check of the ids and of their lengths [B].

    remedy: the end of the message about lengths.
    """
    tokens, length = map(np.asarray, hosts.read(padded))
    if tokens.ndim != 2 or {tokens.shape[0], *length.shape} != {batch}:
        raise ValueError(
            f"{name} must be tokens [{batch}, S] and lengths [{batch}]; got"
            f" {tokens.shape} and {length.shape}: inputs.make_prompt builds them"
        )
    if not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"{name} must be integers; got {tokens.dtype}")
    if not np.issubdtype(length.dtype, np.integer):
        raise ValueError(f"lengths of {name} must be integers; got {length.dtype}")
    if length.min() < 1 or length.max() > tokens.shape[1]:
        raise ValueError(
            f"lengths of {name} must be in 1..{tokens.shape[1]}; got {length.min()} to"
            f" {length.max()}: {remedy}"
        )
    if tokens.min() < 0 or tokens.max() >= target.vocab:
        raise ValueError(
            f"ids of {name} must be in 0..{target.vocab - 1}; got {tokens.min()} to"
            f" {tokens.max()}: is this the model's tokenizer?"
        )
    return tokens


def check_prompt(target: Model, slots: int, prompt: Prompt) -> None:
    tokens = check_tokens(
        target,
        "a prompt",
        prompt[:2],
        batch=np.shape(prompt.tokens)[0],
        remedy="begin each with the start token",
    )
    if tokens.shape[1] > slots:
        raise ValueError(
            f"the prompt is {tokens.shape[1]} tokens wide and the buffer has {slots}"
            f" slots: build with slots={tokens.shape[1]} plus the tokens to generate"
        )


def check_inputs(target: Model, prompt: Prompt) -> None:
    """Raises ValueError unless prompt.inputs are inputs that the target's encoder
    reads.

    Ids must be there, not empty, and of the model's vocabulary; features must have the
    model's shape.
    """
    if target.reads:
        check_features(target, prompt)
        return
    if prompt.inputs is None:
        if target.encodes:
            raise ValueError(
                "the target reads its task from prompt.inputs and there are none:"
                " inputs.make_prompt takes them as its second argument"
            )
        return
    if isinstance(prompt.inputs, (Features, Encoded)):
        raise ValueError(
            "prompt.inputs are a recording's features and the target reads no speech:"
            " load a Whisper as the target, or give it token ids"
        )
    check_tokens(
        target,
        "prompt.inputs",
        prompt.inputs,
        batch=prompt.tokens.shape[0],
        remedy="an input has at least its end token",
    )


def check_features(target: Model, prompt: Prompt) -> None:
    """Raises ValueError unless features, or encoder states, have the model's shape."""
    kinds = {type(kind): kind for kind in target.reads}
    kind, batch = kinds.get(type(prompt.inputs)), prompt.tokens.shape[0]
    if kind is None:
        names = " or ".join(f"types.{name.__name__}" for name in kinds)
        raise ValueError(
            f"the target hears speech: give prompt.inputs as {names}, not"
            f" {type(prompt.inputs).__name__}"
        )
    for name, array, shape in zip(kind._fields, prompt.inputs, kind, strict=True):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"prompt.inputs.{name} must be floating point, as speech.logmel gives;"
                f" got {array.dtype}"
            )
        if array.shape != (batch, *shape):
            raise ValueError(
                f"prompt.inputs.{name} must be {(batch, *shape)}, of {batch} rows and"
                f" this model's window; got {array.shape}"
            )
        if not bool(jnp.isfinite(array).all()):
            raise ValueError(
                f"prompt.inputs.{name} must be finite: is the recording damaged?"
            )


def check_limits(
    decoder: Decoder, slots: int, prompt: Prompt, request: Request
) -> None:
    start, limit = map(np.asarray, hosts.read((request.start, request.limit)))
    batch = prompt.tokens.shape[0]
    shapes = start.shape, limit.shape, request.key.shape, request.eos.shape[:1]
    if {*shapes} != {(batch,)} or request.eos.ndim > 2:
        raise ValueError(
            f"the request must have one key, start, limit and eos for each of {batch}"
            " rows; inputs.make_request builds it"
        )
    keys.check(request.key)
    if (start != hosts.read(prompt.length)).any() or (limit < start).any():
        raise ValueError(
            "each row must start at its prompt's length and end there or later; got"
            f" starts {start}, limits {limit}; inputs.make_request sets them"
        )
    check_positions(decoder.target, start, limit)
    needed = int(limit.max()) + decoder.drafter.gamma + 1
    if needed > slots:
        raise ValueError(
            f"the longest row may reach {limit.max()} tokens and a step writes up to"
            f" gamma + 1 = {decoder.drafter.gamma + 1} past it: build with"
            f" slots={needed} or more"
        )


def check_positions(target: Model, start: np.ndarray, limit: np.ndarray) -> None:
    """Raises ValueError unless every text ends within the positions that the target
    has.

    Raises:
      ValueError: for a longer text; the message says how many tokens there is room for.

    Warns:
      UserWarning: for a text that may be longer than the target was trained for. It is
        decoded all the same, exactly by the target's distribution, which is less sure
        there.
    """
    longest, prompt = int(limit.max()), int(start.max())
    if target.slots is not None and longest > target.slots:
        room = target.slots - prompt
        fix = "shorten the prompt"
        if room > 0:
            fix = f"ask for {room} new tokens or fewer, or shorten the prompt"
        raise ValueError(
            f"the target knows {target.slots} positions, and the longest prompt has"
            f" {prompt} tokens: {fix}"
        )
    if target.trained is not None and longest > target.trained:
        warnings.warn(
            f"texts may reach {longest} tokens and the target was trained for"
            f" {target.trained} (max_position_embeddings): beyond that its distribution"
            " is still followed exactly, but its texts get worse",
            stacklevel=2,
        )
