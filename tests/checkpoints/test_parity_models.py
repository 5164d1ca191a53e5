"""Every family gives the logits and the greedy texts that transformers computes.

transformers writes random models; we load them, and Whisper in OpenAI's format too.
Axes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, generate
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import families, llama, whisper
from specjax.models.llama import Rotation, Stretch
from specjax.step import Decoder
from specjax.types import Params, Prompt

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support import transformers_models as theirs  # noqa: E402
from tests.support.tiny_whisper import TOKENS, VOCAB  # noqa: E402

MOST = 1e-4  # what logits may differ by, in float32
AROUND = {  # family, first token and ends, by the class of transformers
    "GPT2": ("gpt", 1, (2,)),
    "Whisper": ("whisper", TOKENS.start, (TOKENS.end,)),
    **{called: ("t5", 0, (1,)) for called in ("T5", "MT5", "UMT5")},
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory) -> Callable[[str], theirs.Written]:
    """Each case is written once."""
    there = {}

    def write_folder_once(name: str) -> theirs.Written:
        if name not in there:
            there[name] = theirs.write(name, tmp_path_factory.mktemp(name))
        return there[name]

    return write_folder_once


def our_logits(checkpoint, called: str, tokens: np.ndarray) -> np.ndarray:
    """Returns our logits, through the cache for a model with an encoder, as in
    decoding."""
    model, ids = checkpoint.model, jnp.asarray(tokens, jnp.int32)
    _, inputs = theirs.make_inputs(called, checkpoint.config.vocab)
    prompt = Prompt(ids, jnp.full(theirs.BATCH, ids.shape[1], jnp.int32), inputs)

    @jax.jit
    def run(params):
        cache = None if inputs is None else model.init(params, prompt, theirs.POSITIONS)
        start = jnp.zeros(theirs.BATCH, jnp.int32)
        return model.readout(params, model.apply(params, ids, start, cache)[0])

    return np.asarray(run(checkpoint.params))


def difference(written: theirs.Written, checkpoint) -> float:
    """Returns the largest difference between two logits."""
    tokens = theirs.texts(written.vocab)
    expected = theirs.logits(written.model.double(), written.called, tokens)
    written.model.float()
    logits = our_logits(checkpoint, written.called, tokens)
    assert expected.shape == logits.shape
    return float(np.abs(expected - logits).max())


def rounding(written: theirs.Written) -> float:
    """Returns how far the float32 logits of transformers are from its float64
    logits."""
    tokens = theirs.texts(written.vocab)
    exact = theirs.logits(written.model.double(), written.called, tokens)
    rounded = theirs.logits(written.model.float(), written.called, tokens)
    return float(np.abs(exact - rounded).max())


@pytest.mark.parametrize("name", theirs.CASES)
def test_logits_and_greedy_text_are_those_of_transformers(name, folder_of):
    """We decode one batch of different lengths, transformers one row at a time; the
    text with the first layer as the draft is the same."""
    written = folder_of(name)
    called, checkpoint = written.called, checkpoints.load(written.folder)
    around = checkpoint.family, checkpoint.start, checkpoint.ends
    assert around == AROUND.get(called, ("llama", 1, (2, 11)))
    # Few features that nearly cancel are rounded by much, there as here.
    assert difference(written, checkpoint) <= max(MOST, rounding(written))
    prompt = make_prompt(theirs.prompts(called))
    prompt = prompt._replace(inputs=theirs.make_inputs(called, written.vocab)[1])
    sampling = make_sampling(theirs.BATCH, 0.0)
    key = jax.random.key(0)
    request = make_request(key, prompt, theirs.NEW, sampling, checkpoint.ends)
    draft = autoregressive.build(families.first_layers(checkpoint.config, 1), 3)
    params, expected = Params(*[checkpoint.params] * 2), theirs.greedy_texts(written)
    for parts in Decoder(checkpoint.model, draft), Decoder(checkpoint.model):
        output = generate.build(parts, theirs.POSITIONS)(params, prompt, request)
        rows = zip(output.tokens, output.length, strict=True)
        assert [tokens[:n].tolist() for tokens, n in rows] == expected
    assert len(np.unique(np.concatenate(expected))) > 5, "too little to be compared"


@pytest.mark.parametrize("name", theirs.CASES)
def test_what_we_write_transformers_reads(name, folder_of, tmp_path):
    written = folder_of(name)
    checkpoint, folder = checkpoints.load(written.folder), tmp_path / name
    checkpoints.save(folder, checkpoint, most=4000)
    tokens = theirs.texts(written.vocab, 9)
    called = "Gemma3Text" if written.called == "Gemma3" else written.called
    logits, wanted = (
        theirs.logits(model, kind, tokens)
        for model, kind in (
            (theirs.load_folder(called, folder), called),
            (written.model, written.called),
        )
    )
    np.testing.assert_allclose(logits, wanted, atol=1e-5)
    back = checkpoints.load(folder)
    assert back.config == checkpoint.config and len(back.files) > 3
    assert back.ends == checkpoint.ends
    jax.tree.map(np.testing.assert_array_equal, back.params, checkpoint.params)


@pytest.mark.parametrize("name", ["llama3", "gemma3_images", "v1_1"])
def test_halves_in_shards_load_in_either_dtype(name, tmp_path):
    """Numbers that are stored in bfloat16 are exact in float32, and both sides compute
    in float32."""
    written = theirs.write(name, tmp_path, torch.bfloat16, max_shard_size="3KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    whole, half = (checkpoints.load(tmp_path, d) for d in ("float32", "bfloat16"))
    assert difference(written, whole) <= MOST
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(whole.params)} == {"float32"}
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(half.params)} == {"bfloat16"}
    jax.tree.map(np.testing.assert_array_equal, half.params, whole.params)
    if written.called != "T5":  # whose logits are larger, and nothing bounds them
        assert 0 < difference(written, half) < 0.5


def test_a_bare_model_is_read_as_well(folder_of, tmp_path):
    written = folder_of("whisper")
    written.model.model.save_pretrained(tmp_path)
    back, whole = checkpoints.load(tmp_path), checkpoints.load(written.folder)
    jax.tree.map(np.testing.assert_array_equal, back.params, whole.params)


def test_fresh_positions_are_those_of_transformers(folder_of):
    from transformers.models.whisper.modeling_whisper import sinusoids

    config = checkpoints.load(folder_of("whisper").folder).config
    fresh = whisper.init_params(jax.random.key(0), config)
    ours = fresh["encoder"]["positions"].value
    np.testing.assert_allclose(ours, sinusoids(theirs.FRAMES // 2, 18), atol=1e-6)


# OpenAI's names of theirs, as they stand in a name.
RENAMED = {"model.": "", "layers": "blocks", "fc1": "mlp.0", "fc2": "mlp.2"}
RENAMED |= {"final_layer_norm": "mlp_ln", "self_attn_layer_norm": "attn_ln"}
RENAMED |= {"encoder_attn_layer_norm": "cross_attn_ln", "self_attn.": "attn."}
RENAMED |= {"encoder_attn.": "cross_attn.", "q_proj": "query", "k_proj": "key"}
RENAMED |= {"v_proj": "value", "out_proj": "out", "embed_tokens": "token_embedding"}
RENAMED |= {"encoder.layer_norm": "encoder.ln_post", "decoder.layer_norm": "decoder.ln"}
RENAMED |= {"embed_positions.weight": "positional_embedding"}
DIMS = dict(n_vocab=VOCAB, n_mels=theirs.BANDS, n_audio_ctx=theirs.FRAMES // 2)
DIMS |= dict(n_audio_state=18, n_audio_head=3, n_audio_layer=2, n_text_state=18)
DIMS |= dict(n_text_ctx=theirs.POSITIONS, n_text_head=3, n_text_layer=3)


def write_openai(model, file: Path, dtype=torch.float32, **dims) -> Path:
    weights = {}
    for name, tensor in model.state_dict().items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if name != "proj_out.weight":
            weights[name] = tensor.to(dtype)
    torch.save({"dims": DIMS | dims, "model_state_dict": weights}, file)
    return file


def test_openai_s_format_is_the_same_model(folder_of, tmp_path):
    written = folder_of("whisper")
    loaded = checkpoints.load(written.folder)
    file = write_openai(written.model, tmp_path / "small.pt")
    for place in file, tmp_path:
        back = checkpoints.load(place)
        assert back.config == loaded.config and back.files == (file,)
        jax.tree.map(np.testing.assert_array_equal, back.params, loaded.params)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_openai_s_format_in_half_precision(folder_of, tmp_path, dtype):
    written = folder_of("whisper")
    loaded = checkpoints.load(written.folder)
    back = checkpoints.load(write_openai(written.model, tmp_path / "a.pt", dtype))

    def assert_close(half, whole):
        np.testing.assert_allclose(half, whole, rtol=2**-7, atol=1e-6)

    jax.tree.map(assert_close, back.params, loaded.params)


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        (dict(n_text_state=20), r"n_audio_state and n_text_state must be the same"),
        (dict(n_mels="7"), r"n_mels must be a whole number, 1 to .*: '7'"),
        (dict(n_audio_head=5, n_text_head=5), r"18 features are not a multiple of 2"),
        (dict(n_text_layer=4), r"say 4 decoder layers and its arrays are of 3"),
        (dict(n_vocab=60), r"token_embedding.weight: \(61, 18\), not \(60, 18\)"),
    ],
)
def test_sizes_that_openai_s_file_does_not_have(folder_of, tmp_path, dims, words):
    file = write_openai(folder_of("whisper").model, tmp_path / "a.pt", **dims)
    with pytest.raises(ValueError, match=words):
        checkpoints.load(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"a": 1},
            r"a.pt is not one of OpenAI's Whispers, which hold dims and model",
        ),
        ({"dims": {}, "model_state_dict": {"a": 1}}, r"n_vocab must be a whole number"),
        ({"dims": DIMS, "model_state_dict": {"a": 1}}, r"a.pt: a is not a tensor"),
        (Path("a"), r"a.pt is a pickle that is cut short or holds more than tensors"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, content, words):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=words) as caught:
        checkpoints.load(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)


# What must be noticed.

MISREAD = [
    ("mistral", dict(window=theirs.WINDOW + 1)),
    ("qwen2_local", dict(local=(0, 1))),
    ("llama3", dict(rotation=Rotation(500.0, stretch=Stretch(4.0, 1.0, 3.9, 16)))),
    ("llama_long", dict(rotation=Rotation(1e4))),
    ("gemma2", dict(logit_cap=None)),
    ("gemma2", dict(eps=1e-2)),
    ("gemma3", dict(local_rotation=None)),
    ("gemma3", dict(window=theirs.WINDOW - 1)),
]


@pytest.mark.parametrize(("name", "fields"), MISREAD)
def test_the_check_notices_a_size_that_was_misread(name, fields, folder_of):
    written = folder_of(name)
    checkpoint = checkpoints.load(written.folder)
    config = checkpoint.config._replace(**fields)
    assert config != checkpoint.config
    other = checkpoint._replace(model=llama.build(config))
    assert difference(written, other) > 10 * MOST


def transpose(kernel):
    assert kernel.shape[0] == kernel.shape[1]
    return kernel.T


def backwards(kernel):
    return kernel[::-1]


ACROSS = "decoder/layers_0/cross_attention"
# A case, the path of a parameter, and what stands there: another's, or a change of it.
WRONG = [
    ("gpt2", "layers_1/attention/out/kernel", transpose),
    ("gpt2", "layers_0/mlp/in/bias", jnp.zeros_like),
    ("gpt2", "positions", backwards),
    ("gemma3", "layers_1/mlp_norm", "layers_1/attention_after_norm"),
    ("gemma3", "layers_1/attention/query_norm", "layers_1/attention/key_norm"),
    ("gemma3", "layers_1/mlp/gate", "layers_1/mlp/in"),
    ("v1_1", "decoder/layers_1/mlp/wi_0", "decoder/layers_1/mlp/wi_1"),
    ("v1_1", "decoder/layers_0/encoder_decoder_attention/out/kernel", transpose),
    ("v1_1", "encoder/relpos_bias", "decoder/relpos_bias"),
    ("whisper", f"{ACROSS}/query/kernel", f"{ACROSS}/key/kernel"),
    ("whisper", "decoder/layers_1/attention/out/kernel", transpose),
    ("whisper", "encoder/conv_1/kernel", backwards),
    ("whisper", "decoder/positions", backwards),
    ("whisper", "decoder/layers_0/attention_norm", f"{ACROSS}_norm"),
    ("v1_1", "decoder/logits_dense/kernel", backwards),
]


def place(params: dict, path: str) -> tuple[dict, str]:
    *outer, name = path.split("/")
    for part in outer:
        params = params[part]
    return params, name


@pytest.mark.parametrize(("name", "path", "instead"), WRONG)
def test_the_check_notices_a_wrong_name_or_orientation(name, path, instead, folder_of):
    written = folder_of(name)
    checkpoint = checkpoints.load(written.folder)
    layer, at = place(checkpoint.params, path)
    if isinstance(instead, str):
        other, there = place(checkpoint.params, instead)
        layer[at], other[there] = other[there], layer[at]
    else:
        layer[at] = instead(layer[at])
    assert difference(written, checkpoint) > 100 * MOST
