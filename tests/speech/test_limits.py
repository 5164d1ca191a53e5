"""What is never written, as each format says it."""

import json

import pytest

from specjax.speech import limits, tiktoken, tokens
from specjax.speech.limits import Limits


def write(folder, generation=None, config=None):
    pairs = ("generation_config.json", generation), ("config.json", config)
    for name, fields in pairs:
        if fields is not None:
            (folder / name).write_text(json.dumps(fields))
    return folder


LISTS = {"suppress_tokens": [-1, 1, 2], "begin_suppress_tokens": [3]}


def test_one_file_tells_what_a_folder_never_writes(tmp_path):
    assert limits.read(tmp_path) == Limits((), (), 50)  # neither: a bundled model
    write(tmp_path, config=LISTS | {"max_initial_timestamp_index": 7})
    assert limits.read(tmp_path) == Limits((1, 2), (3,), None)
    write(tmp_path, {"suppress_tokens": [4], "max_initial_timestamp_index": 1})
    assert limits.read(tmp_path) == Limits((4,), (), 1)
    write(tmp_path, {})
    assert limits.read(tmp_path) == Limits((), (), None)


@pytest.mark.parametrize(
    "fields", [{"suppress_tokens": ["a"]}, {"max_initial_timestamp_index": -1}]
)
def test_bad_limits_are_told(fields, tmp_path):
    with pytest.raises(ValueError, match="write"):
        limits.read(write(tmp_path, fields))


def test_openai_s_own_are_made_from_the_vocabulary():
    """A small vocabulary: one id for each of these, others in their bytes."""
    texts = [" ", "(", " (", '("', " [", " -", " '", "--", "-", "~", " w"]
    texts += ["\xe2", " \xe2", "\x99", "\xab", "\xaa"]
    ids = {text: i for i, text in enumerate(texts)}
    special = tokens.of_names(tiktoken.special(len(texts)), several=True)

    def encode(text: str) -> list[int]:
        """Longest first, with the special ids that a folder's tokenizer may add."""
        rest, read = text.encode().decode("latin-1"), [special.start]
        while rest:
            size = max((n for n in (1, 2) if rest[:n] in ids), default=0)
            read, rest = [*read, ids.get(rest[:size], ids["\xaa"])], rest[size or 1 :]
        return [*read, special.end]

    never, at_first, latest = limits.of_openai(special, encode)
    silent = {i for i in never if i < special.end}
    # A hyphen within a word, a space and a word are none of them.
    wanted = {"(", " (", '("', " [", " -", " '", "--", "~", "\xe2", " \xe2"}
    assert {texts[i] for i in silent} - {"\xaa"} == wanted
    names = "startoftranscript transcribe translate startoflm startofprev nospeech"
    named = tiktoken.special(len(texts))
    assert {*never} - silent == {named[f"<|{name}|>"] for name in names.split()}
    assert at_first == (0, special.end) and latest == 50
