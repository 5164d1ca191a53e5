"""A head's folder that lacks a field or does not fit is refused, and the field is
named."""

import json
import sys
import types

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax import drafts
from specjax.drafters import medusa
from specjax.drafts import eagle3_files, head_files, heads, medusa_files
from tests.support import head_folders
from tests.support.head_folders import PLACES, SAID, D, H, V, change, target

WEIGHTS = "model.safetensors"


def speculators(folder):
    return head_folders.write_eagle3(folder, norm_before_residual=False)


def midlayer(folder):
    return head_folders.write_eagle3(folder, "midlayer")


WRITE = {
    "speculators": speculators,
    "midlayer": midlayer,
    "eagle": head_folders.write_eagle,
    "medusa": head_folders.write_medusa,
    "blockwise": head_folders.write_blockwise,
}
BREAKS = [
    ("speculators", {"norm_before_residual": ...}, "readers disagree on what that"),
    ("speculators", {"speculators_config": {}}, "no proposal_methods"),
    ("speculators", {"transformer_layer_config": "llama"}, "must be an object"),
    ("speculators", {PLACES: [0, 1, 5]}, "taps name place 5"),
    ("speculators", {PLACES: [1, 2]}, "fc.weight"),
    ("speculators", {PLACES: "all"}, "a list of numbers of layers"),
    ("speculators", {PLACES: []}, "layer_ids is an empty list: write the numbers"),
    ("speculators", {"target_hidden_size": 32}, "those of tiny have"),
    ("speculators", {"draft_vocab_size": 8}, "lm_head.weight"),
    ("speculators", {"norm_before_fc": True}, "input_norm.weight"),
    ("speculators", {"norm_before_fc": True, "fc_norm": True}, "not both"),
    ("midlayer", {PLACES: [0, 1, 2]}, "outside of eagle_config"),
    ("midlayer", {"eagle_config": {PLACES: [0, 1, 4]}}, "taps name place 5"),
    ("midlayer", {"eagle_config": {"use_aux_hidden_state": False}}, "taps nothing"),
    ("midlayer", {"eagle_config": {PLACES: []}}, "layer_ids is an empty list: write"),
    ("midlayer", {"eagle_config": 3}, "eagle_config must be an object"),
    ("midlayer", {"fc_norm": True}, "fc_norm.0.weight"),
    ("midlayer", {"draft_vocab_size": V, "model_type": "gpt_oss"}, "model_type must"),
    ("midlayer", {"num_hidden_layers": 2}, "num_hidden_layers is 2; a head has 1"),
    ("midlayer", {"vocab_size": 30}, "trained for 30 ids, and tiny has 29"),
    ("midlayer", {"logit_scale": 0.5}, "logit_scale is 0.5"),
    ("midlayer", {"model_type": "mistral"}, "sees a window of 4096 tokens"),
    ("eagle", {"bias": False}, "surplus:\n  fc.bias"),
    ("eagle", {"qkv_bias": True}, "missing:\n  layers.0.self_attn.k_proj.bias"),
    ("eagle", {"hidden_size": 8}, "width 8, and the states of tiny have 16"),
    ("eagle", {"vocab_size": 30}, "trained for 30 ids, and tiny has 29"),
    ("medusa", {"medusa_num_layers": 1}, "surplus"),
    ("medusa", {"medusa_num_heads": 5}, "missing:\n  3.0.linear.bias"),
    ("medusa", {"medusa_num_heads": "3"}, "medusa_num_heads must be a whole number"),
    ("blockwise", {"num_heads": 2}, "in: .16, 3, 10., not .16, 2, 10."),
    ("blockwise", {"num_heads": ...}, "num_heads must be a whole number"),
    ("blockwise", {"hidden_size": 8}, "heads of 8 features, and tiny has 16"),
]


@pytest.mark.parametrize(("layout", "fields", "words"), BREAKS)
def test_what_config_json_says_is_checked(layout, fields, words, tmp_path):
    folder = WRITE[layout](tmp_path / "head")
    change(folder, **fields)
    with pytest.raises(ValueError, match=words):
        drafts.load_draft(str(folder), target())


NO_IDS = np.zeros(SAID.size, np.int64)


def split_into_shards(folder):
    """Divides a folder's weights into two files and an index."""
    arrays, listed = load_file(folder / WEIGHTS), {}
    (folder / WEIGHTS).unlink()
    for i in (0, 1):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        part = dict([*arrays.items()][i::2])
        save_file(part, folder / file)
        listed |= dict.fromkeys(part, file)
    index = json.dumps({"metadata": {}, "weight_map": listed})
    (folder / f"{WEIGHTS}.index.json").write_text(index)


def test_a_head_in_shards_is_read_from_the_hub(tmp_path, monkeypatch):
    whole = drafts.load_draft(str(speculators(tmp_path / "head")), target())
    split_into_shards(tmp_path / "head")

    def snapshot_download(name, allow_patterns):
        assert head_files.WEIGHTS[head_files.MEDUSA][0] in allow_patterns
        return str(tmp_path / "head")

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    fetched = drafts.load_draft("org/head", target())
    assert fetched.name == "org/head, of states that enter layers 0, 1, 2"
    assert len(fetched.files) == len(whole.files) + 1
    jax.tree.map(np.testing.assert_array_equal, fetched.params, whole.params)
    fetched.files[1].unlink()
    with pytest.raises(ValueError, match="lacks shards that its"):
        drafts.load_draft("org/head", target())


ARRAYS = [
    ("speculators", {"d2t": SAID}, "name other ids; id i of a head is"),
    ("speculators", {"t2d": np.ones(V, bool)}, "d2t and t2d name other ids"),
    ("midlayer", {"d2t": SAID}, "name other ids; id i of a head is"),
    ("midlayer", {"d2t": NO_IDS, "t2d": None}, None),  # the first ids
    ("midlayer", {"d2t": NO_IDS - 1, "t2d": None}, "d2t must give ids that ascend"),
    ("midlayer", {"d2t": None}, "has a reduced vocabulary and no d2t"),
    ("midlayer", {"mask_hidden": np.ones((1, 1, D))}, "of the kind P-EAGLE"),
    ("midlayer", {"extra": NO_IDS}, "surplus:\n  extra"),
    ("eagle", {"layers.0.input_layernorm.weight": np.ones(H)}, "surplus"),
    ("eagle", {"fc.weight": np.ones((H, 3 * H))}, "fc.weight: .16, 48., not .16, 32."),
    ("medusa", {"0.2.weight": np.ones((V + 1, D))}, "0.2.weight: .30, 16., not"),
    ("medusa", {"1.0.linear.bias": None}, "missing:\n  1.0.linear.bias"),
]


@pytest.mark.parametrize(("layout", "arrays", "words"), ARRAYS)
def test_every_array_is_read_or_named(layout, arrays, words, tmp_path):
    folder = WRITE[layout](tmp_path / "head")
    (file,) = folder.glob("*.safetensors")
    stored = {**load_file(file), **arrays}
    save_file({name: x for name, x in stored.items() if x is not None}, file)
    if words is None:
        ids = drafts.load_draft(str(folder), target()).params["ids"]
        np.testing.assert_array_equal(ids, np.arange(SAID.size))
        return
    with pytest.raises(ValueError, match=words):
        drafts.load_draft(str(folder), target())


def test_a_head_of_every_id_moves_none(tmp_path):
    folder = midlayer(tmp_path / "head")
    arrays = load_file(folder / WEIGHTS)
    arrays["lm_head.weight"] = np.ones((V, H), np.float32)
    change(folder, draft_vocab_size=V)
    for offsets in (np.zeros(V, np.int64), np.eye(1, V, dtype=np.int64)[0]):
        save_file(arrays | {"d2t": offsets}, folder / WEIGHTS)
        if offsets.any():
            with pytest.raises(ValueError, match="d2t moves them: write draft_vocab"):
                drafts.load_draft(str(folder), target())
        else:
            source = drafts.load_draft(str(folder), target())
            assert source.regime == "sampled law"


def test_a_written_head_has_what_other_readers_load(tmp_path):
    """The file has the target's embedding, and names the folder from which the target
    was read, because other readers could not find it by the name of the target."""
    whole, folder = target(), tmp_path / "whole"
    folder.mkdir()
    read = whole._replace(files=(folder / WEIGHTS,))
    hub = read._replace(name="org/tiny")
    for told, wanted in ((whole, "tiny"), (read, "tiny"), (hub, "org/tiny")):
        assert head_files.name_or_path(told) == wanted
    (folder / "config.json").write_text("{}")
    assert head_files.name_or_path(hub) == "org/tiny"
    config = medusa.Config(V, D, heads=1, layers=1)
    params = jax.tree.map(
        lambda x: np.zeros(x.shape, np.float32), medusa.abstract_params(config)
    )
    medusa_files.write(tmp_path / "medusa", config, params, target=read)
    fields, _ = head_folders.weights(tmp_path / "medusa")
    assert fields["base_model_name_or_path"] == str(folder)
    found = eagle3_files.read(
        head_files.find_folder(speculators(tmp_path / "given")), whole
    )
    eagle3_files.write(
        tmp_path / "eagle3", found.config, found.params, ids=SAID, target=read, chain=3
    )
    fields, arrays = head_folders.weights(tmp_path / "eagle3")
    table = np.float64(whole.params["embedding"])
    np.testing.assert_array_equal(arrays["embed_tokens.weight"], table)
    verifier = fields["speculators_config"]["verifier"]
    assert verifier["name_or_path"] == str(folder)


UNREAD = [
    ({"speculators_model_type": "peagle"}, "P-EAGLE"),
    ({"speculators_model_type": "dflash"}, "DFlash"),
    ({"speculators_model_type": "dspark"}, "DSpark"),
    ({"speculators_model_type": "xpress"}, "XPress"),
    ({"speculators_model_type": "mtp"}, "native MTP"),
    ({"speculators_model_type": "later"}, "'later' of speculators"),
    ({"architectures": ["PEagleDraftModel"], "draft_vocab_size": 9}, "P-EAGLE"),
    ({"architectures": ["DFlashDraftModel"]}, "DFlash"),
    ({"architectures": ["DFlash2DraftModel"]}, "DFlash 2"),
    ({"architectures": ["Qwen3DSparkModel"]}, "DSpark"),
    ({"architectures": ["Qwen3XPressModel"]}, "XPress"),
    ({"architectures": ["LiLiCorrDraftModel"]}, "LiLiCorr"),
    ({"architectures": ["DominoDraftModel"]}, "Domino"),
    ({"dflash_config": {"projector_type": "domino"}}, "Domino"),
    ({"dflash_config": {"projector_type": "dspark"}}, "DSpark"),
    ({"dflash_config": {"mask_token_id": 3}}, "DFlash"),
    ({"dflash_config": {"causal_head": True}}, "JetSpec"),
    (
        {"architectures": ["DFlashDraftModel"], "dflash_config": {"causal_head": True}},
        "JetSpec",
    ),
    ({"model_type": "muse_glimmer_assistant"}, "DFlash"),
    ({"model_type": "mlp_speculator", "n_predict": 3}, "MLP speculator"),
    ({"model_type": "qwen3_next", "num_mtp_layers": 1}, "native MTP"),
    ({"model_type": "llama", "num_nextn_predict_layers": 1}, "native MTP"),
    ({"model_type": "qwen3", "mtp_num_hidden_layers": 1}, "native MTP"),
    ({"model_type": "gemma4_assistant"}, "native MTP"),
    ({"hydra_num_heads": 4}, "Hydra"),
    ({"model_type": "medusa", "num_heads": 3}, "Medusa as vLLM stored it"),
]


@pytest.mark.parametrize(("fields", "kind"), UNREAD)
def test_a_kind_that_is_not_read_is_refused_by_its_name(fields, kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(fields))
    words = f"holds a head of the kind {kind}, which is not read: name one of Medusa"
    with pytest.raises(ValueError, match=words):
        drafts.load_draft(str(tmp_path), target())
    with pytest.raises(ValueError, match=words):
        drafts.draft_files(str(tmp_path), "float32")


LOOSE = {"proposal_type": "greedy", "speculative_tokens": 3}
RULES = [
    ({"verifier_accept_k": 1, "accept_tolerance": 0.0}, ""),
    ({"verifier_accept_k": 3}, "verifier_accept_k = 3"),
    ({"accept_tolerance": 0.5}, "accept_tolerance = 0.5"),
    ({"proposal_type": "lenient"}, "proposal_type = 'lenient'"),
]


@pytest.mark.parametrize(("proposal", "words"), RULES)
def test_a_rule_that_is_not_exact_is_named_and_not_applied(
    proposal, words, tmp_path, recwarn
):
    folder = speculators(tmp_path / "head")
    strict = drafts.load_draft(str(folder), target())
    stated = head_folders.weights(folder)[0]["speculators_config"]
    stated["proposal_methods"].append(LOOSE | proposal)
    change(folder, speculators_config=stated)
    recwarn.clear()
    source = drafts.load_draft(str(folder), target())
    jax.tree.map(np.testing.assert_array_equal, source.params, strict.params)
    assert source._replace(params=None) == strict._replace(params=None)
    found = [str(each.message) for each in recwarn]
    assert len(found) == bool(words)
    if words:
        assert f"{folder} recommends a rule that is not exact ({words})" in found[0]
        assert "it is not applied" in found[0] and "\n" not in found[0]


def test_the_settings_of_typical_acceptance_are_named(tmp_path):
    folder = WRITE["medusa"](tmp_path / "head")
    change(folder, posterior_threshold=0.09, posterior_alpha=0.3)
    words = r"\(posterior_threshold = 0.09, posterior_alpha = 0.3\), and it is not"
    with pytest.warns(UserWarning, match=words):
        drafts.load_draft(str(folder), target())


def test_models_are_no_heads(tmp_path):
    """Models of one layer are not taken for heads either, nor are models that have no
    layers for further predictions."""
    one = {"model_type": "llama", "num_hidden_layers": 1}
    for fields in (one, one | {"num_nextn_predict_layers": 0}, {"model_type": "gpt2"}):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        assert not heads.is_folder(tmp_path)
    save_file({"model.embed_tokens.weight": np.ones((2, 2))}, tmp_path / WEIGHTS)
    assert not heads.is_folder(tmp_path)
    assert not heads.is_folder(tmp_path / "no folder")


def test_each_layout_is_told_by_what_it_has(tmp_path):
    kinds = {"eagle": "EAGLE", "medusa": "Medusa", "blockwise": "blockwise parallel"}
    for layout, write in WRITE.items():
        folder = write(tmp_path / layout)
        assert head_files.find_kind(folder) == kinds.get(layout, "EAGLE-3")
        (file,) = folder.glob("*.safetensors")
        assert heads.head_paths(folder) == (folder / "config.json", file)
    change(tmp_path / "midlayer", draft_vocab_size=...)  # told by its weights
    assert head_files.find_kind(tmp_path / "midlayer") == "EAGLE-3"


def test_pickles_need_pytorch_and_missing_weights_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for layout, pickled in (
        ("midlayer", "pytorch_model.bin"),
        ("eagle", "pytorch_model.bin"),
        ("medusa", "medusa_lm_head.pt"),
    ):
        folder = WRITE[layout](tmp_path / layout)
        (file,) = folder.glob("*.safetensors")
        file.rename(folder / pickled)
        words = f"{pickled} is a pickle.*install torch, or save its.* {file.name}"
        with pytest.raises(ValueError, match=words):
            drafts.load_draft(str(folder), target())
    (folder / pickled).unlink()
    with pytest.raises(ValueError, match=f"has no {file.name} and no {pickled}"):
        drafts.load_draft(str(folder), target())
