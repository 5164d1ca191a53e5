"""EAGLE-3 heads in folders compute what the modules of the package speculators compute.

Of its version 0.9, by `make test-speculators`, in an environment of its own: it asks
for an older transformers. A row of its module is the state of a token beside the token
after it. In step j of its training every row reads the text's token j places on, and
its own outputs of the steps before: so row t says what follows token t + 1 + j, and the
last row before a draft says the drafted tokens one after another.
Axes: T tokens, D features, K ids of a head, J steps.
"""

import json

import flax.linen as nn
import jax
import numpy as np
import pytest

import specjax
from specjax import checkpoints, drafts, generate, probs, zoo
from specjax.cli import train_draft
from specjax.drafters import eagle3
from specjax.drafts import eagle3_files, head_files
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import llama
from specjax.models.llama import Rotation, Stretch
from specjax.step import Decoder
from specjax.training import draft_kinds, heads
from specjax.types import Params
from tests.support import head_folders, text_folders, tiny_llama
from tests.support.head_folders import SAID, V
from tests.training.test_train_draft import (
    HEAD,
    PROMPTS,
    SHORT,
    TEXT,
    hidden_states,
    make_lesson,
)

torch = pytest.importorskip("torch")
speculators = pytest.importorskip("speculators")

TURNS = 3
KNOWN = 5  # tokens of a text after which a draft begins
ATOL = 1e-4
WHOLE = llama.Config(V, 16, 24, 7, 4, 2, 6)  # of layers that EAGLE's own taps differ
LAYER = llama.Config(V, 16, 10, 1, 2, 2, 4)
QWEN3 = LAYER._replace(style="qwen3", rotation=Rotation(300.0))
BIASED = LAYER._replace(biased=True, out_biased=True, mlp_biased=True)
STRETCHED = LAYER._replace(rotation=Rotation(100.0, stretch=Stretch(4.0, 1.0, 4.0, 40)))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A model that transformers has a class for, in the folder that it is called by."""
    folder = tmp_path_factory.mktemp("target") / "model"
    checkpoints.save(folder, (WHOLE, tiny_llama.weights(WHOLE, 4)))
    return specjax.load(folder)


def read_module(folder):
    """Returns the module that the package's own loader makes from a folder, with
    attention in plain operations.

    Where a folder has no embedding, the loader of version 0.9.0 is to take the target's
    and looks for NaN; of a missing array transformers leaves what lies in memory, which
    mostly is none, and the module then drafts by that.
    """
    stated = speculators.SpeculatorModelConfig.from_pretrained(folder)
    stated.transformer_layer_config._attn_implementation = "eager"
    module = speculators.SpeculatorModel.from_pretrained(folder, config=stated)
    if head_files.EMBEDDING not in head_folders.weights(folder)[1]:
        module._load_verifier_weights(overwrite_embed_tokens=True)
    return module.eval()


def module_logits(module, taps, tokens):
    """Returns the module's logits [J, T - 1, K] of a text in each step. taps: [T - 1, A
    D]."""
    said = []
    hook = module.lm_head.register_forward_hook(lambda *call: said.append(call[2][0]))
    with torch.no_grad():
        module(
            torch.tensor(taps, dtype=torch.float32)[None],
            torch.tensor(tokens[1:], dtype=torch.long)[None],
            torch.zeros(1, len(tokens) - 1, dtype=torch.long),
            ttt_steps=TURNS,
        )
    hook.remove()
    return np.stack([each.numpy() for each in said])


def draft_logits(module, taps, known, drafted):
    """Returns the module's logits [J, K] of a draft after known tokens; it reads the
    states of all but the last one. Later rows do not see what is unknown."""
    tokens = np.zeros(len(known) + TURNS, int)
    tokens[: len(known)] = known
    tokens[len(known) :][: len(drafted)] = drafted
    seen = np.zeros((len(tokens) - 1, taps.shape[-1]))
    seen[: len(known) - 1] = taps[: len(known) - 1]
    return module_logits(module, seen, tokens)[:, len(known) - 2]


def draft_greedily(module, taps, known, ids):
    """Returns the ids [J] of the target that the module drafts at temperature 0."""
    drafted = []
    for turn in range(TURNS):
        logits = draft_logits(module, taps, known, drafted)
        drafted.append(int(ids[logits[turn].argmax()]))
    return drafted


def our_drafts(whole, source, texts):
    """Returns what is drafted after each text at temperature 0, [B, J], and at
    temperature 1, with its law [B, J, V]."""
    drafter, prompt = source.drafter(TURNS), make_prompt(texts)
    params = Params(whole.params, source.params)

    @jax.jit
    def run(sampling):
        request = make_request(jax.random.key(0), prompt, 8, sampling)
        state = generate.prefill(Decoder(whole.model, drafter), params, prompt, 20)
        made = drafter.draft(request.key, params.draft, request, state)[0]
        return made.tokens, probs.dense(made.law)

    greedy, _ = run(make_sampling(len(texts), 0.0))
    return jax.tree.map(np.asarray, (greedy, *run(make_sampling(len(texts), 1.0))))


def compare(folder, target, module, atol=ATOL):
    """Asserts that a head's folder gives the module's logits, in training and in
    drafts."""
    read = eagle3_files.read(head_files.find_folder(folder), target)
    whole, source = drafts.pair(target, str(folder))
    hidden = hidden_states(whole)
    taps = np.concatenate([np.asarray(tap) for tap in hidden.taps], axis=-1)
    lesson = make_lesson(whole, hidden)
    turns = jax.jit(heads.eagle3_turns(read.config, TURNS))(read.params, lesson)
    for row, tokens in enumerate(TEXT):
        theirs = module_logits(module, taps[row, :-1], tokens)
        for j, turn in enumerate(turns):
            ours = np.asarray(turn.logits[row, j + 1 :])
            np.testing.assert_allclose(ours, theirs[j, : len(ours)], atol=atol)

    ids = np.asarray(source.params.get("ids", np.arange(target.vocab)))
    known = TEXT[:, :KNOWN].tolist()
    greedy, tokens, laws = our_drafts(whole, source, known)
    for row, before in enumerate(known):
        assert draft_greedily(module, taps[row], before, ids) == greedy[row].tolist()
        logits = draft_logits(module, taps[row], before, tokens[row])
        law = np.zeros((TURNS, target.vocab))
        law[:, ids] = np.exp(logits - logits.max(-1, keepdims=True))
        law /= law.sum(-1, keepdims=True)
        np.testing.assert_allclose(laws[row], law, atol=atol)


OPTIONS = {
    "plain": (LAYER, {}),
    "residual": (LAYER, {"norm_before_residual": True}),
    "output": (LAYER, {"norm_output": True}),
    "taps": (STRETCHED, {"norm_taps": True}),
    "join": (LAYER, {"norm_before_join": True}),
    "all": (
        QWEN3,
        {"norm_before_residual": True, "norm_output": True, "norm_taps": True},
    ),
    "embedding": (BIASED, {"own_embedding": True, "norm_before_residual": True}),
    "every id": (LAYER, {"draft_vocab": None}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_head_that_is_written_is_its_module(name, target, tmp_path):
    """The package also saves the same head again."""
    layer, options = OPTIONS[name]
    config = eagle3.Config(
        layer, 16, (0, 2, 7), **{"draft_vocab": SAID.size, **options}
    )
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32),
        nn.meta.unbox(eagle3.init_params(jax.random.key(0), config)),
    )
    said = None if config.draft_vocab is None else SAID
    folder, again = tmp_path / "head", tmp_path / "again"
    eagle3_files.write(folder, config, params, ids=said, target=target, chain=TURNS)
    module = read_module(folder)
    compare(folder, target, module)
    module.save_pretrained(again)
    ours, theirs = (drafts.load_draft(str(x), target) for x in (folder, again))
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def test_another_option_is_another_module(target, tmp_path):
    """A flag changes far more than the difference between two ways to compute."""
    folder = head_folders.write_eagle3(
        tmp_path / "head", norm_before_residual=False, **verifier_fields(target)
    )
    module = read_module(folder)
    compare(folder, target, module)
    head_folders.change(folder, norm_before_residual=True)
    with pytest.raises(AssertionError):
        compare(folder, target, module)


def verifier_fields(target):
    """Returns the fields of a folder that name its target."""
    proposal = {"proposal_type": "greedy", "speculative_tokens": TURNS}
    verifier = {"name_or_path": head_files.name_or_path(target), "architectures": []}
    return {
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": verifier,
        }
    }


def convert(folder, target):
    """Returns the folder that the package's converter makes from one in EAGLE's layout;
    the converter reads no taps, and takes those of EAGLE."""
    from speculators.convert import convert_model

    made, verifier = folder.with_name("converted"), head_files.name_or_path(target)
    convert_model(str(folder), verifier, "eagle3", output_path=str(made))
    return made


@pytest.mark.parametrize("flags", [{}, {"norm_output": True}])
def test_a_head_of_eagles_layout_is_the_module_it_is_converted_to(
    flags, target, tmp_path
):
    folder = head_folders.write_eagle3(tmp_path / "head", "midlayer", **flags)
    converted = convert(folder, target)
    module = read_module(converted)
    assert module.target_layer_ids == list(eagle3.default_taps(WHOLE.num_layers))
    compare(folder, target, module)
    ours, theirs = (drafts.load_draft(str(x), target) for x in (folder, converted))
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def test_norms_that_the_converter_drops_are_missed(target, tmp_path):
    """The converter of version 0.9.0 keeps the option and not the arrays, so that the
    package creates new ones."""
    folder = head_folders.write_eagle3(tmp_path / "head", "midlayer", fc_norm=True)
    with pytest.raises(ValueError, match=r"missing:\n  fc_norm\.0\.weight"):
        drafts.load_draft(str(convert(folder, target)), target)


def test_a_trained_head_is_read_back_by_the_package(tmp_path):
    """The package finds the target by what the folder says."""
    config = text_folders.LLAMA._replace(num_layers=3)
    text_folders.llama_folder(tmp_path / "whole", config, 0)
    lines = (json.dumps({"prompt": text}) + "\n" for text in PROMPTS)
    (tmp_path / "prompts.jsonl").write_text("".join(lines))
    flags = f"--target {tmp_path}/whole --out {tmp_path}/head {SHORT} {HEAD}"
    flags += f" --data {tmp_path}/prompts.jsonl --length 8"
    train_draft.main(flags.split())
    target = specjax.load(tmp_path / "whole")
    module = speculators.SpeculatorModel.from_pretrained(tmp_path / "head")
    embedding = module.embed_tokens.weight.detach().numpy()
    np.testing.assert_array_equal(embedding, target.params["embedding"])
    compare(tmp_path / "head", target, read_module(tmp_path / "head"))


def write_verifier(folder, target):
    """Writes a narrow Llama with the embedding and the readout of a target that
    transformers has no class for; beside these the package reads the number of layers
    of a verifier."""
    whole = target.config
    config = llama.Config(target.vocab, whole.dim, 16, whole.num_layers, 1, 1, 8)
    params = tiny_llama.weights(config, 1)
    params |= {"embedding": target.params["embedding"]}
    params |= {"readout": draft_kinds.readout_of(target)}
    checkpoints.save(folder, (config, params))


def test_the_bundled_head_of_the_code_target_is_read_by_the_package(tmp_path):
    """Its target is bundled, and has no folder that transformers reads: the folder is
    written here, and the head says where it is."""
    target, folder = specjax.load("code_target"), tmp_path / "head"
    bundled = head_files.find_folder(zoo.FOLDER / "code_eagle3")
    read = eagle3_files.read(bundled, target)
    ids = np.arange(len(read.offsets)) + read.offsets
    eagle3_files.write(
        folder, read.config, read.params, ids=ids, target=target, chain=TURNS
    )
    stated = head_folders.weights(folder)[0]["speculators_config"]
    assert stated["verifier"]["name_or_path"] == "code_target"
    write_verifier(tmp_path / "verifier", target)
    stated["verifier"]["name_or_path"] = str(tmp_path / "verifier")
    head_folders.change(folder, speculators_config=stated)
    module = read_module(folder)
    embedding = module.embed_tokens.weight.detach().numpy()
    np.testing.assert_array_equal(embedding, target.params["embedding"])
    compare(folder, target, module, atol=2e-3)  # logits of a model 512 features wide
