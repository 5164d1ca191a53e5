"""Drafts with a reduced vocabulary are read from files, and only for their own
target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, drafts, generate, pretrained, zoo
from specjax.checkpoints import reduced_vocab
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import families
from specjax.models.reduced_vocab import Reduction
from specjax.quantized import Int8, rounding
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny_llama
from tests.support.model_cases import weights
from tests.support.tiny import TARGET

LARGE = tiny_llama.LLAMA._replace(window=None, local=())
SMALL = LARGE._replace(vocab=11, num_layers=1, tied=True, window=3, local=(0,))
IDS = np.array([1, 2, 3, 5, 8, 13, 20, 21, 24, 27, 28])


@pytest.fixture
def written(tmp_path):
    """A target, and a draft that shares its first layer."""
    params = tiny_llama.weights(LARGE, 1)
    zoo.save(tmp_path / "target.safetensors", LARGE, params)
    own = {name: params[name] for name in ("layers_0", "norm")}
    own["embedding"] = params["readout"].T[IDS]
    reduced_vocab.save(tmp_path / "draft.safetensors", Reduction(SMALL, own, IDS))
    return tmp_path


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_it_drafts_some_ids_and_the_text_is_the_targets(written, dtype):
    target = pretrained.load(str(written / "target.safetensors"), dtype)
    draft = drafts.load_draft(str(written / "draft.safetensors"), target)
    again = drafts.load_draft(str(written / "draft.safetensors"), target)
    assert draft.factory == again.factory  # one program serves both
    assert draft.params["model"]["embedding"] is target.params["embedding"]
    prompt = make_prompt([[4, 9, 3], [7]])
    sampling = make_sampling(2, jnp.array([0.0, 1.0]))
    request = make_request(jax.random.key(1), prompt, 24, sampling)
    params = Params(target.params, draft.params)
    alone = generate.autoregressive(target.model, 40)(params, prompt, request)
    decoder = Decoder(target.model, draft.drafter(3))
    steps = generate.build_stream(decoder, 40)(params, prompt, request)
    drafted, accepted = [], 0
    for state, info in steps:
        drafted += (
            np.asarray(info.tokens)[np.asarray(info.drafted) > 0].ravel().tolist()
        )
        accepted += int(info.accepted.sum())
        text = np.asarray(state.tokens)
    assert set(drafted) <= set(IDS.tolist()) and accepted > 3
    length = int(alone.length[0])
    np.testing.assert_array_equal(text[0, :length], alone.tokens[0, :length])


def test_it_is_in_as_many_bits_as_its_file(written, monkeypatch):
    monkeypatch.setattr(rounding, "LEAST", 1)
    params = {"layers_0": tiny_llama.weights(LARGE, 1)["layers_0"]}
    params |= {"norm": {"scale": jnp.ones(16)}, "embedding": jnp.ones((11, 16)) / 3}
    kinds = {}
    for bits in (8, 16):
        path = written / f"{bits}.safetensors"
        more = {"d2t": np.int32(IDS - np.arange(11))}
        zoo.save(path, SMALL, params, bits=bits, more=more)
        kinds[bits] = type(reduced_vocab.load(path, "float32").params["embedding"])
        assert (
            reduced_vocab.load(path, "bfloat16").params["embedding"].dtype == "bfloat16"
        )
    assert kinds[8] is Int8 and kinds[16] is not Int8


def test_another_target_is_told(written):
    path = str(written / "draft.safetensors")
    wide, few = LARGE._replace(dim=18), LARGE._replace(vocab=20)
    for name, config, message in (
        ("wide", wide, "width 16, and its target's has 18: name the target"),
        ("few", few, "of the 20 of its target: name the target"),
        ("gpt", TARGET, "drafts for a model of Llama's kind, and gpt"),
    ):
        model, params = families.build(config), weights(config, 2)
        target = checkpoints.Pretrained(name, config, model, params)
        with pytest.raises(ValueError, match=message):
            drafts.load_draft(path, target)
    with pytest.raises(ValueError, match="ids: name it as a draft"):
        pretrained.load(path)
