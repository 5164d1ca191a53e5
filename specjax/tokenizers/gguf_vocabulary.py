"""The tokens within a GGUF file: which are special, and which end a text.

As llama.cpp finds them (`llama_vocab::impl::load` of its src/llama-vocab.cpp): by the
keys of the header, by names that it knows, and by its defaults.
"""

import reprlib
from typing import Any, NamedTuple

from specjax.tokenizers.gguf_file import Contents

AT = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, OWN, BYTE = 1, 2, 3, 4, 6  # kinds of tokens
PAIRS, PIECES = "gpt2", "llama"  # kinds of tokenizers
NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # ids
# Where the file names none, by the kind of a tokenizer.
IDS = {PAIRS: {"bos": 11, "eos": 11}, PIECES: {"bos": 1, "eos": 2, "unk": 0}}
# Tokens that end a text by their names, whatever the file says of its ends.
ENDS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>"),
    *("<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>"),
    *("_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>"),
    *("<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
)
# Parts of a file to fill in: the first of these names has the part, where no key says
# which id does. What is behind a part ends a text too.
FILLS = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<|code_prefix|>"),
        *("<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>", "<|prefix|>"),
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<|code_suffix|>"),
        *("<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>", "<|suffix|>"),
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<|code_middle|>"),
        *("<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>", "<|middle|>"),
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
ENDING = "fim_pad", "fim_rep", "fim_sep"
# Of two conventions of messages: these tokens are text, and so is the one that would
# end a text if all of the others were not there too.
SHOWN = "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"
NO_END = (
    ("<|end|>", OWN, ("<|return|>", "<|call|>")),
    ("<|end|>", OWN, ("<|return|>", "<|calls|>")),
    ("<|end|>", OWN, ("<|call|>", "<|flush|>")),
    ("<|end|>", OWN, ("<|calls|>", "<|flush|>")),
    ("</s>", NORMAL, ("<|tool_response>",)),
    ("</s>", NORMAL, ("<|plamo:eos|>",)),
)


class Vocabulary(NamedTuple):
    """The tokens of a file. kinds: of each. named: ids by name, such as bos, where the
    file or llama.cpp has one. ends: ids that each end a text."""

    texts: list[str]
    kinds: list[int]
    named: dict[str, int]
    ends: tuple[int, ...]


def vocabulary(held: Contents) -> Vocabulary:
    """The tokens that a header names; without them, its ids alone. Raises ValueError
    for a key whose value is of another type than the format's."""
    texts = list_of(held, f"{AT}tokens", str)
    texts = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
    kinds = list_of(held, f"{AT}token_type", int) or [NORMAL] * len(texts)
    if len(kinds) < len(texts):
        raise ValueError(f"{held.path}: {AT}token_type is shorter than {AT}tokens")
    ids, kinds = {text: i for i, text in enumerate(texts)}, kinds[: len(texts)]
    named = _named(held, len(texts))
    for name, known in FILLS.items():
        found = [ids[text] for text in known if text in ids]
        if name not in named and found:
            named[name], kinds[found[0]] = found[0], CONTROL
    by_name = sorted(ids[text] for text in ENDS if text in ids)
    for i in by_name:
        kinds[i] = CONTROL
    for text in SHOWN:
        if text in ids:
            kinds[ids[text]] = OWN
    listed = (named.get(name) for name in ("eos", "eot", "eom", *ENDING))
    ends = dict.fromkeys([*(i for i in listed if i is not None), *by_name])
    ending = {texts[i] for i in ends if i < len(texts)}
    for text, kind, others in NO_END:
        if text in ending and ending.issuperset(others):
            ends.pop(ids[text], None)
            kinds[ids[text]] = kind
    return Vocabulary(texts, kinds, named, tuple(ends))


def _named(held: Contents, count: int) -> dict[str, int]:
    """The ids that a header gives to names, or that llama.cpp takes for them; an id
    that the vocabulary lacks is none."""
    usual = IDS.get(value_of(held, f"{AT}model", str, ""), {}) if count else {}
    named = {}
    for name in (*NAMED, "eot", "eom", *FILLS):
        stated = value_of(held, f"{AT}{NAMED.get(name, name)}_token_id", int, -1)
        for i in (stated, usual.get(name, -1)):
            if 0 <= i and (i < count or not count):
                named[name] = i
                break
    return named


def value_of(held: Contents, key: str, kind: type, default: Any) -> Any:
    return _checked(held, key, held.fields.get(key, default), kind)


def list_of(held: Contents, key: str, *kinds: type) -> list[Any]:
    """Values that have one type in the format, which the first tells."""
    values = value_of(held, key, list, [])
    return [_checked(held, key, values[0], *kinds), *values[1:]] if values else []


def _checked(held: Contents, key: str, value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(
            f"{held.path}: {key} has {reprlib.repr(value)} where the format has"
            f" {' or '.join(kind.__name__ for kind in kinds)}: download it again"
        )
    return value
