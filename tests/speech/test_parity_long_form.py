"""Sequential transcription equals that of transformers, with a random Whisper.

The model is theirs on both sides; windows, prompts, rules, segments and the way to the
next window are ours on one. Axes: T frames, M bands, V vocabulary.
"""

import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax.speech import rules  # noqa: E402
from specjax.speech.segments import Thresholds  # noqa: E402
from specjax.speech.sequential import (  # noqa: E402
    Decoded,
    Options,
    Recording,
    transcribe,
)
from tests.support.tiny_whisper import TOKENS  # noqa: E402

torch.set_num_threads(1)
BANDS, NEW, CONTEXT = 5, 14, 40
VOCAB = TOKENS.first_time + 1501
LIMITS = rules.Limits(suppressed=(1, *range(21, 30)), at_first=(5, 20), first_time=50)
NEVER = Thresholds(None, None, None, (0.0,))


@pytest.fixture(scope="module", params=range(3))
def model(request):
    torch.manual_seed(request.param)
    sizes = dict(
        encoder_layers=1, decoder_layers=1, vocab_size=VOCAB, num_mel_bins=BANDS
    )
    sizes |= dict(encoder_attention_heads=2, decoder_attention_heads=2, d_model=16)
    sizes |= dict(encoder_ffn_dim=16, decoder_ffn_dim=16, max_target_positions=CONTEXT)
    sizes |= {f"{name}_token_id": TOKENS.end for name in ("pad", "bos", "eos")}
    config = transformers.WhisperConfig(decoder_start_token_id=TOKENS.start, **sizes)
    whisper = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for leaf in whisper.parameters():
            leaf.add_(0.4 * torch.randn_like(leaf))
        # Times are many: less of each, or nothing else is ever written.
        whisper.proj_out.weight[TOKENS.first_time :] *= 0.3
    fields = whisper.generation_config
    fields.no_timestamps_token_id = TOKENS.no_timestamps
    fields.prev_sot_token_id = TOKENS.previous
    fields.is_multilingual = True
    fields.lang_to_id = {f"<|{x}|>": i for x, i in TOKENS.languages.items()}
    fields.task_to_id = dict(TOKENS.tasks)
    fields.suppress_tokens = list(LIMITS.suppressed)
    fields.begin_suppress_tokens = list(LIMITS.at_first)
    fields.max_initial_timestamp_index = LIMITS.first_time
    return whisper


def sounds() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, BANDS)).astype(np.float32) for n in (7001, 9470)]


def decoder(model):
    """Returns a decoder that takes the model's argmax, one row at a time, under our
    rules."""
    ruled = rules.build(TOKENS, LIMITS, VOCAB)

    def decode(features, prompts, temperatures):
        assert not temperatures.any()
        rows = []
        for window, prompt in zip(features, prompts, strict=True):
            encoded = model.model.encoder(torch.tensor(window.T)[None])
            ids = list(prompt)
            while len(ids) < len(prompt) + NEW and ids[-1] != TOKENS.end:
                read = torch.tensor([ids])
                logits = model(decoder_input_ids=read, encoder_outputs=encoded).logits
                state = ruled.begin(jnp.array([ids]), jnp.array([len(ids)]))
                last = jnp.array(logits[:, -1].detach().numpy())
                ids.append(int(ruled.apply(state, last)[0].argmax()))
            rows.append([i for i in ids[len(prompt) :] if i != TOKENS.end])
        return Decoded(rows, [0.0] * len(rows), [0.0] * len(rows))

    return decode


@pytest.mark.parametrize("condition", [False, True])
def test_segments_are_those_of_transformers(model, condition):
    asked = Options("de", condition=condition, thresholds=NEVER, context=CONTEXT)
    own = [[], []]
    read = "{}".format
    heard = map(Recording, sounds())
    for told in transcribe(heard, decoder(model), TOKENS, read, asked):
        own[told.recording] += told.segments
    for frames, segments in zip(sounds(), own, strict=True):
        written = model.generate(
            torch.tensor(frames.T)[None],
            return_timestamps=True,
            return_segments=True,
            language="de",
            task="transcribe",
            temperature=0.0,
            condition_on_prev_tokens=condition,
            max_new_tokens=NEW,
        )["segments"][0]
        assert len(segments) >= 3
        for segment, other in zip(segments, written, strict=True):
            last = len(frames) / 100  # seconds; theirs go on into the silence behind
            begun, ended = (min(float(other[x]), last) for x in ("start", "end"))
            assert abs(segment.start - begun) < 1e-6
            assert abs(segment.end - ended) < 0.0201
            ids = other["tokens"].tolist()
            assert tuple(ids[: len(segment.tokens)]) == segment.tokens
