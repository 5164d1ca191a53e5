"""Whisper in OpenAI's format is the model that transformers writes."""

from pathlib import Path

import jax
import numpy as np
import pytest

from tests.support.small_speech import VOCAB

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specjax import checkpoints  # noqa: E402
from tests.support.transformers_models import (  # noqa: E402
    BANDS,
    FRAMES,
    POSITIONS,
    Written,
    write,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Written:
    return write("whisper", tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def loaded(written) -> checkpoints.Pretrained:
    return checkpoints.load(written.folder)


# OpenAI's names of theirs, as they stand in a name.
RENAMED = {"model.": "", "layers": "blocks", "fc1": "mlp.0", "fc2": "mlp.2"}
RENAMED |= {"final_layer_norm": "mlp_ln", "self_attn_layer_norm": "attn_ln"}
RENAMED |= {"encoder_attn_layer_norm": "cross_attn_ln", "self_attn.": "attn."}
RENAMED |= {"encoder_attn.": "cross_attn.", "q_proj": "query", "k_proj": "key"}
RENAMED |= {"v_proj": "value", "out_proj": "out", "embed_tokens": "token_embedding"}
RENAMED |= {"encoder.layer_norm": "encoder.ln_post", "decoder.layer_norm": "decoder.ln"}
RENAMED |= {"embed_positions.weight": "positional_embedding"}
DIMS = dict(n_mels=BANDS, n_audio_ctx=FRAMES // 2, n_audio_state=18, n_audio_head=3)
DIMS |= dict(n_audio_layer=2, n_vocab=VOCAB, n_text_ctx=POSITIONS, n_text_state=18)
DIMS |= dict(n_text_head=3, n_text_layer=3)


def write_openai(model, file: Path, dtype=torch.float32, **dims) -> Path:
    weights = {}
    for name, tensor in model.state_dict().items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if name != "proj_out.weight":
            weights[name] = tensor.to(dtype)
    torch.save({"dims": DIMS | dims, "model_state_dict": weights}, file)
    return file


@pytest.mark.parametrize("place", ["file", "folder"])
def test_openai_s_format_is_the_same_model(written, loaded, tmp_path, place):
    file = write_openai(written.model, tmp_path / "small.pt")
    back = checkpoints.load(file if place == "file" else tmp_path)
    assert back.config == loaded.config and back.files == (file,)
    jax.tree.map(np.testing.assert_array_equal, back.params, loaded.params)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_openai_s_format_in_half_precision(written, loaded, tmp_path, dtype):
    back = checkpoints.load(write_openai(written.model, tmp_path / "a.pt", dtype))

    def close(half, whole):
        np.testing.assert_allclose(half, whole, rtol=2**-7, atol=1e-6)

    jax.tree.map(close, back.params, loaded.params)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (dict(n_text_state=20), r"n_audio_state and n_text_state must be the same"),
        (dict(n_mels="7"), r"n_mels must be the same whole number, 1 to .*: '7'"),
        (dict(n_audio_head=5, n_text_head=5), r"18 features are no multiple of 2 and"),
        (dict(n_text_layer=4), r"say 4 decoder layers and its arrays are of 3"),
        (dict(n_vocab=60), r"token_embedding.weight: \(61, 18\), not \(60, 18\)"),
        ({"a": 1}, r"a.pt is no Whisper of OpenAI, which holds dims and model_state"),
        ({"dims": {}, "model_state_dict": {"a": 1}}, r"a.pt: a is no tensor: copy"),
        (Path("a"), r"a.pt is a pickle that is cut short or holds more than tensors"),
    ],
)
def test_a_file_of_another_kind_is_refused(written, tmp_path, content, words):
    file = tmp_path / "a.pt"
    if isinstance(content, dict) and "dims" not in content and "a" not in content:
        write_openai(written.model, file, **content)
    else:
        torch.save(content, file)
    with pytest.raises(ValueError, match=words) as caught:
        checkpoints.load(file)
    assert "n_vocab" in words or "\n" not in str(caught.value) or "(60" in words
