"""Whisper as transformers computes it: states, logits, greedy texts, and its rules.

transformers writes random models, of sizes that nothing else has; we load them, from
their folders and from OpenAI's format.
Axes: B rows, F frames, M bands, T tokens, V vocabulary.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import whisper
from specjax.models.constrained import constrained
from specjax.speech import rules
from specjax.step import Decoder
from specjax.types import Features, Params
from tests.support.small_speech import TOKENS, VOCAB

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax import checkpoints  # noqa: E402

torch.set_num_threads(1)  # these are too small for more
MOST = 1e-4  # what logits may differ by, in float32
BANDS, FRAMES, POSITIONS, NEW, ROWS = 7, 26, 32, 14, 3
END = TOKENS.end
SIZES = dict(
    vocab_size=VOCAB,
    num_mel_bins=BANDS,
    max_source_positions=FRAMES // 2,
    max_target_positions=POSITIONS,
    d_model=18,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=4 * 18,
    decoder_ffn_dim=4 * 18,
    pad_token_id=END,
    bos_token_id=END,
    eos_token_id=END,
    decoder_start_token_id=TOKENS.start,
    suppress_tokens=[],
    begin_suppress_tokens=[],
)
LIMITS = rules.Limits(suppressed=(1, *range(21, 29)), at_first=(5, 20), first_time=9)


class Written(NamedTuple):
    """A model of transformers, and the folder that it wrote."""

    model: object
    folder: Path


def random_model(seed: int = 0, spread: float = 0.4, **sizes):
    """All numbers are random, norms and biases too: none can stand in for another."""
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(**SIZES | sizes)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(spread * torch.randn_like(leaf))
        # A text of many different tokens, not all of which are times.
        positions = model.model.decoder.embed_positions.weight
        positions.add_(2.0 * torch.randn_like(positions))
        model.proj_out.weight[TOKENS.first_time :] *= 0.5
    fields = model.generation_config
    fields.no_timestamps_token_id = TOKENS.no_timestamps
    fields.prev_sot_token_id = TOKENS.previous
    fields.is_multilingual = True
    fields.lang_to_id = {f"<|{x}|>": i for x, i in TOKENS.languages.items()}
    fields.task_to_id = dict(TOKENS.tasks)
    fields.max_initial_timestamp_index = LIMITS.first_time
    return model


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Written:
    folder = tmp_path_factory.mktemp("whisper")
    model = random_model()
    model.save_pretrained(folder)
    return Written(model, folder)


@pytest.fixture(scope="module")
def loaded(written) -> checkpoints.Pretrained:
    return checkpoints.load(written.folder)


def sounds() -> np.ndarray:
    shape = ROWS, FRAMES, BANDS
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


HEARD = Features(jnp.asarray(sounds()))
FEATURES = torch.tensor(sounds().swapaxes(1, 2))  # [B, M, F]


def differences(model, checkpoint) -> tuple[float, float]:
    """The largest of the encoder's states, and of the logits of texts with as many
    tokens as there are positions."""
    tokens = np.random.default_rng(1).integers(0, VOCAB, (ROWS, POSITIONS))
    with torch.no_grad():
        other = model(FEATURES, decoder_input_ids=torch.tensor(tokens))
    sizes = checkpoint.config, checkpoint.params
    encoded = whisper.encode(*sizes, HEARD).states
    logits = whisper.logits(*sizes, HEARD, jnp.asarray(tokens))
    pairs = (encoded, other.encoder_last_hidden_state), (logits, other.logits)
    states, logits = (float(np.abs(a - b.detach().numpy()).max()) for a, b in pairs)
    return states, logits


def texts(model, params, prompts, draft=None, inputs=HEARD) -> list[list[int]]:
    """Greedy, each with its prompt and up to its end."""
    prompt = make_prompt(prompts)._replace(inputs=inputs)
    sampling = make_sampling(len(prompts), 0.0)
    request = make_request(jax.random.key(0), prompt, NEW, sampling, END)
    decoder, both = Decoder(model), Params(params)
    if draft is not None:
        decoder = Decoder(model, autoregressive.build(draft[0], 3))
        both = Params(params, draft[1])
    output = generate.build(decoder, POSITIONS)(both, prompt, request)
    rows = zip(output.tokens, output.length, strict=True)
    return [tokens[:n].tolist() for tokens, n in rows]


# Numbers.


def test_states_and_logits_are_those_of_transformers(written, loaded):
    assert max(differences(written.model, loaded)) <= MOST
    sizes = dict(bands=BANDS, frames=FRAMES, positions=POSITIONS)
    assert loaded.config == whisper.Config(VOCAB, 18, 72, 2, 3, 3, **sizes)
    ends = loaded.family, loaded.start, loaded.ends
    assert ends == ("whisper", TOKENS.start, (END,))


def test_fresh_positions_are_those_of_transformers(loaded):
    from transformers.models.whisper.modeling_whisper import sinusoids

    fresh = whisper.init_params(jax.random.key(0), loaded.config)
    ours = fresh["encoder"]["positions"].value
    np.testing.assert_allclose(ours, sinusoids(FRAMES // 2, 18), atol=1e-6)


def swapped_query_and_key(params):
    attention = params["decoder"]["layers_0"]["cross_attention"]
    kernels = attention["query"]["kernel"], attention["key"]["kernel"]
    attention["key"]["kernel"], attention["query"]["kernel"] = kernels


def untransposed(params):
    kernel = params["decoder"]["layers_1"]["attention"]["out"]
    kernel["kernel"] = kernel["kernel"].T


def a_window_backwards(params):
    convolution = params["encoder"]["conv_1"]
    convolution["kernel"] = convolution["kernel"][::-1]


def shifted_positions(params):
    params["decoder"]["positions"] = jnp.roll(params["decoder"]["positions"], 1, 0)


def other_norm(params):
    layer = params["decoder"]["layers_1"]
    layer["cross_attention_norm"] = layer["attention_norm"]


@pytest.mark.parametrize(
    "breaks",
    [
        swapped_query_and_key,
        untransposed,
        a_window_backwards,
        shifted_positions,
        other_norm,
    ],
)
def test_the_check_notices_a_wrong_name_or_orientation(written, breaks):
    checkpoint = checkpoints.load(written.folder)
    breaks(checkpoint.params)
    assert differences(written.model, checkpoint)[1] > 100 * MOST


# Texts.


def expected(model, prompt: list[int], timestamps: bool) -> list[list[int]]:
    """What transformers writes of each row by its own processors of logits: without
    what its long form does besides."""
    processors = [
        transformers.generation.SuppressTokensLogitsProcessor(LIMITS.suppressed),
        transformers.generation.SuppressTokensAtBeginLogitsProcessor(
            LIMITS.at_first, begin_index=len(prompt)
        ),
    ]
    if timestamps:
        of_times = transformers.generation.WhisperTimeStampLogitsProcessor
        processors.append(of_times(model.generation_config, begin_index=len(prompt)))
    told = transformers.GenerationMixin.generate(
        model,
        FEATURES,
        decoder_input_ids=torch.tensor([prompt] * ROWS),
        logits_processor=transformers.LogitsProcessorList(processors),
        max_new_tokens=NEW,
        do_sample=False,
    )
    return [cut(row.tolist(), len(prompt)) for row in told]


def cut(row: list[int], start: int) -> list[int]:
    """Up to the first end behind the prompt."""
    own = row[start:]
    return row[:start] + (own[: own.index(END) + 1] if END in own else own)


@pytest.mark.parametrize("timestamps", [True, False])
def test_greedy_texts_are_those_of_transformers(written, loaded, timestamps):
    """Under its rules, alone and with a smaller draft, whose states are shared."""
    prompt = [TOKENS.start, 22, 25] + [TOKENS.no_timestamps] * (not timestamps)
    wanted = expected(written.model, prompt, timestamps)
    ruled = rules.build(TOKENS, LIMITS, VOCAB, timestamps)
    model = constrained(loaded.model, ruled)
    prompts = [prompt] * ROWS
    assert texts(model, loaded.params, prompts) == wanted
    assert len({token for row in wanted for token in row}) > 8, "too little"

    small = loaded.config._replace(decoder_layers=1)
    draft = constrained(whisper.build(small), ruled), loaded.params
    assert texts(model, loaded.params, prompts, draft) == wanted
    encoded = whisper.encode(loaded.config, loaded.params, HEARD)
    assert texts(model, loaded.params, prompts, draft, encoded) == wanted
    plain = whisper.build(small), loaded.params
    assert texts(model, loaded.params, prompts, plain) == wanted


# Other files.


def test_what_we_write_transformers_reads(written, loaded, tmp_path):
    checkpoints.save(tmp_path / "again", loaded, most=9000)
    load = transformers.WhisperForConditionalGeneration.from_pretrained
    again = load(tmp_path / "again").eval()
    back = checkpoints.load(tmp_path / "again")
    assert max(differences(again, loaded)) <= MOST
    assert back.config == loaded.config and len(back.files) > 3
    jax.tree.map(np.testing.assert_array_equal, back.params, loaded.params)


def test_a_bare_model_is_read_as_well(written, loaded, tmp_path):
    written.model.model.save_pretrained(tmp_path)
    back = checkpoints.load(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, back.params, loaded.params)


# OpenAI's names of theirs, as they stand in a name.
RENAMED = [
    ("model.", ""),
    ("layers", "blocks"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("self_attn.", "attn."),
    ("encoder_attn.", "cross_attn."),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
    ("embed_tokens", "token_embedding"),
    ("embed_positions.weight", "positional_embedding"),
]
DIMS = dict(
    n_mels=BANDS,
    n_audio_ctx=FRAMES // 2,
    n_audio_state=18,
    n_audio_head=3,
    n_audio_layer=2,
    n_vocab=VOCAB,
    n_text_ctx=POSITIONS,
    n_text_state=18,
    n_text_head=3,
    n_text_layer=3,
)


def write_openai(model, file: Path, dtype=torch.float32, **dims) -> Path:
    weights = {}
    for name, tensor in model.state_dict().items():
        for old, new in RENAMED:
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
        (b"no pickle", r"a.pt is a pickle that is cut short or holds more than ten"),
        ({"a": 1}, r"a.pt is no Whisper of OpenAI, which holds dims and model_state"),
        ([1], r"a.pt is no Whisper of OpenAI"),
        ({"dims": {}, "model_state_dict": {"a": 1}}, r"a.pt: a is no tensor: copy"),
        (Path("a"), r"a.pt is a pickle that is cut short or holds more than tensors"),
    ],
)
def test_a_file_of_another_kind_is_refused(written, tmp_path, content, words):
    file = tmp_path / "a.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, dict) and "dims" not in content and "a" not in content:
        write_openai(written.model, file, **content)
    else:
        torch.save(content, file)
    with pytest.raises(ValueError, match=words) as caught:
        checkpoints.load(file)
    assert "n_vocab" in words or "\n" not in str(caught.value) or "(60" in words


def test_two_models_of_one_encoder_are_told_from_others(written, loaded):
    other = checkpoints.load(written.folder).params
    assert whisper.same_encoder(loaded.params, other)
    kernel = other["encoder"]["layers_1"]["mlp"]["out"]["kernel"]
    other["encoder"]["layers_1"]["mlp"]["out"]["kernel"] = kernel.at[0, 0].add(1.0)
    assert not whisper.same_encoder(loaded.params, other)
