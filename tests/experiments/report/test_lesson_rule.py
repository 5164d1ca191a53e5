"""The lesson's rule in JavaScript against the library's, by the same uniforms."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.report import html
from specjax import probs
from specjax.theory import closed_forms
from specjax.types import Draft, Sampling
from specjax.verifiers import block, token

RULE = (html.TEMPLATES / "lesson" / "rule.js").read_text("utf-8")
CASES, GAMMA, VOCAB = 10_000, 3, 6
ASKED = """
function asked(it) {
  const law = (z) => standardize(z, it.temperature, it.top_k, it.top_p);
  const p = it.p.map(law), q = it.q.map(law);
  const drafted = q.map((row, i) => pick(row, it.first[i]));
  const given = [p, q, drafted, it.u, it.sample];
  const found = { p: p[0], beta: q.length ? acceptance(p[0], q[0]) : 1, drafted };
  return { ...found, token: verifyByToken(...given), block: verifyByBlock(...given) };
}
"""


def javascript(program: str, folder: Path) -> object:
    """What a program leaves in `answer`, by node or else in a browser."""
    browsers = "chromium", "chromium-browser", "google-chrome"
    runs = next(filter(shutil.which, ("node", *browsers)), None)
    if runs is None:
        pytest.skip("no node and no browser on PATH: install nodejs or chromium")
    if runs == "node":
        file = folder / "asked.cjs"
        file.write_text(f"{program}\nconsole.log(JSON.stringify(answer));")
        command = [runs, str(file)]
    else:
        file = folder / "asked.html"
        shown = "document.body.textContent = '[[' + JSON.stringify(answer) + ']]';"
        file.write_text(f"<body hidden><script>{program}\n{shown}</script>")
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom"
        command = [runs, *flags.split(), f"--user-data-dir={folder}/own", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    return json.loads(re.search(r"\[\[(.*)\]\]", said)[1] if runs != "node" else said)


def test_the_step_in_the_browser_is_the_librarys(tmp_path):
    """Laws, drafts, what is kept, what is added and from what: greedy rows, cut laws,
    ties and short drafts among them."""
    rng = np.random.default_rng(0)
    z_p = rng.normal(0, 2, (CASES, GAMMA + 1, VOCAB)).round(1)
    z_q = (z_p[:, :GAMMA] + rng.normal(0, 1, (CASES, GAMMA, VOCAB))).round(1)
    settings = {
        "temperature": rng.choice([0.0, 0.7, 1.0, 1.5], CASES),
        "top_k": rng.choice([1, 3, VOCAB], CASES, p=[0.1, 0.3, 0.6]),
        "top_p": rng.choice([0.55, 0.9, 1.0], CASES, p=[0.2, 0.2, 0.6]),
    }
    first, u = rng.random((2, CASES, GAMMA))
    sample, num = rng.random(CASES), rng.integers(0, GAMMA + 1, CASES)

    with jax.enable_x64(True):
        sampling = Sampling(**{key: jnp.array(x) for key, x in settings.items()})
        p, q = (probs.standardize(jnp.array(z), sampling) for z in (z_p, z_q))
        each = np.stack([first, first], axis=-1).reshape(-1, 2)
        drafted = probs.pick(probs.dense(q).reshape(-1, VOCAB), jnp.array(each))
        draft = Draft(drafted.reshape(CASES, GAMMA), jnp.array(num), q)
        noise = token.Noise(jnp.array(u), jnp.array(np.stack([sample, sample], -1)))
        verdicts = {
            name: jax.device_get(
                jax.jit(rule.verify, static_argnums=3)(p, draft, noise, True)
            )
            for name, rule in (("token", token), ("block", block))
        }
        rows_p, rows_q = np.array(probs.dense(p)), np.array(probs.dense(q))

    cases = [
        {
            **{key: x[i].item() for key, x in settings.items()},
            "p": z_p[i, : num[i] + 1].tolist(),
            "q": z_q[i, : num[i]].tolist(),
            "first": first[i].tolist(),
            "u": u[i].tolist(),
            "sample": sample[i],
        }
        for i in range(CASES)
    ]
    program = f"{RULE}{ASKED}const answer = {json.dumps(cases)}.map(asked);"
    answers = javascript(program, tmp_path)
    for i, own in enumerate(answers):
        np.testing.assert_allclose(own["p"], rows_p[i, 0], rtol=1e-9, atol=1e-12)
        assert own["drafted"] == np.array(draft.tokens)[i, : num[i]].tolist(), i
        if num[i]:
            beta = closed_forms.acceptance(rows_p[i, 0], rows_q[i, 0])
            assert own["beta"] == pytest.approx(beta, abs=1e-12)
        for name, verdict in verdicts.items():
            n = verdict.num_accepted[i]
            found = own[name]["n"], own[name]["added"]
            assert found == (n, verdict.tokens[i, n]), (i, name)
            weights = own[name]["weights"]
            np.testing.assert_allclose(weights, verdict.residual[i], atol=1e-12)


def test_its_closed_forms_are_the_librarys(tmp_path):
    alphas, gammas = np.linspace(0, 1, 41), range(12)
    grid = "const answer = " + json.dumps(alphas.tolist()) + ".map((a) => "
    grid += (
        "[...Array(12).keys()].map((g) => [expectedTokens(a, g), speed(a, g, 0.07)]));"
    )
    own = np.array(javascript(RULE + grid, tmp_path))
    a, g = alphas[:, None], np.array(gammas)[None]
    np.testing.assert_allclose(own[..., 0], closed_forms.expected_tokens(a, g), 1e-12)
    np.testing.assert_allclose(
        own[..., 1], closed_forms.walltime_factor(a, g, 0.07), 1e-12
    )
