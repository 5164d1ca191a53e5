"""Pairs of models whose vocabularies are padded apart."""

import json
import shutil

import jax
import numpy as np
import pytest

import specjax
from specjax import checkpoints, pretrained
from specjax.bench import players
from specjax.models.llama import Config
from tests.support import text_folders, tiny_llama
from tests.support.text_folders import bpe

pytest.importorskip("tokenizers")

SMALL = Config(304, 16, 20, 1, 2, 1, 8, style="qwen2", biased=True, tied=True)
LARGE = SMALL._replace(vocab=320, num_layers=2, tied=False)
PROMPTS = ["def add(", "class"]


def folder_of(folder, config, change=None):
    checkpoints.save(folder, (config, tiny_llama.weights(config, 3)))
    tokenizer = bpe()
    if change is not None:
        change(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return specjax.load(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return folder_of(folder / "large", LARGE), folder_of(folder / "small", SMALL)


def test_the_larger_loses_the_rows_that_no_text_has(pair):
    target, draft = pretrained.paired(*pair)
    assert draft is pair[1] and target.model.vocab == target.config.vocab == 304
    old, new = pair[0].params, target.params
    np.testing.assert_array_equal(new["embedding"], old["embedding"][:304])
    np.testing.assert_array_equal(new["readout"], old["readout"][:, :304])
    assert old["embedding"].shape[0] == 320, "the model itself was changed"
    assert new["layers_0"] is old["layers_0"]
    again = pretrained.paired(draft, target)
    assert again[0] is draft and again[1] is target
    other = pretrained.paired(pair[1], pair[0])
    assert [side.model.vocab for side in other] == [304, 304]


def test_text_of_such_a_pair_is_that_of_the_target_alone(pair):
    target = pretrained.paired(*pair)[0]
    alone = specjax.generate_text(target, None, PROMPTS, new_tokens=12)
    both = specjax.generate_text(*pair, PROMPTS, new_tokens=12)
    assert both.texts == alone.texts and len(set(both.texts)) == 2


def test_what_the_laws_lose_is_the_mass_of_ids_without_a_text(pair):
    cut = pretrained.paired(*pair)[0]
    tokens = jax.numpy.array([[1, 5, 9]])

    def law(side):
        start = jax.numpy.zeros(1, int)
        features, _ = side.model.apply(side.params, tokens, start, None)
        return jax.nn.softmax(side.model.readout(side.params, features))

    whole = law(pair[0])[..., :304]
    np.testing.assert_allclose(
        law(cut), whole / whole.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7
    )


def test_players_are_paired_alike(pair):
    sides = [players.of_pretrained(side) for side in pair]
    target, draft = players.paired(*sides)
    assert (target.vocab, draft.vocab) == (304, 304) and draft is sides[1]
    assert target.files == sides[0].files
    bare = sides[1]._replace(pretrained=None)
    assert players.paired(sides[0], bare) == (sides[0], bare)


def more_tokens(tokenizer):
    tokenizer.add_tokens([f"word{i}" for i in range(10)])


def other_token(tokenizer):
    tokenizer.add_tokens(["word"])


def test_other_tokenizers_and_none_are_left_as_they_are(pair, tmp_path):
    """A token more, in an id that would be cut or not, or no tokenizer."""
    for name, change in ("more", more_tokens), ("other", other_token):
        draft = folder_of(tmp_path / name, SMALL, change)
        assert pretrained.paired(pair[0], draft) == (pair[0], draft)
        with pytest.raises(ValueError, match=r"padding sets them apart: name a pair"):
            specjax.generate_text(pair[0], draft, PROMPTS)
    known = bpe().get_vocab_size() + 10
    for vocab, wanted in (known, [known, known]), (known - 1, [320, known - 1]):
        both = (
            folder_of(tmp_path / f"{vocab}, {i}", config, more_tokens)
            for i, config in enumerate((LARGE, SMALL._replace(vocab=vocab)))
        )
        assert [side.model.vocab for side in pretrained.paired(*both)] == wanted
    bare = pair[1]._replace(tokenizer_file=None)
    assert pretrained.paired(pair[0], bare) == (pair[0], bare)


def reserved(tokenizer):
    tokenizer.add_special_tokens(["<reserved>"])


def renamed(tokenizer):
    tokenizer.add_special_tokens(["<think>"])


def of_other_texts(folder):
    """A tokenizer of the same size whose ids are other tokens."""
    whole = json.loads((folder / "tokenizer.json").read_text())
    vocab = whole["model"]["vocab"]
    ids = dict(zip(vocab, [*list(vocab.values())[1:], 0], strict=True))
    whole["model"]["vocab"], whole["added_tokens"] = ids, []
    (folder / "tokenizer.json").write_text(json.dumps(whole))


def test_vocabularies_of_one_size_and_other_tokens_are_refused(pair, tmp_path):
    target = folder_of(tmp_path / "target", LARGE, reserved)
    alike = folder_of(tmp_path / "alike", LARGE, renamed)  # one token of 297
    assert pretrained.paired(target, alike) == (target, alike)
    other = folder_of(tmp_path / "other", LARGE)
    of_other_texts(tmp_path / "other")
    words = r"^large and other have other tokenizers, of one size: id 0 is .* put token"
    for paired, sides in (
        (pretrained.paired, (pair[0], other)),
        (players.paired, map(players.of_pretrained, (pair[0], other))),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            paired(*sides)
    assert len(str(caught.value)) < 400
    bare = other._replace(tokenizer_file=None)
    assert pretrained.paired(pair[0], bare) == (pair[0], bare)


def test_a_folder_with_a_start_of_its_own_and_several_ends_converses(tmp_path):
    """As Llama 3's: the tokenizer adds a start, the template writes it itself."""
    pytest.importorskip("jinja2")
    from tokenizers import processors

    def begins(tokenizer):
        tokenizer.add_special_tokens(["<s>", "<end>"])
        first = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", first)]
        )

    model = folder_of(tmp_path / "a", SMALL, begins)
    told = {"bos_token": "<s>", "eos_token": "<end>"}
    told["chat_template"] = "{{ bos_token }}" + text_folders.TEMPLATE + "<end>"
    (tmp_path / "a" / "tokenizer_config.json").write_text(json.dumps(told))
    start, end = (model.tokenizer.vocab - i for i in (2, 1))
    generation = {"bos_token_id": start, "eos_token_id": [end, 0]}
    (tmp_path / "a" / "generation_config.json").write_text(json.dumps(generation))
    model = specjax.load(tmp_path / "a")
    assert (model.start, model.ends) == (start, (end, 0))
    ids = model.tokenizer.converse([{"role": "user", "content": "add"}])
    assert ids[0] == start and ids.count(start) == 1 and ids[-1] == end
    ids = model.tokenizer.encode("def add(")
    assert ids[0] == start and ids.count(start) == 1
    assert model.tokenizer.decode([*ids, end, 0]) == "def add("


def test_control_tokens_of_a_sentencepiece_model_are_read_in_conversations(tmp_path):
    """As Llama 2's with tokenizer.model alone; a prompt's own text spells them."""
    pytest.importorskip("jinja2")
    shutil.copy(specjax.zoo.FOLDER / "t5.model", tmp_path / "tokenizer.model")
    library = specjax.tokenizers.read(tmp_path, 0, (1,))
    end = library.token(1)
    template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    told = {"eos_token": end, "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    messages = [{"role": "user", "content": text} for text in ("I see.", "No.")]
    first, second = (library.encode(m["content"])[1:] for m in messages)
    assert library.converse(messages) == [*first, 1, *second, 1]
    assert 1 not in library.encode(f"I {end} see.")
