"""T5X: its own network and its own decoding, where it can be imported.

Our parameters have its names, so that they are passed unchanged. Axes: N texts, I input
tokens, T new tokens.
"""

import hashlib
import subprocess
from collections.abc import Callable
from importlib import util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from specjax.checkpoints import Pretrained
from specjax.models.t5 import Config

NEEDS = (
    "t5x, which is on no package index: git clone"
    " https://github.com/google-research/t5x, and airio and jestimator beside it; put"
    " their folders on PYTHONPATH; pip install seqio fiddle tensorboard cached_property"
    " jaxtyping"
)


def importable() -> bool:
    return util.find_spec("t5x") is not None


def version() -> str:
    """Returns the version of T5X where it can be imported: the commit of its checkout,
    or its version.
    """
    folder = Path(util.find_spec("t5x").submodule_search_locations[0])
    if (folder.parent / ".git").exists():
        asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return f"commit {done.stdout.strip()}"
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"sources of sha256 {digest.hexdigest()}"


def network_of(config: Config):
    """Returns its `Transformer` of these sizes."""
    from t5x.examples.t5 import network

    sizes = network.T5Config(
        vocab_size=config.vocab,
        emb_dim=config.dim,
        num_heads=config.num_heads,
        num_encoder_layers=config.encoder_layers,
        num_decoder_layers=config.decoder_layers,
        head_dim=config.head_width,
        mlp_dim=config.mlp_dim,
        mlp_activations=("gelu", "linear") if config.gated else ("relu",),
        dropout_rate=0.0,
        logits_via_embedding=config.tied,
        dtype=jnp.dtype(config.dtype),
    )
    return network.Transformer(sizes)


def decoder(
    target: Pretrained, inputs: np.ndarray, *, new_tokens: int, batch: int
) -> Callable[[], list[jax.Array]]:
    """Returns a program that writes the greedy texts of inputs [N, I], `batch` at once,
    with its encoder, cache and `temperature_sample` at temperature 0.
    """
    import seqio
    from t5x import decoding, models

    vocabulary = seqio.PassThroughVocabulary(target.config.vocab)
    model = models.EncoderDecoderModel(
        network_of(target.config),
        vocabulary,
        vocabulary,
        optimizer_def=None,
        decode_fn=decoding.temperature_sample,
    )

    @jax.jit
    def run(params, read: jax.Array) -> jax.Array:
        blank = jnp.zeros((read.shape[0], new_tokens), jnp.int32)
        asked = {"encoder_input_tokens": read, "decoder_input_tokens": blank}
        settings = {"temperature": 0.0, "topk": 0, "eos_id": -1}  # no token ends it
        return model.predict_batch_with_aux(params, asked, decoder_params=settings)[0]

    groups = [jnp.asarray(inputs[i : i + batch]) for i in range(0, len(inputs), batch)]
    return lambda: [run(target.params, group) for group in groups]
