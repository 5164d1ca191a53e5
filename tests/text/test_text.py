"""`specjax.load` and `specjax.generate_text` write what decoding gives."""

import jax
import numpy as np
import pytest

import specjax
from specjax import checkpoints, generate, text, zoo
from specjax.decode_config import DecodeConfig
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, penalties
from specjax.step import Decoder
from specjax.text import programs
from specjax.types import Params
from tests.support import text_folders

NEW, GAMMA = 8, 3
PROMPTS = ["def add(", "class Stack:\n    "]
CODE = gpt.Config(8192, 16, 32, 1, 2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two models of the bundled code tokenizer."""
    return text_folders.code_pair(tmp_path_factory.mktemp("code"), CODE)


@pytest.fixture(scope="module")
def greedy(pair):
    return specjax.generate_text(*pair, PROMPTS, GAMMA, new_tokens=NEW)


# Loading.


def test_a_bundled_file_comes_with_its_tokenizer_and_ends(pair):
    model = pair[0]
    assert model.tokenizer == zoo.tokenizer() and model.config == CODE
    assert (model.start, model.ends, model.name) == (zoo.START, (zoo.END,), "m0")
    model = specjax.load("t5_decoder", "bfloat16")  # of the T5 family's vocabulary
    assert model.tokenizer_file == zoo.tokenizer("t5").file
    assert (model.start, model.ends, model.dtype) == (0, (1,), "bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(model.params)} == {"bfloat16"}


def test_a_folder_of_gpt2_comes_with_its_own(tmp_path):
    pytest.importorskip("tokenizers")
    folder = text_folders.gpt2(tmp_path / "gpt2")
    model = specjax.load(folder)
    assert model.tokenizer.file == folder / "tokenizer.json"
    # config.json names no ends here; tokenizer_config.json does.
    assert checkpoints.load(folder).start is None
    assert (model.start, model.ends) == (0, (0,))
    other = specjax.load(folder, tokenizer=zoo.FOLDER / "t5.model")
    assert other.tokenizer.file == zoo.FOLDER / "t5.model"
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="gpt2 has no tokenizer beside its weights"):
        _ = specjax.load(folder).tokenizer


def test_a_model_without_a_tokenizer_writes_ids(pair, greedy):
    target, draft = pair
    ids = [{"tokens": target.tokenizer.encode(text)} for text in PROMPTS]
    bare = target._replace(tokenizer_file=None)
    got = specjax.generate_text(bare, draft, ids, GAMMA, new_tokens=NEW)
    assert got.ids == greedy.ids and got.texts == [None] * len(ids)
    with pytest.raises(ValueError, match="m0 has no tokenizer beside its weights"):
        specjax.stream_text(bare, draft, ids, GAMMA, new_tokens=NEW)


def test_no_drafted_token_is_the_target_alone_whatever_drafts(pair):
    alone = specjax.generate_text(pair[0], None, PROMPTS, new_tokens=NEW)
    for draft in ("copying", "bigram", pair[1]):
        got = specjax.generate_text(pair[0], draft, PROMPTS, 0, new_tokens=NEW)
        assert got.ids == alone.ids and got.calls == alone.calls


def test_a_target_that_follows_rules_is_drafted_by_its_first_layers():
    options = dict(new_tokens=NEW, rules=penalties.build(1.2))
    alone, got = (
        specjax.generate_text("code_small", draft, PROMPTS, 2, **options)
        for draft in (None, "early_exit:1")
    )
    assert got.ids == alone.ids


# Text.


def test_a_tree_that_is_named_is_drafted(pair):
    """One program serves every source of the same sizes."""
    name = f"tree:draft={pair[1].files[0]},width=2"
    config = DecodeConfig(gamma=6, rule="recursive")
    keys = [
        programs.prepare(pair[0], draft, PROMPTS, config).key
        for draft in (name, specjax.load_draft(name, pair[0]))
    ]
    assert keys[0] == keys[1]
    assert programs.decoder(keys[0]).drafter.siblings == "without"


def test_a_target_without_a_configuration_is_refused_in_one_line(pair):
    bare = pair[0]._replace(config=None)
    with pytest.raises(ValueError, match="m0 has no configuration, being a model of"):
        specjax.generate_text(bare, None, PROMPTS)


@pytest.mark.parametrize("side", [0, 1])
def test_weights_that_were_ruined_end_it_in_one_line(pair, side):
    sides = list(pair)
    readout = pair[side].params["readout"]
    ruined = pair[side].params | {"readout": readout.at[:].set(np.nan)}
    sides[side] = pair[side]._replace(params=ruined)
    told = f"row 0, the step that writes token 0 .*{('target', 'draft')[side]}'s logits"
    with pytest.raises(FloatingPointError, match=told) as caught:
        specjax.generate_text(*sides, PROMPTS, GAMMA, new_tokens=NEW)
    assert "\n" not in str(caught.value)


def test_greedy_texts_are_the_targets_own(pair, greedy):
    alone = specjax.generate_text(pair[0], None, PROMPTS, new_tokens=NEW)
    assert greedy.texts == alone.texts
    assert alone.alpha is None and alone.calls == alone.tokens == greedy.tokens
    assert 0 < greedy.alpha < 1 and greedy.calls < alone.calls
    assert greedy.seconds > 0 and greedy.guarantee == "exact law"


def test_a_draft_by_its_name_writes_the_same_and_compiles_once(pair, greedy):
    asked = {"gamma": GAMMA, "new_tokens": NEW, "policy": "adaptive:start=2"}
    named = specjax.generate_text(pair[0], "copying", PROMPTS, **asked)
    assert named.texts == greedy.texts
    compiled = programs.program.cache_info().misses
    draft = specjax.load_draft("copying", pair[0])
    again = specjax.generate_text(pair[0], draft, PROMPTS, **asked)
    assert (
        again.calls == named.calls and programs.program.cache_info().misses == compiled
    )
    # Rules and filters reach the loop; one id is left to draw.
    asked = {"temperature": 1.0, "rule": "lenient:0.01", "top_k": 1, "new_tokens": NEW}
    loose = specjax.generate_text(*pair, PROMPTS, GAMMA, **asked)
    assert loose.guarantee == "lenient: at most p / l" and loose.alpha > greedy.alpha
    assert specjax.generate_text(*pair, PROMPTS, GAMMA, seed=5, **asked)[0] == loose[0]


def test_it_is_the_functional_decoder(pair, greedy):
    """The prompts are not padded."""
    target, draft = pair
    decoder = Decoder(target.model, autoregressive.build(draft.model, GAMMA))
    prompt = make_prompt([target.tokenizer.encode(text) for text in PROMPTS])
    key, sampling = jax.random.key(7), make_sampling(2, 0.0)
    request = make_request(key, prompt, NEW, sampling, zoo.END)
    params, slots = Params(target.params, draft.params), 64
    out = generate.build(decoder, slots)(params, prompt, request)
    whole = [target.tokenizer.decode(row) for row in np.asarray(out.tokens)]
    assert [a + b for a, b in zip(PROMPTS, greedy.texts, strict=True)] == whole
    assert int(out.counts.calls.sum()) == greedy.calls
    tested = int(out.counts.tested.sum())
    assert greedy.alpha == int(out.counts.accepted.sum()) / tested


def compiled_shapes(monkeypatch, pair, ids, **asked):
    """Returns the key and the shapes with which a text of these ids is decoded."""
    jobs = []
    monkeypatch.setattr(text, "run", jobs.append)
    specjax.generate_text(*pair, [{"tokens": ids}], GAMMA, **asked)
    (job,) = jobs
    return job.key, str(jax.eval_shape(lambda *x: x, job.prompt, job.request))


def test_a_text_depends_on_the_seed_and_its_place_and_compiles_once(pair):
    asked = {"temperature": 1.0, "new_tokens": NEW}
    sampled = specjax.generate_text(*pair, PROMPTS, GAMMA, seed=3, **asked)
    compiled = programs.program.cache_info().misses
    again = specjax.generate_text(*pair, PROMPTS, GAMMA, seed=3, **asked)
    assert programs.program.cache_info().misses == compiled
    assert again[:4] == sampled[:4]
    other = specjax.generate_text(*pair, PROMPTS, GAMMA, seed=4, **asked)
    assert other.texts != sampled.texts
    second = specjax.generate_text(*pair, PROMPTS[1:] * 2, GAMMA, seed=3, **asked)
    assert second.texts[1] == sampled.texts[1] != second.texts[0]


def test_an_encoder_reads_the_prompts_and_texts_stop_at_their_ends(tmp_path):
    target = specjax.load(text_folders.t5_folder(tmp_path / "t5"))
    ids = [{"tokens": target.tokenizer.encode(text)} for text in ("No.", "I see.")]
    whole = specjax.generate_text(target, None, ids, new_tokens=NEW)
    assert len(set(whole.texts)) == 2 and whole.tokens == 2 * NEW
    # The same with an end that the texts reach.
    words = whole.texts[1].split()
    at = next(i for i, word in enumerate(words) if word != words[0])
    (end, _) = target.tokenizer.encode(words[at])
    ended = target._replace(ends=(end,))
    cut = specjax.generate_text(ended, None, ids, new_tokens=NEW)
    assert cut.tokens < whole.tokens
    assert cut.texts[1] == " ".join(words[:at])


def test_each_prompt_has_its_own_settings(pair, greedy):
    """One program serves all, and gives each prompt the text that it would have alone
    in its place."""
    each = {"temperature": [0.0, 1.0], "top_k": (None, 5), "seed": np.array([3, 4])}
    both = specjax.generate_text(*pair, PROMPTS, GAMMA, new_tokens=[NEW, 3], **each)
    assert both.texts[0] == greedy.texts[0] and len(both.ids[1]) == 3
    compiled = programs.program.cache_info().misses
    asked = {"temperature": 1.0, "top_k": 5, "seed": 4, "new_tokens": NEW}
    second = specjax.generate_text(*pair, PROMPTS, GAMMA, **asked)
    assert both.ids[1] == second.ids[1][:3]
    assert programs.program.cache_info().misses == compiled


def test_a_prompt_has_several_samples(pair):
    """The first is the text that is written without samples; no two samples share a
    key."""
    asked = {"temperature": 1.0, "new_tokens": NEW, "seed": 3}
    alone = specjax.generate_text(*pair, PROMPTS, GAMMA, **asked)
    several = specjax.generate_text(*pair, PROMPTS, GAMMA, samples=3, **asked)
    assert [texts[0] for texts in several.texts] == alone.texts
    assert [len({*map(tuple, ids)}) for ids in several.ids] == [3, 3]
    assert several.ended == [["length"] * 3] * 2 and several.logprobs is None
    assert several.tokens == 6 * NEW
    again = specjax.generate_text(*pair, PROMPTS[:1] * 2, GAMMA, samples=3, **asked)
    assert again.texts[0] == several.texts[0]
    # The same, piece by piece.
    asked |= {"gamma": GAMMA, "samples": 3}
    written = [[""] * 3 for _ in PROMPTS]
    for piece in specjax.stream_text(*pair, PROMPTS, **asked):
        written[piece.index][piece.sample] += piece.text
    assert written == several.texts


def test_keys_of_seeds_places_and_samples_are_all_others():
    seeds, places, samples = np.mgrid[:3, :3, :3].reshape(3, -1)
    key = jax.random.key_data(programs.keys(seeds, places, samples))
    assert len({*map(tuple, key.tolist())}) == 27
    root = jax.random.key(2)
    wanted = [jax.random.key_data(jax.random.fold_in(root, i)).tolist() for i in (0, 1)]
    assert jax.random.key_data(programs.keys(2, [0, 1])).tolist() == wanted


BAD = [
    ({"gamma": 2.5}, "gamma must be a whole number, at least 0 and"),
    ({"gamma": True}, "gamma must be a whole number"),
    ({"gamma": "4"}, "gamma must be a whole number, .*; got '4'"),
    ({"new_tokens": 10**9}, "new_tokens must be a whole .* and at most 1000000"),
    ({"gamma": 1001}, "gamma must be .* at most 1000; got 1001"),
    ({"new_tokens": [4, 0]}, "prompt 1: new_tokens must be a whole number, at"),
    ({"new_tokens": [4]}, "new_tokens has 1 values for 2 prompts: give one value, or"),
    ({"temperature": "0.5"}, "temperature must be a number, 0, which is .*; got '0.5'"),
    ({"temperature": None}, "temperature must be a number"),
    ({"temperature": [0.5, None]}, "prompt 1: temperature must be a number"),
    ({"temperature": [1.0] * 3}, "temperature has 3 values for 2 prompts"),
    ({"temperature": 1e-40}, "temperature must be 0, which is argmax, or from"),
    ({"temperature": {}}, "temperature must be a number"),
    ({"temperature": 10**400}, "temperature must be 0, which is argmax, or from"),
    ({"top_k": [5, 2.5]}, "prompt 1: top_k must be a whole number, at least 1"),
    ({"top_p": (0.5, 0.0)}, "prompt 1: top_p must be in"),
    ({"seed": [0, 2**32]}, "prompt 1: seed must be a whole number from 0 to 42949672"),
    ({"seed": -1}, "seed must be a whole number from 0 to 4294967295; got -1"),
    ({"seed": None}, "seed must be a whole number"),
    ({"samples": 0}, "samples must be a whole number, at least 1 and"),
    ({"rule": None}, "rule must be a name, a text; got None"),
    ({"policy": 3}, "policy must be a name"),
    ({"logprobs": 5}, "logprobs must be True or False; got 5"),
    ({"rules": "json"}, "rules must be a specjax.types.TokenAutomaton"),
    ({"mesh": 4}, "write a mesh as data=4"),
    ({"stop": "end"}, "stop must be a list of strings, none empty; got 'end'"),
    ({"stop": ["end", ""]}, "stop must be a list of strings"),
    ({"stop": 3}, "stop must be a list of strings"),
    ({"target": 3}, "target must be a name, or what specjax.load gives"),
    ({"draft": 3}, "draft must be a name, or what specjax.load gives"),
    ({"prompts": "def"}, "prompts must be a list"),
    ({"prompts": [3]}, "prompt 0: prompt must be one text; got 3"),
    ({"prompts": [[]]}, "prompt 0: tokens is empty"),
    ({"prompts": [[1], {"role": "user"}]}, "prompt 1: write"),
    ({"new_tokens": 0}, "new_tokens must be a whole number, at least 1 and"),
    ({"temperature": -1.0}, "temperature must be"),
    ({"top_p": 0.0}, "top_p must be"),
    ({"rule": "tokens"}, "no rule 'tokens': choose one of"),
    ({"policy": "hope"}, "no policy 'hope': choose one of none"),
    ({"draft": "hope"}, "a draft may also be copying"),
    ({"target": "copying"}, "copying only drafts"),
    ({"kernels": "mine"}, "kernels must be one of"),
    ({"seed": 2**70}, "seed must be"),
    ({"prompts": []}, "prompts is empty: give at least one"),
    ({"target": "absent"}, "no checkpoint at 'absent'"),
    ({"draft": "t5_small"}, "name a pair with one tokenizer"),
]


def test_bad_input_is_told_before_any_compute(pair, monkeypatch):
    monkeypatch.setattr(programs, "program", None)
    for change, message in BAD:
        asked = {"target": pair[0], "draft": pair[1], "prompts": PROMPTS} | change
        with pytest.raises(ValueError, match=message) as caught:
            specjax.generate_text(**asked)
        assert "\n" not in str(caught.value)


def test_stop_may_be_none(pair, monkeypatch):
    assert compiled_shapes(monkeypatch, pair, [1], stop=None)


def test_prompts_of_similar_lengths_share_a_program(pair, monkeypatch):
    programs = {compiled_shapes(monkeypatch, pair, [1] * n) for n in (5, 6, 8)}
    assert len(programs) == 1
    assert compiled_shapes(monkeypatch, pair, [1] * 9) not in programs


def test_more_than_the_models_positions_is_told(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    model = specjax.load(text_folders.gpt2(tmp_path / "gpt2"))
    room = 64 - len(model.tokenizer.encode("def add("))
    with pytest.raises(ValueError, match=f"64 positions.*: ask for {room} new tokens"):
        specjax.generate_text(model, model, ["def add("], new_tokens=64)
    # Nor is a prompt padded beyond them.
    for new, width in ((32, 32), (33, 31)):
        key, _ = compiled_shapes(monkeypatch, (model, model), [1] * 31, new_tokens=new)
        assert key.slots == width + new + GAMMA + 1
    monkeypatch.undo()
    several = ["def", "def add(" * 40]
    with pytest.raises(ValueError, match=r"^prompt 1 has .* shorten the prompt$"):
        specjax.generate_text(model, model, several, new_tokens=[50, 1])
