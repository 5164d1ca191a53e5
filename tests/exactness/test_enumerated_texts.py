"""Texts that are drafted without probabilities have the target's law, by
enumeration."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest

from specjax import probs
from specjax.exactness import certify, draft_certificate, enumerated_texts
from specjax.exactness.claims import CLAIMS
from specjax.step import Decoder
from specjax.verifiers import guarantees, recursive, token
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME, build_strings

WORLD = tiny.tables(3)
ROOT = Path(__file__).parents[2]
PROMPT, GAMMA, N = [0, 1, 2, 0, 1], 2, 4
NAMES = "copying", "suffix", "anchored", "datastore", "recycling", "recycling_tree"
NAMES += "lookahead", "suffix_tree", "strings"


def error(name: str, change=lambda drafter: drafter, verify=None) -> float:
    world, case = WORLD, BY_NAME[name]
    drafter = change(case.drafter(world, GAMMA))
    rule = recursive.verifier if drafter.siblings else token.verifier
    rule = rule if verify is None else rule._replace(verify=verify)
    params, target = case.params(world), world.target
    law = enumerated_texts.text_law(Decoder(target, drafter, rule), params, PROMPT, N)
    return enumerated_texts.error(
        law, enumerated_texts.target_law(target, params.target, PROMPT, N)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_text_follows_the_targets_law(name):
    assert error(name) < 1e-6


def residual_keeps_the_token(law, draft, noise, keep_residual):
    """A broken counterpart: a rejected token may still be drawn."""
    verdict = token.verify(law, draft, noise, keep_residual)
    p = probs.dense(law)[jnp.arange(verdict.num_accepted.size), verdict.num_accepted]
    return verdict._replace(residual=p)


@pytest.mark.parametrize("name", ["anchored", "recycling"])
def test_a_wrong_residual_is_seen(name):
    assert error(name, verify=residual_keeps_the_token) > 1e-2


def test_texts_that_are_cut_wrong_follow_the_targets_law_too():
    """Any function of the text so far may propose tokens."""

    def retokenize(behind, said):
        return (said + behind[:, -1:] + 1) % 3, said[:, 0]

    wrong = build_strings(WORLD, GAMMA, retokenize)
    assert error("strings", lambda drafter: wrong) < 1e-6


@pytest.mark.parametrize("name", ["recycling", "strings"])
def test_a_certain_token_that_claims_a_law_is_seen(name):
    def replace_draft(drafter):
        def draft(key, params, request, state):
            made, cache = drafter.draft(key, params, request, state)
            even = jnp.zeros((*made.tokens.shape, 3))
            return made._replace(law=probs.standardize(even, request.sampling)), cache

        return drafter._replace(draft=draft)

    assert error(name, replace_draft) > 1e-2


def test_a_draft_of_ones_own_is_certified_by_name(capsys, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path))
    rules = {"token": CLAIMS["token"]}  # of those that are put to it by themselves
    monkeypatch.setattr(draft_certificate, "CLAIMS", rules)
    with pytest.raises(SystemExit) as ended:
        certify.main(["--draft", "my_parts:repeat"])
    assert ended.value.code == 0
    whole = (
        r"100,000 texts of 4 tokens by its own draws, p = .* found from 0\.01\d on, .*"
    )
    assert re.fullmatch(
        r"my_parts:repeat: enumerated, max \|law - target\| of a text \de-0[89]\n"
        rf"my_parts:repeat with token: {whole}\n"
        r"my_parts:repeat: no key is used for two draws\nexact \(\d+ s\)\n",
        capsys.readouterr().out,
    )
    assert guarantees.combine("token", "my_parts:repeat") == "exact law"


SHARED = """
from specjax.drafters import random
from specjax.drafters.rollout import draw_independent


def shared(gamma, vocab):
    def begin(key, request, state, gamma):
        draw = draw_independent(key, request, state, gamma)
        return lambda logits, slot: draw(logits, 0)

    return random.build(vocab, gamma, begin)
"""


def test_a_draft_that_draws_twice_by_one_noise_is_not_certified(
    capsys, monkeypatch, tmp_path
):
    """Each token alone follows its law; only whole texts show the error."""
    (tmp_path / "shares.py").write_text(SHARED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(draft_certificate, "CALLS", 1)
    with pytest.raises(SystemExit) as ended:
        certify.main(["--draft", "shares:shared", "--rule", "token"])
    assert ended.value.code == 1
    assert ", p = 0; total variation 0.5" in (out := capsys.readouterr().out)
    assert "\nWRONG (" in out
    assert (
        guarantees.combine("token", "shares:shared") == "not certified: shares:shared"
    )
    with pytest.raises(SystemExit):
        certify.main(["--draft", "tree:q,width=2", "--rule", "kseq"])
    assert "cannot be verified by kseq: leave --rule out" in capsys.readouterr().err
