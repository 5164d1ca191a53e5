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


def write(name: str, folder: Path) -> Written:
    """All numbers are random, norms and biases too: none can stand in for another."""
    torch.manual_seed(3)
    ends = dict(bos_token_id=1, eos_token_id=END, n_positions=POSITIONS)
    config = transformers.GPT2Config(**SIZES[name], **ends)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(0.4 * torch.randn_like(leaf))
    model.save_pretrained(folder)
    return Written(model, folder)


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
    logits = np.asarray(checkpoint.model.readout(params, features))
    expected = their_logits(model, tokens)
    assert expected.shape == logits.shape
    return float(np.abs(expected - logits).max())


def check_parity(model, folder: Path) -> checkpoints.Pretrained:
    checkpoint = checkpoints.load(folder)
    distance = difference(model, checkpoint)
    assert distance <= MOST, f"logits differ by {distance}"
    return checkpoint


@pytest.mark.slow
def test_logits_and_greedy_text_are_those_of_transformers(written):
    """Prompts of different lengths: one batch here, one at a time there."""
    checkpoint = check_parity(written.model, written.folder)
    assert checkpoint.family == "gpt" and (checkpoint.start, checkpoint.ends) == (
        1,
        (END,),
    )
    prompts = [[1, 5, 9, 4, 20], [1], [1, 7]]
    options = dict(max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    expected = []
    for prompt in prompts:
        tokens = torch.tensor([prompt])
        mask = torch.ones_like(tokens)
        text = written.model.generate(tokens, attention_mask=mask, **options)
        expected.append(text[0].tolist())

    prompt = make_prompt(prompts)
    sampling = make_sampling(len(prompts), 0.0)
    key = jax.random.key(0)
    request = make_request(key, prompt, NEW, sampling, checkpoint.ends)
    run = generate.autoregressive(checkpoint.model, slots=20)
    output = run(Params(checkpoint.params), prompt, request)
    rows = zip(output.tokens, output.length, strict=True)
    assert [tokens[:n].tolist() for tokens, n in rows] == expected
    assert len(np.unique(np.concatenate(expected))) > 8, "too little to be compared"


def test_sizes_are_read_from_the_config(tied):
    config = checkpoints.load(tied.folder).config
    sizes = dict(positions=POSITIONS, learned=True, tied=True)
    assert config == gpt.Config(37, 15, 60, 2, 3, **sizes)


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


def test_what_we_write_transformers_reads(written, tmp_path):
    checkpoint = checkpoints.load(written.folder)
    checkpoints.save(tmp_path / "again", checkpoint, most=4000)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "again").eval()
    tokens = np.random.default_rng(1).integers(3, 31, (2, 9))
    logits, wanted = (their_logits(model, tokens) for model in (again, written.model))
    np.testing.assert_allclose(logits, wanted, atol=1e-5)
    back = check_parity(again, tmp_path / "again")
    assert back.config == checkpoint.config and len(back.files) > 3
    jax.tree.map(np.testing.assert_array_equal, back.params, checkpoint.params)
