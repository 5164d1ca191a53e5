"""The tokens in a GGUF file: which of them are special, and which end a text.

They are found as llama.cpp finds them (`llama_vocab::impl::load` of its
src/llama-vocab.cpp): by the keys of the header, by names that it knows, and by its
defaults.
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
# Parts of a file to fill in: the first of these names that is a token marks the part,
# where no key names its id. The tokens of `ENDING` end a text too.
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
# Two conventions of messages: these tokens are text, and so is a token that would end a
# text, if all of the others are there too.
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
    """The tokens of a file.

    kinds: the kind of each. named: ids by name, such as bos, where the file or
    llama.cpp has one. ends: ids that each end a text.
    """

    texts: list[str]
    kinds: list[int]
    named: dict[str, int]
    ends: tuple[int, ...]


def vocabulary(held: Contents) -> Vocabulary:
    """Returns the tokens that a header names, or only its ids where it names none.
    Raises ValueError for a key whose value has another type than the format
    requires."""
    texts = read_list(held, f"{AT}tokens", str)
    texts = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
    kinds = read_list(held, f"{AT}token_type", int) or [NORMAL] * len(texts)
    if len(kinds) < len(texts):
        raise ValueError(f"{held.path}: {AT}token_type is shorter than {AT}tokens")
    ids, kinds = {text: i for i, text in enumerate(texts)}, kinds[: len(texts)]
    named = _ids_by_name(held, len(texts))
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


def _ids_by_name(held: Contents, count: int) -> dict[str, int]:
    """Returns the ids that a header gives to names, or that llama.cpp assumes for them;
    ids outside the vocabulary are left out."""
    usual = IDS.get(read_value(held, f"{AT}model", str, ""), {}) if count else {}
    named = {}
    for name in (*NAMED, "eot", "eom", *FILLS):
        stated = read_value(held, f"{AT}{NAMED.get(name, name)}_token_id", int, -1)
        for i in (stated, usual.get(name, -1)):
            if 0 <= i and (i < count or not count):
                named[name] = i
                break
    return named


def read_value(held: Contents, key: str, kind: type, default: Any) -> Any:
    """Returns the value of a key. Raises ValueError for a value of another type."""
    return _check_type(held, key, held.fields.get(key, default), kind)


def read_list(held: Contents, key: str, *kinds: type) -> list[Any]:
    """Returns a list of values of one type, that of the first. Raises ValueError for
    values of another type."""
    values = read_value(held, key, list, [])
    return [_check_type(held, key, values[0], *kinds), *values[1:]] if values else []


def _check_type(held: Contents, key: str, value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(
            f"{held.path}: {key} has {reprlib.repr(value)} where the format has"
            f" {' or '.join(kind.__name__ for kind in kinds)}: download it again"
        )
    return value
