"""The command that trains the speech models, whole, on tiny ones and few windows."""

import json

import jax
import numpy as np
import pytest

from experiments.training import loop, zoo_speech
from experiments.training.drafts import speech as drafts
from experiments.training.targets import speech as targets
from experiments.training.voices import examples, phonemes, sentences, synthesis
from specjax import checkpoints, zoo
from specjax.models import whisper
from specjax.speech import tokens

BRIEF = loop.Recipe(2, 0, batch=2, warmup=1, weight_decay=0.0, evaluate_every=2)
TINY = targets.SMALL._replace(dim=16, mlp_dim=24, num_heads=2, encoder_layers=1)


@pytest.fixture
def short(monkeypatch):
    """Sizes and lengths that need seconds."""
    monkeypatch.setattr(targets, "SMALL", TINY)
    whole = TINY._replace(frames=examples.WHOLE.frames)
    monkeypatch.setattr(targets, "WHOLE", whole)
    monkeypatch.setattr(targets, "LARGE", whole._replace(decoder_layers=2))
    for name in ("SHORT", "WINDOWS", "RECORDED"):
        monkeypatch.setattr(zoo_speech, name, 4)
    monkeypatch.setattr(zoo_speech, "HELD_OUT", 16)
    recipes = dict.fromkeys(zoo_speech.RECIPES, BRIEF)
    monkeypatch.setattr(zoo_speech, "RECIPES", recipes)
    monkeypatch.setattr(drafts, "BATCH", 8)
    monkeypatch.setattr(drafts, "TEXTS", 8)
    monkeypatch.setattr(drafts, "HELD_OUT", 16)


def start(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["train", *map(str, arguments)])
    zoo_speech.main()


@pytest.mark.slow
def test_the_speech_models(monkeypatch, short, tmp_path):
    runs, export = tmp_path / "runs", tmp_path / "export"
    export.mkdir()
    start(monkeypatch, "--runs", runs, "--export", export)
    target, draft = (
        checkpoints.load(export / f"{name}.safetensors") for name in zoo.SPEECH_MODELS
    )
    assert whisper.same_encoder(target.params, draft.params)
    assert target.start == sentences.START and target.ends == (sentences.END,)
    recipes = json.loads((export / "speech_recipes.json").read_text())
    assert recipes["held_out"]["word_errors"]["recordings"] == 16
    assert {"alpha_t0", "alpha_t1"} <= recipes["held_out"].keys()
    learns_on_recordings(monkeypatch, runs, tmp_path)


def learns_on_recordings(monkeypatch, runs, tmp_path):
    """From the weights that are there, into folders that transformers reads."""
    import soundfile

    digits, folders = tmp_path / "digits", tmp_path / "folders"
    digits.mkdir()
    lines = ["file\tspeaker\tseconds\ttranscript\tsplit"]
    for word in phonemes.DIGITS[:3]:
        voice, rng = synthesis.Speaker(), np.random.default_rng(0)
        samples = synthesis.say([word], voice, rng).samples
        soundfile.write(digits / f"{word}.wav", samples[::2], 8000)
        lines += [
            f"{word}.wav\tann\t0.4\t{word}\t{split}" for split in ("train", "test")
        ]
    (digits / "transcripts.tsv").write_text("\n".join(lines) + "\n")
    where = "--runs", runs, "--recordings", digits, "--folders", folders
    start(monkeypatch, *where)
    target, draft = (checkpoints.load(folders / name) for name in ("target", "draft"))
    assert whisper.same_encoder(target.params, draft.params)
    assert tokens.read(folders / "target").first_time == sentences.FIRST_TIME
    assert (folders / "scores.json").is_file()
    with pytest.raises(ValueError, match="exists: name another folder"):
        start(monkeypatch, *where)


def test_a_deeper_decoder_begins_with_the_same_law():
    params = targets.task(TINY).init(jax.random.key(0))
    config = TINY._replace(decoder_layers=3)
    rows = examples.rows((0,), 2, examples.SHORT)
    states = jax.jit(targets.states_of, static_argnums=0)(TINY, params, rows.frames)
    grown = targets.deeper(params, 3)
    before, after = (
        jax.jit(targets.logits_of, static_argnums=0)(c, p, states, rows.tokens)
        for c, p in ((TINY, params), (config, grown))
    )
    np.testing.assert_allclose(before, after, rtol=1e-6)
    gradient = jax.jit(jax.grad(targets.loss(config, 0.0)))(grown, rows)
    last = gradient["decoder"]["layers_2"]["mlp"]["out"]["kernel"]
    assert np.abs(last).max() > 0  # it can learn
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient["encoder"]))
