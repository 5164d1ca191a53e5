"""Features, prompts, rules and joined windows equal those of transformers."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import transformers.models.whisper.tokenization_whisper as read  # noqa: E402
from transformers.generation import logits_process  # noqa: E402

from specjax.speech import chunked, logmel, rules, tiktoken, tokens  # noqa: E402
from specjax.speech.rules import Limits  # noqa: E402
from tests.speech.test_rules import texts  # noqa: E402
from tests.support.tiny_whisper import EARLIER, PROMPT, TOKENS, VOCAB  # noqa: E402

MOST = 2e-5
RNG = np.random.default_rng(1)


def make_voice(seconds: float) -> np.ndarray:
    """Returns a sound like a voice: a gliding pitch with overtones, in syllables."""
    time = np.arange(int(seconds * logmel.RATE)) / logmel.RATE
    phase = 2 * np.pi * (120 * time + 8 * np.sin(1.3 * time))
    voice = sum(np.sin(k * phase) / k for k in range(1, 30))
    loudness = np.maximum(0, np.sin(2 * np.pi * 3 * time)) ** 2
    return 0.2 * voice * loudness + 1e-3 * RNG.standard_normal(len(time))


SOUNDS = {
    "noise": 0.3 * RNG.standard_normal(10 * logmel.RATE).clip(-3, 3),
    "quiet noise": 1e-3 * RNG.standard_normal(30 * logmel.RATE),
    "voice": make_voice(20),
    "long voice": make_voice(45)[: logmel.WINDOW],
    "short": make_voice(0.1),
    "a sample": np.array([0.5]),
    "silence": np.zeros(3 * logmel.RATE),
}


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("name", SOUNDS)
def test_features_are_those_of_transformers(name, bands):
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    sound = SOUNDS[name].astype(np.float32)
    batch = extractor(sound, sampling_rate=logmel.RATE, return_tensors="np")
    expected = batch["input_features"][0].T
    assert np.abs(logmel.features(sound, bands) - expected).max() <= MOST


@pytest.mark.parametrize("bands", [80, 128])
def test_filters_are_those_of_transformers(bands):
    expected = transformers.WhisperFeatureExtractor(feature_size=bands).mel_filters
    assert np.abs(logmel.filters(bands) - expected).max() <= 1e-12


def test_a_whole_recording_is_that_of_transformers():
    sound = make_voice(45).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor()
    kept = dict(truncation=False, padding="longest", return_tensors="np")
    expected = extractor(sound, sampling_rate=logmel.RATE, **kept)["input_features"]
    heard = logmel.recording_frames([sound[:77_777], sound[77_777:]])
    # Whisper puts silence behind a recording, transformers its mirror image.
    assert np.abs(heard - expected[0].T)[:-2].max() <= MOST


CHARACTERS = {character: i for i, character in enumerate(tiktoken.CHARACTERS)}


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """A tokenizer of bytes alone with Whisper's special tokens, and its folder."""
    names = [*tiktoken.special_ids(256, 100)]
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


CASES = [Limits((1, 7, 28), (5, 20), 4), Limits((0,), (), None), Limits((), (2, 20), 0)]


def process_by_transformers(
    limits: Limits, prompt: list[int], own: list[int], logits: np.ndarray
):
    """Returns a row's logits [V] as transformers changes them, in the order of its
    generate."""
    config = SimpleNamespace(
        no_timestamps_token_id=TOKENS.no_timestamps,
        eos_token_id=TOKENS.end,
        bos_token_id=TOKENS.end,
        max_initial_timestamp_index=limits.first_time,
    )
    at = len(prompt)
    process = [logits_process.SuppressTokensLogitsProcessor(limits.suppressed)]
    begin = logits_process.SuppressTokensAtBeginLogitsProcessor(limits.at_first, at)
    process = [begin, *process]
    process.append(logits_process.WhisperTimeStampLogitsProcessor(config, at))
    ids, scores = torch.tensor([prompt + own]), torch.tensor(logits)[None]
    for one_more in process:
        scores = one_more(ids, scores)
    return scores[0].numpy()


@pytest.mark.parametrize("limits", CASES)
@pytest.mark.parametrize("prompt", [PROMPT, EARLIER + PROMPT, [TOKENS.start]])
def test_logits_are_those_of_transformers(limits, prompt):
    rng = np.random.default_rng(7)
    built = rules.build(TOKENS, limits, VOCAB)
    rows = texts(rng)
    logits = rng.standard_normal((len(rows), VOCAB)).astype(np.float32) * 4
    logits[:, TOKENS.first_time :] -= rng.uniform(0, 6, (len(rows), 1))
    width = max(map(len, rows))
    padded = [prompt + own + [0] * (width - len(own)) for own in rows]
    length = jnp.array([len(prompt + own) for own in rows])
    state = jax.jit(built.begin)(jnp.array(padded), length)
    ours = np.asarray(jax.jit(built.apply)(state, jnp.array(logits)))
    expected = [
        process_by_transformers(limits, prompt, own, row)
        for own, row in zip(rows, logits, strict=True)
    ]
    np.testing.assert_array_equal(ours, np.stack(expected))


@pytest.mark.parametrize("seed", range(200))
def test_windows_are_joined_as_in_its_pipeline(seed):
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, rng.integers(2, 40), 90)
    cuts = [whole[at : at + 40].copy() for at in (0, 25, 50)]
    for part in cuts:  # both ends of a window are heard badly
        wrong = rng.random(40) < np.where(np.abs(np.arange(40) - 20) > 14, 0.4, 0.05)
        part[wrong] = rng.integers(0, 40, wrong.sum())
    parts = [part[: rng.integers(1, 41)].tolist() for part in cuts]
    expected = read._find_longest_common_sequence(parts)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert chunked.join(parts) == [int(token) for token in expected]
