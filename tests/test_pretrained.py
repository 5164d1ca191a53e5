"""Pairs whose vocabularies differ by padding or by added tokens."""

import json
from functools import partial

import numpy as np
import pytest

import specjax
from specjax import checkpoints, drafts, pretrained
from specjax.exactness import certify, fixtures
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_prompt
from specjax.models import pad_vocab, reduced_vocab
from specjax.models.llama import Config
from specjax.types import Model
from specjax.verifiers import token
from tests.support import tiny_llama
from tests.support.text_folders import bpe

pytest.importorskip("tokenizers")

SMALL = Config(304, 16, 20, 1, 2, 1, 8, style="qwen2", biased=True, tied=True)
LARGE = SMALL._replace(vocab=320, num_layers=2, tied=False)
PROMPTS = ["def add(", "class"]


def load_changed_folder(folder, config, change=None):
    checkpoints.save(folder, (config, tiny_llama.weights(config, 3)))
    tokenizer = bpe()
    if change is not None:
        change(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return specjax.load(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return load_changed_folder(folder / "large", LARGE), load_changed_folder(
        folder / "small", SMALL
    )


def test_the_draft_has_the_vocabulary_of_its_target(pair):
    target, draft = pretrained.match_vocab(*pair)
    assert target is pair[0] and draft.params is pair[1].params
    assert (draft.model.vocab, draft.config.vocab) == (320, 304)
    target, draft = pretrained.match_vocab(pair[1], pair[0])
    assert target is pair[1] and draft.model.vocab == 304
    assert pretrained.match_vocab(target, target) == (target, target)
    target, draft = drafts.pair(*pair)
    assert (target.vocab, draft.vocab) == (320, 320) and target is pair[0]
    bare = draft._replace(pretrained=None)
    assert drafts.pair(target, bare) == (target, bare)


def test_text_is_the_targets_own_where_it_has_tokens_that_its_draft_lacks(tmp_path):
    """The target reads and writes such tokens. With `gumbel` the text is the same as
    without a draft, at any temperature."""
    known = bpe().get_vocab_size()
    config = LARGE._replace(vocab=known + 10)
    words = [f"word{i}" for i in range(10)]
    target = load_changed_folder(
        tmp_path / "target", config, lambda x: x.add_tokens(words)
    )
    draft = load_changed_folder(tmp_path / "draft", SMALL._replace(vocab=known))
    asked = ["def word3 add(", "class"]
    settings = dict(temperature=1.5, rule="gumbel", new_tokens=40)
    alone = specjax.generate_text(target, None, asked, **settings)
    both = specjax.generate_text(target, draft, asked, **settings)
    assert both.texts == alone.texts and len(set(both.texts)) == 2
    assert "word" in "".join(both.texts)


@pytest.mark.parametrize("known", [3, 5])
def test_the_law_is_exact_where_a_draft_knows_other_ids(known):
    logits = fixtures.table(known, 1)
    model = Model(None, None, lambda params, features: features, known)
    readout = partial(pad_vocab.pad_vocab(model, 4).readout, None)
    read = fixtures.table(4, 0), lambda prefix: np.asarray(readout(logits(prefix)))
    unknown = read[1](()) == reduced_vocab.UNSAID
    assert unknown.tolist() == [i >= known for i in range(4)]
    trial = fixtures.Fixture("apart", 4, *read)
    certificate = certify.certify(token.verifier, trial, 2, 3, CLAIMS["token"])
    assert certificate.exact and certificate.error < 2e-7 and certificate.broken == ()


def test_ids_that_a_draft_does_not_know_are_read_as_its_last():
    def init(params, prompt, slots):
        return prompt

    def apply(params, tokens, start, cache, branches):
        return tokens, branches

    model = pad_vocab.pad_vocab(Model(init, apply, None, 7), 9)
    prompt = make_prompt([[3, 8]], [[6, 7, 1]])
    read = model.init(None, prompt, 4)
    assert read.tokens.tolist() == [[3, 6]]
    assert read.inputs[0].tolist() == [[6, 6, 1]]
    tokens, branches = model.apply(None, prompt.tokens, 0, None, "tree")
    assert tokens.tolist() == [[3, 6]] and branches == "tree"


def test_without_tokenizers_such_a_pair_is_refused(pair):
    bare = pair[1]._replace(tokenizer_file=None)
    assert pretrained.match_vocab(pair[0], bare) == (pair[0], bare)
    with pytest.raises(ValueError, match="no tokenizers that say which ids are common"):
        specjax.generate_text(pair[0], bare, PROMPTS)


@pytest.mark.slow
def test_other_tokenizers_are_paired_by_the_tokens_of_both(pair, tmp_path):
    target, alike = (  # but for one token of 297
        load_changed_folder(
            tmp_path / name, LARGE, lambda x, n=name: x.add_special_tokens([n])
        )
        for name in ("<reserved>", "<think>")
    )
    assert pretrained.match_vocab(target, alike) == (target, alike)
    other = load_changed_folder(tmp_path / "other", LARGE)
    # As many ids, which are other tokens.
    whole = json.loads((tmp_path / "other" / "tokenizer.json").read_text())
    vocab = whole["model"]["vocab"]
    ids = dict(zip(vocab, [*list(vocab.values())[1:], 0], strict=True))
    whole["model"]["vocab"], whole["added_tokens"] = ids, []
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(whole))
    words = r"^large and other have other tokenizers: id 0 is .* put token"
    with pytest.raises(ValueError, match=words) as caught:
        pretrained.match_vocab(pair[0], other)
    assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match=r"^small and other have other tokenizers"):
        pretrained.match_vocab(pair[1], other)  # of another size
    # Each id is the one before: but for special ones, a token of both.
    draft = drafts.pair(pair[0], other)[1]
    assert draft.name == f"other, of {len(ids) - 1} of 320 ids (TLI)"
    branching = f"tree:draft={tmp_path / 'other'}"
    freely = f"strings:{tmp_path / 'other'}"
    asked = (other, 1.5, "gumbel"), (freely, 0.0, "token")
    for name, heat, rule in (*asked, (branching, 0.0, "recursive")):
        settings = dict(temperature=heat, rule=rule, new_tokens=12)
        both = specjax.generate_text(pair[0], name, PROMPTS, **settings)
        settings["rule"] = "gumbel"
        alone = specjax.generate_text(pair[0], None, PROMPTS, **settings)
        assert both.texts == alone.texts
