"""T5 as transformers computes it: the same logits and the same greedy text.

transformers writes random models, of sizes that nothing else has; we load them.
Axes: B rows, I input tokens, T tokens, V vocabulary.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.inputs import make_prompt, make_request, make_sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax import checkpoints, generate  # noqa: E402
from specjax.models import t5  # noqa: E402
from specjax.types import Params, Prompt  # noqa: E402
from tests.support import tiny_t5  # noqa: E402

torch.set_num_threads(1)  # these are too small for more
MOST = 1e-4  # what logits may differ by, in float32
NEW = 12
TABLE = "shared.weight"
LENGTHS = (150, 3, 41)  # of the inputs: to the last bucket of distances and short of it


class Written(NamedTuple):
    """A model of transformers, and the folder that it wrote."""

    model: object
    folder: Path


SIZES = {
    "v1_0": dict(vocab_size=37, d_model=16, d_kv=5, d_ff=23, num_heads=3, num_layers=2),
    "v1_1": dict(vocab_size=41, d_model=15, d_kv=5, d_ff=24, num_heads=3, num_layers=1),
    "one_head": dict(vocab_size=33, d_model=9, d_kv=7, d_ff=8, num_heads=1),
}
SIZES["v1_0"] |= dict(feed_forward_proj="relu")
SIZES["v1_1"] |= dict(feed_forward_proj="gated-gelu", num_decoder_layers=3)
SIZES["v1_1"] |= dict(tie_word_embeddings=False)
SIZES["one_head"] |= dict(num_layers=3, num_decoder_layers=1, feed_forward_proj="relu")
# v1.1 as transformers 5 begins it: the readout is the embedding, but not scaled.
SIZES["v1_1_shared"] = dict(SIZES["v1_1"])
SIZES["silu"] = SIZES["v1_1"] | dict(feed_forward_proj="gated-silu")
SIZES["mt5"] = SIZES["v1_1"] | dict(num_layers=2)
SIZES["umt5"] = SIZES["v1_1"] | dict(num_layers=2)
CLASSES = {"mt5": "MT5", "umt5": "UMT5"}
OWN_READOUT = ("v1_1", "silu", "mt5")


def write(name: str, folder: Path, dtype=torch.float32, **options) -> Written:
    """All numbers are random, norms and biases too: none can stand in for another."""
    torch.manual_seed(2)
    called = CLASSES.get(name, "T5")
    kind = getattr(transformers, f"{called}Config")
    config = kind(**SIZES[name], decoder_start_token_id=0)
    model = getattr(transformers, f"{called}ForConditionalGeneration")(config).eval()
    if name in OWN_READOUT:
        head = torch.randn(config.vocab_size, config.d_model)
        model.lm_head.weight = torch.nn.Parameter(head)
    with torch.no_grad():
        for path, leaf in model.named_parameters():
            leaf.add_(0.2 * torch.randn_like(leaf))
            if not config.is_gated_act and leaf.ndim == 2 and path != TABLE:
                leaf.mul_(2)  # or each token repeats the last, which is the readout
    model.to(dtype).save_pretrained(folder, **options)
    return Written(model.float(), folder)


@pytest.fixture(scope="module", params=SIZES)
def written(request, tmp_path_factory) -> Written:
    return write(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def gated(tmp_path_factory) -> Written:
    return write("v1_1", tmp_path_factory.mktemp("gated"))


def texts(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [B, I], right-padded, and texts [B, T] from the start token on."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(2, vocab, (len(LENGTHS), max(LENGTHS)))
    inputs[np.arange(max(LENGTHS)) >= np.array(LENGTHS)[:, None]] = t5.PAD
    tokens = rng.integers(2, vocab, (len(LENGTHS), 9))
    tokens[:, 0] = t5.PAD
    return inputs, tokens


def masked(inputs: np.ndarray) -> dict:
    return dict(
        input_ids=torch.tensor(inputs), attention_mask=torch.tensor(inputs != t5.PAD)
    )


def their_logits(model, inputs, tokens) -> np.ndarray:
    with torch.no_grad():
        text = torch.tensor(tokens)
        return model(**masked(inputs), decoder_input_ids=text).logits.numpy()


def our_logits(checkpoint, inputs, tokens) -> np.ndarray:
    """By the cache, as decoding computes them."""
    model, params = checkpoint.model, checkpoint.params
    tokens = jnp.asarray(tokens, jnp.int32)
    read = t5.Inputs(jnp.asarray(inputs, jnp.int32), jnp.array(LENGTHS))
    prompt = Prompt(tokens, jnp.full(len(LENGTHS), tokens.shape[1]), read)

    @tiny_t5.quick_jit
    def run(params):
        cache = model.init(params, prompt, 2 * tokens.shape[1])
        start = jnp.zeros(len(LENGTHS), jnp.int32)
        features, _ = model.apply(params, tokens, start, cache)
        return model.readout(params, features)

    return np.asarray(run(params))


def difference(model, checkpoint) -> float:
    """The largest of any logit's."""
    inputs, tokens = texts(checkpoint.config.vocab)
    expected = their_logits(model, inputs, tokens)
    logits = our_logits(checkpoint, inputs, tokens)
    assert expected.shape == logits.shape
    return float(np.abs(expected - logits).max())


def their_text(model, inputs) -> np.ndarray:
    # Its cache has as many layers as the encoder, too few for some of these sizes.
    options = dict(max_new_tokens=NEW, do_sample=False, use_cache=False)
    with torch.no_grad():
        tokens = model.generate(**masked(inputs), **options).numpy()
    return np.pad(tokens, ((0, 0), (0, NEW + 1 - tokens.shape[1])))


def our_text(checkpoint, inputs) -> np.ndarray:
    batch = len(LENGTHS)
    prompt = make_prompt([[checkpoint.start]] * batch)
    read = t5.Inputs(jnp.asarray(inputs, jnp.int32), jnp.array(LENGTHS))
    sampling = make_sampling(batch, 0.0)
    request = make_request(jax.random.key(0), prompt, NEW, sampling, checkpoint.ends)
    run = generate.autoregressive(checkpoint.model, NEW + 2)
    output = run(Params(checkpoint.params), prompt._replace(inputs=read), request)
    return np.asarray(output.tokens)[:, : NEW + 1]


@pytest.mark.slow
def test_logits_and_greedy_text_are_those_of_transformers(written):
    checkpoint = checkpoints.load(written.folder)
    assert checkpoint.family == "t5" and (checkpoint.start, checkpoint.ends) == (
        0,
        (1,),
    )
    assert difference(written.model, checkpoint) <= MOST
    inputs, _ = texts(checkpoint.config.vocab)
    expected = their_text(written.model, inputs)
    np.testing.assert_array_equal(our_text(checkpoint, inputs), expected)
    assert len(np.unique(expected)) > 5, "these texts say too little to be compared"


def test_sizes_are_read_from_the_config(gated):
    assert checkpoints.load(gated.folder).config == t5.Config(
        41, 15, 24, 1, 3, 3, 5, gated=True, tied=False
    )


def swapped_gates(params):
    mlp = params["decoder"]["layers_1"]["mlp"]
    mlp["wi_0"], mlp["wi_1"] = mlp["wi_1"], mlp["wi_0"]


def untransposed(params):
    kernel = params["decoder"]["layers_2"]["self_attention"]["query"]["kernel"]
    assert kernel.shape == (15, 15)
    params["decoder"]["layers_2"]["self_attention"]["query"]["kernel"] = kernel.T


def untransposed_across(params):
    layer = params["decoder"]["layers_0"]["encoder_decoder_attention"]
    layer["out"]["kernel"] = layer["out"]["kernel"].T


def other_norm(params):
    layer = params["encoder"]["layers_0"]
    layer["pre_mlp_layer_norm"] = layer["pre_attention_layer_norm"]


def other_bias(params):
    encoder, decoder = params["encoder"], params["decoder"]
    encoder["relpos_bias"] = decoder["relpos_bias"]


def embedding_as_readout(params):
    table = params["token_embedder"]["embedding"]
    params["decoder"]["logits_dense"]["kernel"] = table.T


@pytest.mark.parametrize(
    "breaks",
    [
        swapped_gates,
        untransposed,
        untransposed_across,
        other_norm,
        other_bias,
        embedding_as_readout,
    ],
)
def test_the_check_notices_a_wrong_name_or_orientation(gated, breaks):
    checkpoint = checkpoints.load(gated.folder)
    breaks(checkpoint.params)
    assert difference(gated.model, checkpoint) > 100 * MOST


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(torch.float32, dict(max_shard_size="4KB")), (torch.bfloat16, {})],
    ids=["sharded", "bfloat16"],
)
def test_shards_and_half_precision_are_read(tmp_path, dtype, options):
    """Numbers stored in bfloat16 are exact in float32, in which both compute."""
    written = write("v1_1", tmp_path, dtype, **options)
    checkpoint = checkpoints.load(tmp_path)
    files = [file for file in checkpoint.files if file.suffix == ".safetensors"]
    assert (len(files) > 2) == ("max_shard_size" in options)
    assert {leaf.dtype for leaf in jax.tree.leaves(checkpoint.params)} == {
        jnp.dtype("float32")
    }
    assert difference(written.model, checkpoint) <= MOST


def test_rows_beyond_the_pieces_are_never_emitted(gated):
    whole = checkpoints.load(gated.folder)
    cut = checkpoints.load(gated.folder, pieces=35)
    wanted, logits = (our_logits(checkpoint, *texts(35)) for checkpoint in (whole, cut))
    np.testing.assert_array_equal(logits[..., :35], wanted[..., :35])
    assert (logits[..., 35:] == -np.inf).all()


def test_what_we_write_transformers_reads(written, tmp_path):
    checkpoint = checkpoints.load(written.folder)
    checkpoints.save(tmp_path / "again", checkpoint, most=4000)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    inputs, tokens = texts(checkpoint.config.vocab)
    logits, wanted = (
        their_logits(model, inputs, tokens) for model in (again.eval(), written.model)
    )
    np.testing.assert_allclose(logits, wanted, atol=1e-5)
    text, wanted = their_text(again, inputs), their_text(written.model, inputs)
    np.testing.assert_array_equal(text, wanted)
    back = checkpoints.load(tmp_path / "again")
    assert back.config == checkpoint.config and len(back.files) > 3
    jax.tree.map(np.testing.assert_array_equal, back.params, checkpoint.params)
