"""Special tokens and prompts as transformers' tokenizer of Whisper has them."""

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax.speech import tiktoken, tokens  # noqa: E402

CHARACTERS = {character: i for i, character in enumerate(tiktoken.CHARACTERS)}


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """A tokenizer of bytes alone with Whisper's special tokens, and its folder."""
    names = [*tiktoken.special(256, 100)]
    times = [f"<|{0.02 * i:.2f}|>" for i in range(tokens.STEPS + 1)]
    tokenizer = transformers.WhisperTokenizer(vocab=dict(CHARACTERS), merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": names[1:]})
    tokenizer.add_tokens(times)
    folder = tmp_path_factory.mktemp("whisper")
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"is_multilingual": true}')
    return tokenizer, folder


def test_special_tokens_are_read_from_what_it_saves(whisper):
    tokenizer, folder = whisper
    read, name = tokens.read(folder), tokenizer.convert_tokens_to_ids
    assert read.end == name("<|endoftext|>") and read.start == read.end + 1
    assert read.first_time == name("<|0.00|>") == read.no_timestamps + 1
    assert name("<|29.98|>") == read.first_time + 1499
    assert tokens.seconds(read, name("<|29.98|>")) == 29.98
    assert read.languages == {code: name(f"<|{code}|>") for code in tiktoken.LANGUAGES}


@pytest.mark.parametrize("language", ["en", "de", "yue"])
@pytest.mark.parametrize("task", tokens.TASKS)
@pytest.mark.parametrize("timestamps", [True, False])
def test_prompts_are_its_own(whisper, language, task, timestamps):
    tokenizer, folder = whisper
    asked = dict(language=language, task=task, predict_timestamps=timestamps)
    tokenizer.set_prefix_tokens(**asked)
    expected = tokenizer.prefix_tokens
    assert tokens.prompt(tokens.read(folder), language, task, timestamps) == expected
