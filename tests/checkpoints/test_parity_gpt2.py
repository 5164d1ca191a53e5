"""GPT-2 as transformers computes it: the same logits and the same greedy text.

transformers writes random models, of sizes that nothing else has; we load them.
Axes: B rows, T tokens, V vocabulary.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax.inputs import make_prompt, make_request, make_sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax import checkpoints, generate  # noqa: E402
from specjax.models import gpt  # noqa: E402
from specjax.types import Params  # noqa: E402

torch.set_num_threads(1)  # these are too small for more
MOST = 1e-4  # what logits may differ by, in float32
NEW, POSITIONS = 12, 32
END = 2


class Written(NamedTuple):
    """A model of transformers, and the folder that it wrote."""

    model: object
    folder: Path


SIZES = {
    "tied": dict(vocab_size=37, n_embd=15, n_head=3, n_layer=2),
    "untied": dict(vocab_size=31, n_embd=8, n_head=2, n_layer=3, n_inner=19)
    | dict(tie_word_embeddings=False, activation_function="gelu_pytorch_tanh"),
}


def write(name: str, folder: Path, dtype=torch.float32, **options) -> Written:
    """All numbers are random, norms and biases too: none can stand in for another."""
    torch.manual_seed(3)
    ends = dict(bos_token_id=1, eos_token_id=END, n_positions=POSITIONS)
    config = transformers.GPT2Config(**SIZES[name], **ends)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(0.4 * torch.randn_like(leaf))
    model.to(dtype).save_pretrained(folder, **options)
    return Written(model.float(), folder)


@pytest.fixture(scope="module", params=SIZES)
def written(request, tmp_path_factory) -> Written:
    return write(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def tied(tmp_path_factory) -> Written:
    return write("tied", tmp_path_factory.mktemp("tied"))


def their_logits(model, tokens) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor(tokens)).logits.numpy()


def difference(model, checkpoint) -> float:
    """The largest of any logit's, in texts of as many tokens as there are positions."""
    tokens = np.random.default_rng(0).integers(3, checkpoint.config.vocab, (2, 32))
    params, start = checkpoint.params, jnp.zeros(2, jnp.int32)
    features, _ = checkpoint.model.apply(params, jnp.asarray(tokens), start, None)
    ours = np.asarray(checkpoint.model.readout(params, features))
    theirs = their_logits(model, tokens)
    assert theirs.shape == ours.shape
    return float(np.abs(theirs - ours).max())


def check_parity(model, folder: Path) -> checkpoints.Checkpoint:
    checkpoint = checkpoints.load(folder)
    far = difference(model, checkpoint)
    assert far <= MOST, f"logits differ by {far}"
    return checkpoint


@pytest.mark.slow
def test_logits_and_greedy_text_are_those_of_transformers(written):
    """Prompts of different lengths: one batch here, one at a time there."""
    checkpoint = check_parity(written.model, written.folder)
    assert checkpoint.family == "gpt" and (checkpoint.start, checkpoint.end) == (1, END)
    prompts = [[1, 5, 9, 4, 20], [1], [1, 7]]
    options = dict(max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    theirs = []
    for prompt in prompts:
        given = torch.tensor([prompt])
        mask = torch.ones_like(given)
        found = written.model.generate(given, attention_mask=mask, **options)
        theirs.append(found[0].tolist())

    prompt = make_prompt(prompts)
    sampling = make_sampling(len(prompts), 0.0)
    key = jax.random.key(0)
    request = make_request(key, prompt, NEW, sampling, checkpoint.end)
    run = generate.autoregressive(checkpoint.model, slots=20)
    output = run(Params(checkpoint.params), prompt, request)
    rows = zip(output.tokens, output.length, strict=True)
    assert [tokens[:n].tolist() for tokens, n in rows] == theirs
    assert len(np.unique(np.concatenate(theirs))) > 8, "too little to be compared"


def test_sizes_are_read_from_the_config(tied):
    config = checkpoints.load(tied.folder).config
    sizes = dict(positions=POSITIONS, learned=True, tied=True)
    assert config == gpt.Config(37, 15, 60, 2, 3, **sizes)


def test_no_more_slots_than_positions(tied):
    checkpoint = checkpoints.load(tied.folder)
    prompt = make_prompt([[1]])
    sampling = make_sampling(1, 0.0)
    request = make_request(jax.random.key(0), prompt, NEW, sampling)
    run = generate.autoregressive(checkpoint.model, POSITIONS + 1)
    with pytest.raises(ValueError, match="knows 32 positions: build with slots=32"):
        run(Params(checkpoint.params), prompt, request)


def swapped_query_and_key(params):
    attention = params["layers_0"]["attention"]
    attention["query"], attention["key"] = attention["key"], attention["query"]


def untransposed(params):
    kernel = params["layers_1"]["attention"]["out"]["kernel"]
    assert kernel.shape == (15, 15)
    params["layers_1"]["attention"]["out"]["kernel"] = kernel.T


def other_norm(params):
    params["layers_1"]["mlp_norm"] = params["layers_1"]["attention_norm"]


def without_a_bias(params):
    product = params["layers_0"]["mlp"]["in"]
    product["bias"] = jnp.zeros_like(product["bias"])


def shifted_positions(params):
    params["positions"] = jnp.roll(params["positions"], 1, axis=0)


@pytest.mark.parametrize(
    "breaks",
    [
        swapped_query_and_key,
        untransposed,
        other_norm,
        without_a_bias,
        shifted_positions,
    ],
)
def test_the_check_notices_a_wrong_name_or_orientation(tied, breaks):
    checkpoint = checkpoints.load(tied.folder)
    breaks(checkpoint.params)
    assert difference(tied.model, checkpoint) > 100 * MOST


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(torch.float32, dict(max_shard_size="4KB")), (torch.bfloat16, {})],
    ids=["sharded", "bfloat16"],
)
def test_shards_and_half_precision_are_read(tmp_path, dtype, options):
    """Numbers stored in bfloat16 are exact in float32, in which both compute."""
    written = write("tied", tmp_path, dtype, **options)
    files = check_parity(written.model, tmp_path).files
    assert (len(files) > 3) == ("max_shard_size" in options)


def test_names_without_prefix_and_with_masks_and_copies_are_read(tied, tmp_path):
    """As the first published files have them."""
    tied.model.transformer.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert "wte.weight" in weights
    masks = {f"h.{i}.attn.bias": np.tri(32, dtype=bool)[None, None] for i in (0, 1)}
    more = masks | {"lm_head.weight": weights["wte.weight"]}
    save_file(weights | more, tmp_path / "model.safetensors", {"format": "pt"})
    check_parity(tied.model, tmp_path)


def test_what_we_write_transformers_reads(written, tmp_path):
    checkpoint = checkpoints.load(written.folder)
    checkpoints.save(tmp_path / "again", checkpoint, most=4000)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "again").eval()
    tokens = np.random.default_rng(1).integers(3, 31, (2, 9))
    found, wanted = (their_logits(model, tokens) for model in (again, written.model))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    back = check_parity(again, tmp_path / "again")
    assert back.config == checkpoint.config and len(back.files) > 3
    jax.tree.map(np.testing.assert_array_equal, back.params, checkpoint.params)
