"""Speculative decoding in JAX: text in and text out, and the functions under it.

`load` and `generate_text` take names and texts. Under them everything is a function on
pytrees. A `Decoder` is a model, a drafter of `drafters`, a rule of `verifiers` and
one of `policies`; `generate.build` runs it to the end, `stream` shows its every step,
`build_step` makes one, and `autoregressive` is the baseline.
"""

import importlib
from typing import TYPE_CHECKING, Any

from specjax import drafters, generate, policies, theory, verifiers
from specjax.generate import autoregressive
from specjax.generate import build_stream as stream
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.runtime import jax_flags
from specjax.step import Decoder, build_step
from specjax.types import (
    Drafter,
    Model,
    Params,
    Policy,
    Prompt,
    Request,
    Sampling,
    Verifier,
)

if TYPE_CHECKING:
    from specjax.beam import GeneratedBeams, generate_beams
    from specjax.beam.settings import BeamConfig
    from specjax.drafts import load_draft
    from specjax.pretrained import Pretrained, load
    from specjax.speech.transcripts import Transcribed, transcribe
    from specjax.text import Generated, generate_text, stream_text

jax_flags.set_xla()
__version__ = "0.1.0"

__all__ = [
    "BeamConfig",
    "Decoder",
    "Drafter",
    "Generated",
    "GeneratedBeams",
    "Model",
    "Params",
    "Policy",
    "Pretrained",
    "Prompt",
    "Request",
    "Sampling",
    "Transcribed",
    "Verifier",
    "autoregressive",
    "build_step",
    "drafters",
    "generate",
    "generate_beams",
    "generate_text",
    "load",
    "load_draft",
    "make_prompt",
    "make_request",
    "make_sampling",
    "policies",
    "stream",
    "stream_text",
    "theory",
    "transcribe",
    "verifiers",
]

# These need flax and the readers of files; they are imported on first use.
LATER = {
    "BeamConfig": "specjax.beam.settings",
    "Generated": "specjax.text",
    "GeneratedBeams": "specjax.beam",
    "Pretrained": "specjax.pretrained",
    "Transcribed": "specjax.speech.transcripts",
    "generate_beams": "specjax.beam",
    "generate_text": "specjax.text",
    "load": "specjax.pretrained",
    "load_draft": "specjax.drafts",
    "stream_text": "specjax.text",
    "transcribe": "specjax.speech.transcripts",
}


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(importlib.import_module(LATER[name]), name)
    raise AttributeError(f"module 'specjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
