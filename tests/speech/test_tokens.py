"""Special tokens are read from every kind of file; prompts have them, and some ids are
never written."""

import base64
import json

import pytest

from specjax.speech import languages, limits, tiktoken, tokens
from specjax.speech.limits import Limits
from tests.support.tiny_whisper import IDS, TOKENS

MERGED = [b"th", b"the", b" the", b" t", b"\xc3\xa9", b"in"]
MERGED += [b"xyz"]  # of no two others


def write(folder, kind):
    """Writes the small model's special tokens to one kind of file."""
    told = {name: number for name, number in IDS.items() if number > 20}
    if kind == "tokenizer.json":
        ids = IDS | {"<|0.00|>": 30}
        told = {"added_tokens": [{"content": x, "id": i} for x, i in ids.items()]}
    else:
        (folder / "vocab.json").write_text('{"<|endoftext|>": 20, "a": 0}')
    if kind == "tokenizer_config.json":
        told = {"added_tokens_decoder": {i: {"content": x} for x, i in told.items()}}
    (folder / kind).write_text(json.dumps(told))


KINDS = ["tokenizer.json", "added_tokens.json", "tokenizer_config.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_tells_the_same(kind, tmp_path):
    write(tmp_path, kind)
    generation = tmp_path / "generation_config.json"
    generation.write_text('{"is_multilingual": true}')
    assert tokens.read(tmp_path) == TOKENS
    generation.unlink()
    assert tokens.read(tmp_path) == TOKENS._replace(languages={})  # few ids
    (tmp_path / "config.json").write_text('{"vocab_size": 51865}')
    assert tokens.read(tmp_path) == TOKENS


FORCED = {"forced_decoder_ids": [[1, 23], [2, 24]]}
TUNED = [
    ({"language": "<|de|>"}, {}, ("de", None)),
    ({"language": "German", "task": "translate"}, {}, ("de", "translate")),
    (FORCED, {}, ("de", "translate")),
    ({}, FORCED, ("de", "translate")),
    ({"task": "transcribe"}, FORCED, (None, "transcribe")),  # the old way is not read
    ({"forced_decoder_ids": [[1, None], [2, 25]]}, FORCED, (None, "transcribe")),
    ({}, {}, (None, None)),
]


def test_a_fine_tune_has_a_language_and_a_task_of_its_own(tmp_path):
    def read(generation, config):
        told = {"is_multilingual": True} | generation
        (tmp_path / "generation_config.json").write_text(json.dumps(told))
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tokens.read(tmp_path)

    write(tmp_path, "tokenizer.json")
    for generation, config, own in TUNED:
        tuned = read(generation, config)
        assert (tuned.language, tuned.task) == own
        language, task = own[0] or "en", own[1] or "transcribe"
        assert tokens.prompt(tuned) == tokens.prompt(TOKENS, language, task)
        assert tokens.prompt(tuned, "en", "transcribe") == [21, 22, 25]  # if asked for
    for field, line in (
        ({"language": "fr"}, "no language 'fr'"),
        ({"language": ["de"]}, "language is"),
        ({"task": "sing"}, "names the task 'sing'"),
    ):
        with pytest.raises(ValueError, match=line):
            read(field, {})


def test_languages_go_by_names_and_codes():
    known = tiktoken.LANGUAGES
    for asked in ("de", "DE", "German", "german", " GERMAN ", "<|de|>"):
        assert languages.code(asked, known) == "de"
    aliases = {"Haitian Creole": "ht", "Castilian": "es", "cantonese": "yue"}
    aliases |= {"Burmese": "my", "Myanmar": "my", "sundanese": "su", "hawaiian": "haw"}
    assert {asked: languages.code(asked, known) for asked in aliases} == aliases
    for asked in ("cantonese", "", 5):
        with pytest.raises(ValueError, match="choose one of en, zh"):
            languages.code(asked, known[:99])
    assert tokens.prompt(TOKENS, "German") == [21, 23, 25]


def test_ids_are_those_of_the_published_models():
    for vocab, count, spoken, start, first in (
        (51864, 50256, 0, 50257, 50363),  # tiny.en
        (51865, 50257, 99, 50258, 50364),  # tiny, large-v2
        (51866, 50257, 100, 50258, 50365),  # large-v3
    ):
        names = tiktoken.special_ids(count, vocab - count - tiktoken.OTHERS)
        whisper = tokens.make_tokens(names, vocab >= 51865)
        assert (whisper.start, whisper.first_time) == (start, first)
        assert whisper.first_time + tokens.STEPS == vocab - 1
        assert len(whisper.languages) == spoken
        assert whisper.no_timestamps == first - 1 and whisper.no_speech == first - 2
        assert not spoken or whisper.languages["su"] == 50357
        assert tokens.make_tokens(names) == whisper


def write_ranks(folder, count=None):
    """Writes a file of the 256 bytes and a few merges, or of `count` meaningless
    tokens."""
    texts = [bytes([i]) for i in range(256)] + MERGED
    if count:
        texts = [i.to_bytes(3, "big") for i in range(count - 1)]
    rows = [f"{base64.b64encode(x).decode()} {i}" for i, x in enumerate(texts)]
    path = folder / "multilingual.tiktoken"
    rows += [f"= {len(rows)}"]  # as the published one ends
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_tiktoken_file_tells_them_by_its_length(tmp_path):
    write_ranks(tmp_path, 50257)
    assert len(tokens.read(tmp_path).languages) == 99
    (tmp_path / "config.json").write_text('{"vocab_size": 51866}')
    large = tokens.read(tmp_path)
    assert large.languages["yue"] == 50358 and large.first_time == 50365
    (tmp_path / "config.json").write_text('{"vocab_size": 60000}')
    with pytest.raises(ValueError, match="different models"):
        tokens.read(tmp_path)


def test_a_tiktoken_file_reads_and_writes_text(tmp_path):
    pytest.importorskip("tokenizers")
    coder = tiktoken.read(write_ranks(tmp_path))
    assert coder.vocab == 256 + len(MERGED) + 1
    text = " the tin café\n"
    ids = coder.encode(text)
    # " t" has a worse rank than "the", so " the" is written by its own merge.
    assert ids[:3] == [258, 259, 261] and 260 in ids
    assert coder.decode(ids) == text
    assert len(coder.encode("xyz")) == 3


def test_damaged_files_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        tokens.read(tmp_path)
    path = tmp_path / "a.tiktoken"
    for content in ("words\n", "IQ== 1\n", "I?== 0\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"a\.tiktoken"):
            tokens.read(tmp_path)
    with pytest.raises(ValueError, match=r"no token <\|endoftext\|>"):
        tokens.make_tokens({"<|transcribe|>": 3})
    with pytest.raises(ValueError, match="order"):
        tokens.make_tokens(IDS | {"<|endoftext|>": 60})


def test_prompts_are_in_whispers_order():
    assert tokens.prompt(TOKENS) == [21, 22, 25]
    assert tokens.prompt(TOKENS, "de", "translate", False) == [21, 23, 24, 29]
    past = list(range(19)) * 20
    long = tokens.prompt(TOKENS, "en", previous=past)
    assert long == [27, *past[-223:], 21, 22, 25]
    short = [27, *past[-3:], 21, 22, 25]
    assert tokens.prompt(TOKENS, previous=past, context=8) == short
    assert tokens.prompt(TOKENS, previous=past, context=2) == [21, 22, 25]
    english = TOKENS._replace(languages={})
    assert tokens.prompt(english, "English", timestamps=False) == [21, 29]
    for model, asked, line in (
        (TOKENS, {"language": "fr"}, "no language 'fr': choose one of en, de"),
        (TOKENS, {"task": "sing"}, "no task 'sing'"),
        (english, {"language": "de"}, "English only"),
        (english, {"task": "translate"}, "English only"),
    ):
        with pytest.raises(ValueError, match=line):
            tokens.prompt(model, **asked)


def test_text_is_neither_special_nor_a_time():
    last = 30 + tokens.STEPS
    assert tokens.text_ids(TOKENS, [30, 3, last + 1, 31, 20, last]) == [3, last + 1]


def test_one_file_tells_what_a_folder_never_writes(tmp_path):
    def read(name: str, **fields):
        (tmp_path / name).write_text(json.dumps(fields))
        return limits.read(tmp_path)

    assert limits.read(tmp_path) == Limits((), (), 50)  # neither: a bundled model
    lists = {"suppress_tokens": [-1, 1, 2], "begin_suppress_tokens": [3]}
    lists |= {"max_initial_timestamp_index": 7}
    assert read("config.json", **lists) == Limits((1, 2), (3,), None)
    told, first = "generation_config.json", {"max_initial_timestamp_index": 1}
    assert read(told, suppress_tokens=[4], **first) == Limits((4,), (), 1)
    assert read(told) == Limits((), (), None)
    for bad in {"suppress_tokens": ["a"]}, {"max_initial_timestamp_index": -1}:
        with pytest.raises(ValueError, match="write"):
            read(told, **bad)


def test_openai_s_own_are_made_from_the_vocabulary():
    """The vocabulary is small: one id for each of these tokens, and bytes for all
    others."""
    texts = [" ", "(", " (", '("', " [", " -", " '", "--", "-", "~", " w"]
    texts += ["\xe2", " \xe2", "\x99", "\xab", "\xaa"]
    ids = {text: i for i, text in enumerate(texts)}
    special = tokens.make_tokens(tiktoken.special_ids(len(texts)), several=True)

    def encode(text: str) -> list[int]:
        """Encodes the longest tokens first, with the special ids that a folder's
        tokenizer may add."""
        rest, read = text.encode().decode("latin-1"), [special.start]
        while rest:
            size = max((n for n in (1, 2) if rest[:n] in ids), default=0)
            read, rest = [*read, ids.get(rest[:size], ids["\xaa"])], rest[size or 1 :]
        return [*read, special.end]

    never, at_first, latest = limits.openai_limits(special, encode)
    silent = {i for i in never if i < special.end}
    # A hyphen within a word, a space and a word are none of them.
    wanted = {"(", " (", '("', " [", " -", " '", "--", "~", "\xe2", " \xe2"}
    assert {texts[i] for i in silent} - {"\xaa"} == wanted
    names = "startoftranscript transcribe translate startoflm startofprev nospeech"
    named = tiktoken.special_ids(len(texts))
    assert {*never} - silent == {named[f"<|{name}|>"] for name in names.split()}
    assert at_first == (0, special.end) and latest == 50
