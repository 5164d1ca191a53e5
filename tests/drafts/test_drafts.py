"""Drafts, rules and policies are found by name, and the guide to writing your own
works."""

from pathlib import Path

import jax.numpy as jnp
import pytest

from specjax import drafts, policies, pretrained, verifiers
from specjax.drafts import counts
from specjax.drafts.source import CERTAIN, SAMPLED, TABLE
from specjax.exactness import certify
from tests.support.tiny_pair import pair

PARTS = Path(__file__).resolve().parents[2] / "docs/my_parts.py"


@pytest.fixture
def my_parts(tmp_path, monkeypatch):
    """The guide's module, with a few that are wrong."""
    source = PARTS.read_text()
    wrong = """

def fails(gamma):
    return Drafter(no_cache, lambda *every: 1 / 0, gamma)


def no_drafter(gamma):
    return gamma


def widens(start: int = 1) -> Policy:
    init = lambda batch, gamma: (jnp.ones(batch, jnp.int32), None)
    return Policy(init, lambda budget, carry, info: (budget * 1.5, carry))


def weighed(gamma, vocab, draw):
    from specjax.drafters import random

    return random.build(vocab, gamma, draw), jnp.zeros(vocab)
"""
    (tmp_path / "my_parts.py").write_text(source + wrong)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_parts", raising=False)


def test_drafts_of_one_name_are_built_alike():
    """The sources are equal, so that one program serves both."""
    target = pair()[0]
    same = [
        drafts.load_draft(name, target) for name in ("copying:longest=3", "copying")
    ]
    assert same[0].factory == same[1].factory
    assert drafts.load_draft("copying:4", target).factory != same[0].factory
    assert drafts.pair(target, "random")[1].vocab == target.vocab


def test_what_copies_first_drafts_by_a_model_else():
    target = pair()[0]
    with pytest.raises(ValueError, match="random is not a model: name one that drafts"):
        drafts.load_draft("copying_else:random", target)
    target = pretrained.load("code_small")
    both = drafts.load_draft("copying_else:code_small,least=2", target)
    assert both.name == "copying, else code_small" and both.regime == SAMPLED
    assert both.drafter(3).gamma == 3 and both.law is None
    short = drafts.load_draft("copying_else:code_small,least=2,short=2", target)
    assert short.drafter(5).widths == (2,) and not short.drafter(2).widths
    name = "tree:code_small,accept=0.6/0.8"
    tree = drafts.load_draft(name, target)
    assert tree.drafter(3).siblings == "without" and tree.drafter(3).depth == 2
    assert tree.factory == drafts.load_draft(name, target).factory
    best = drafts.load_draft("tree:code_small,best=3,longest=4", target)
    assert best.regime == CERTAIN and best.drafter(5).depth == 4
    grown = drafts.load_draft("tree:code_small,grown=0.5/0.2", target)
    assert grown.regime == SAMPLED and grown.drafter(5).siblings == "without"
    forked = drafts.load_draft("tree:code_small,copied=2", target)
    assert forked.drafter(5).siblings == "own" and forked.drafter(5).depth == 3
    assert drafts.load_draft("tree:bigram,best=3", target).drafter(5).gamma == 5
    for name, message in (
        ("tree:random", "random is not a model: a tree is drafted by one"),
        ("tree:code_small,accept=a/b", "write probabilities with / between"),
        ("tree:code_small,accept=2", "probabilities from 0 to 1"),
        ("tree:code_small,grown=2", "a probability from 0 to 1"),
        ("tree:code_small,width=0", "width must be at least 1"),
        ("tree:code_small,best=1,floors=1.5", "floors are probabilities from 0 to 1"),
        ("tree:code_small,grown=0.5,longest=-1", "longest=-1: write a number that is"),
        ("copying_else:code_small,short=-3", "short=-3: write a number that is not"),
    ):
        with pytest.raises(ValueError, match=message):
            drafts.load_draft(name, target)
    with pytest.raises(ValueError, match="least must be at least 1"):
        drafts.load_draft("copying_else:code_small,least=0", target)


def test_drafts_without_a_model_are_named(tmp_path):
    target = pretrained.load("code_small")
    lines = tmp_path / "own.jsonl"
    said = "def\u2028main():\x85"  # a mark of byte order, and signs that end no line
    lines.write_text(
        f'\ufeff{{"text": "{said}"}}\n\n{{"tokens": [5, 6, 7]}}\n', "utf-8"
    )
    text = tmp_path / "own.txt"
    text.write_text(f"\ufeff{said}", "utf-8")
    names = "suffix", "anchored", f"datastore:{lines}", f"datastore:{text}"
    for name in (*names, "copying:longest=4,least=2", "recycling"):
        source = drafts.load_draft(name, target)
        assert source.regime == CERTAIN and source.drafter(3).siblings is None
        assert source.factory == drafts.load_draft(name, target).factory
    stores = [
        drafts.load_draft(name, target).params.tokens.tolist() for name in names[2:]
    ]
    assert stores[0] == [*stores[1], 5, 6, 7, -1]
    assert (
        drafts.load_draft("recycling:0.5/0.3", target).drafter(4).siblings == "certain"
    )
    words = drafts.load_draft("anchored", target).params
    coder = target.tokenizer
    ids = coder.encode("a cat sat")
    assert words[jnp.array(ids)].tolist() == [coder.piece(i)[0] == " " for i in ids]
    lines.write_text('{"prompt": "a"}')
    for name, message in (
        ("suffix:longest=0", "must be at least 1"),
        ("copying:longest=2,least=3", "least must be from 1 to longest, 2; got 3"),
        ("recycling:a", "write probabilities with / between"),
        ("datastore:nothing.txt", "no file nothing.txt: name one of texts"),
        ("strings:code_target", "have one tokenizer, tokenizer.model: name the draft"),
        ("strings:t5_small", "are not two decoders"),
        (f"datastore:{lines}", "own.jsonl, line 1: .* is not a text: write"),
    ):
        with pytest.raises(ValueError, match=message):
            drafts.load_draft(name, target)
    with pytest.raises(ValueError, match="target has no tokenizer beside its weights"):
        drafts.load_draft("strings:code_small", pair()[0])
    for ids in ("[999999]", "[5, -7]", "[3.9]", '["12"]', "[true]"):
        lines.write_text(f'{{"tokens": {ids}}}')
        with pytest.raises(ValueError, match=r'or \{"tokens": \[ids below 8192\]'):
            drafts.load_draft(f"datastore:{lines}", target)
    lines.write_text("")
    with pytest.raises(ValueError, match="holds no text"):
        drafts.load_draft(f"datastore:{lines}", target)


def test_the_guides_own_parts_are_named_and_traced(my_parts):
    target = pair()[0]
    own = drafts.load_draft("my_parts:repeat:longest=4", target)
    assert own.regime == CERTAIN and own.drafter(3).gamma == 3
    assert own.factory == drafts.load_draft("my_parts:repeat:longest=4", target).factory
    weighed = drafts.load_draft("my_parts:weighed", target)
    assert weighed.regime == TABLE and weighed.params.shape == (target.vocab,)
    assert policies.find("my_parts:double:start=2").init(1, 3)[0] == 2
    rule = verifiers.find("my_parts:short:most=1")
    fixture = next(t for t in certify.trials("my_parts:double") if t.gamma == 2).fixture
    assert certify.certify(rule, fixture, 2, 1).exact


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_parts:repeat:most=4", "'most=4' is not an option: write my_parts:rep"),
        ("my_parts:fails", "my_parts:fails fails: ZeroDivisionError: division by zero"),
        ("my_parts:no_drafter", "returns a int: return a specjax.types.Drafter"),
        ("my_parts:absent", "my_parts has no absent"),
    ],
)
def test_ones_own_drafter_that_is_wrong_is_told(name, message, my_parts):
    with pytest.raises(ValueError, match=message) as caught:
        drafts.load_draft(name, pair()[0])
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="with the same shapes and dtypes"):
        policies.find("my_parts:widens")


def test_counts_are_of_the_targets_family(monkeypatch):
    asked = []
    monkeypatch.setattr(counts, "ngram", lambda *given_to: asked.append(given_to))
    target = pair()[0]
    for vocab in counts.COUNTS:
        drafts.load_draft(
            "unigram", target._replace(model=target.model._replace(vocab=vocab))
        )
    assert asked == [(1, "bigram"), (1, "t5_bigram")]
    with pytest.raises(ValueError, match=r"no counts of the .* ids of target"):
        drafts.load_draft("bigram", target)


def test_a_hierarchy_is_named_and_what_is_none_is_refused():
    """Names decide before weights are read, and the drafts that they name decide
    afterwards."""
    target = pretrained.load("code_small")
    name = "hierarchy:code_small,copying:longest=5,gammas=3"
    source = drafts.load_draft(name, target)
    assert source.regime == SAMPLED and source.drafter(5).gamma == 5
    assert source.factory == drafts.load_draft(name, target).factory
    assert source.name == "code_small, accelerated by copying (gamma 3)"
    most = drafts.load_draft("hierarchy:code_small,bigram,gammas=2/3", target)
    assert most.drafter(5).gamma == 2 and most.law is not None
    assert most.drafter(0).gamma == 0
    three = drafts.load_draft("hierarchy:bigram,code_small,random,gammas=3/2", target)
    assert [path.stem for path in three.files] == ["bigram", "code_small"]
    for name, message in (
        ("hierarchy:code_small,gammas=4", "code_small is not a hierarchy: name a"),
        ("hierarchy:code_small,bigram", "lacks gammas: write hierarchy:DRAFT,DRAFT,"),
        (
            "hierarchy:code_small,bigram,gammas=a",
            "gammas=a of 2 drafts: write",
        ),
        ("hierarchy:code_small,bigram,gammas=0", "gammas=0 of 2 drafts"),
        ("hierarchy:code_small,bigram,gammas=1/2/3", "gammas=1/2/3 of 2 drafts"),
        ("hierarchy:code_small,tree:bigram,gammas=4", "tree drafts trees, and the lev"),
        ("hierarchy:code_small,early_exit:1,gammas=4", "early_exit reads the cache of"),
        ("hierarchy:code_small,a:b,gammas=4", "a:b may keep what a level above it rej"),
        ("hierarchy:copying,bigram,gammas=4", "copying is not a model: only the last"),
        ("hierarchy:code_small,draft=bigram,gammas=4", "'draft=bigram' is not an opti"),
    ):
        for read in (drafts.draft_files, drafts.load_draft):
            with pytest.raises(ValueError, match=message):
                read(name, "float32" if read is drafts.draft_files else target)
