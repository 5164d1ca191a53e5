"""A head that was written here is the head that the package speculators reads."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, pretrained
from specjax.checkpoints import Pretrained
from specjax.drafters import eagle3
from specjax.drafts import eagle3_files
from specjax.models import families, llama
from specjax.training import heads
from tests.support import head_folders, tiny_llama
from tests.support.head_folders import SAID, V
from tests.training.test_train_draft import TEXT, TURNS, lesson_of, states_of

torch = pytest.importorskip("torch")
pytest.importorskip("speculators")

WHOLE = llama.Config(V, 16, 24, 4, 4, 2, 6)
LAYER = llama.Config(V, 16, 10, 1, 2, 2, 4)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A model that transformers has a class for, in the folder that it is called by."""
    folder = tmp_path_factory.mktemp("target") / "model"
    params = tiny_llama.worlds(WHOLE, 4)().target_weights
    checkpoints.save(folder, (WHOLE, params))
    return Pretrained(str(folder), WHOLE, families.build(WHOLE), params)


FLAGS = [
    {},
    {"norm_before_residual": True, "norm_output": True, "norm_taps": True},
    {"norm_before_join": True},
]


@pytest.mark.parametrize("flags", FLAGS)
def test_its_drafted_tokens_are_those_of_its_module(flags, target, tmp_path):
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    config = eagle3.Config(LAYER, 16, (0, 2, 3), draft_vocab=SAID.size, **flags)
    params = nn.meta.unbox(eagle3.init_params(jax.random.key(0), config))
    params = jax.tree.map(lambda x: 2 * x, params)  # sharp, and norms not of 1
    folder = tmp_path / "head"
    eagle3_files.write(folder, config, params, ids=SAID, target=target, chain=TURNS)

    stated = Eagle3SpeculatorConfig.from_pretrained(folder)
    stated.transformer_layer_config._attn_implementation = "eager"
    module = Eagle3DraftModel.from_pretrained(folder, config=stated)
    module.load_verifier_weights()
    whole = pretrained.with_taps(target, config.taps)
    hidden = states_of(whole)
    turns = heads.eagle3_turns(config, TURNS)(params, lesson_of(whole, hidden))
    for row, text in enumerate(TEXT):
        taps = np.concatenate([np.asarray(tap[row]) for tap in hidden.taps], axis=-1)
        with torch.no_grad():
            tokens = module(
                torch.tensor(taps)[None, :-1],
                torch.tensor(text[1:], dtype=torch.long)[None],
                torch.zeros(1, len(text) - 1, dtype=torch.long),
                ttt_steps=TURNS,
            )
        for number, (turn, theirs) in enumerate(zip(turns, tokens, strict=True)):
            # A row there is a state and the token after it.
            ours = jnp.argmax(turn.logits[row, number + 1 :], axis=-1)
            np.testing.assert_array_equal(theirs[0, : len(ours)].numpy(), ours)
    assert head_folders.weights(folder)[1]["d2t"].tolist() == list(
        SAID - np.arange(SAID.size)
    )
