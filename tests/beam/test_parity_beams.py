"""Beams and scores of random models are those of transformers, which writes the models.

One batch of different lengths here and one row at a time there.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints
from specjax.beam import search, settings
from specjax.beam.defaults import recommended
from specjax.beam.hypotheses import Limits
from specjax.beam.settings import BeamConfig
from specjax.inputs import make_prompt
from specjax.models import families, llama
from specjax.types import Params

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support import transformers_beams  # noqa: E402
from tests.support import transformers_models as theirs  # noqa: E402

SETTINGS = [
    BeamConfig(4, 2, 6),
    BeamConfig(3, 3, 3, 2.0, "never"),
    BeamConfig(2, 1, 4, -0.5),
    BeamConfig(4, 2, None, 0.3, True),
    BeamConfig(1, 2, 2),
]
NAMES = "llama", "qwen2_local", "v1_1", "gpt2", "whisper"


@pytest.fixture(scope="module", params=NAMES)
def written(request, tmp_path_factory) -> theirs.Written:
    return theirs.write(request.param, tmp_path_factory.mktemp(request.param))


def search_by_transformers(written: theirs.Written, config: BeamConfig, ends) -> list:
    """Returns the texts and the scores of each row."""
    about, _ = theirs.make_inputs(written.called, written.vocab)
    rows = []
    for prompt, more in zip(theirs.prompts(written.called), about, strict=True):
        ids = torch.tensor([prompt])
        if written.called == "Whisper":
            inputs = more | dict(decoder_input_ids=ids)
        elif more:
            inputs = more | dict(use_cache=False)
        else:
            inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
            inputs |= dict(pad_token_id=0)
        size = dict(start=len(prompt), ends=ends, most=theirs.NEW)
        rows.append(transformers_beams.find(written.model, config, **size, **inputs))
    return rows


@pytest.mark.parametrize("config", SETTINGS, ids=lambda it: f"width{it.width}")
def test_beams_and_scores_are_those_of_transformers(written, config):
    """Beams are compared without a draft, and with the first layer as the draft."""
    checkpoint = checkpoints.load(written.folder)
    prompt = make_prompt(theirs.prompts(written.called))
    prompt = prompt._replace(
        inputs=theirs.make_inputs(written.called, written.vocab)[1]
    )
    batch = theirs.BATCH
    limits = Limits(
        most=jnp.full(batch, theirs.NEW),
        eos=jnp.tile(jnp.int32(checkpoint.ends), (batch, 1)),
        divisor=jnp.asarray(settings.divisors(config.length_penalty, theirs.NEW)),
    )
    target, first = checkpoint.model, families.first_layers(checkpoint.config, 1)
    if target.portion is not None:
        target = llama.build(checkpoint.config, 512)
    params = Params(*[checkpoint.params] * 2)
    expected = search_by_transformers(written, config, checkpoint.ends)
    for draft in (None, first):
        run = jax.jit(search.build(target, draft, config))
        got = jax.device_get(run(params, prompt, limits))
        for row, (texts, scores) in enumerate(expected):
            each = zip(got.tokens[row], got.length[row], strict=True)
            assert [ids[:n].tolist() for ids, n in each] == texts
            if scores is not None:  # of a single beam, which it decodes greedily
                np.testing.assert_allclose(got.score[row], scores, atol=2e-4)


def test_what_a_model_recommends_is_read_as_transformers_wrote_it(tmp_path: Path):
    written = theirs.write("v1_1", tmp_path)
    checkpoint = checkpoints.load(tmp_path)
    assert recommended(checkpoint) == dict(
        width=1, length_penalty=1.0, early_stopping=False
    )
    own = written.model.generation_config
    own.num_beams, own.early_stopping, own.length_penalty = 5, "never", 0.6
    own.save_pretrained(tmp_path)
    assert recommended(checkpoint) == dict(
        width=5, length_penalty=0.6, early_stopping="never"
    )
