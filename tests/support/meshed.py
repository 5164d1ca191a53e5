"""Small pairs decoded on one device and on meshes of eight that a CPU acts as.

Run as a module it prints, as JSON, what `tests.test_mesh` asks for.
"""

import functools
import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import specjax
from experiments.training import language, loop, pipeline
from experiments.training.pipeline import Stage
from specjax import generate, mesh, sides
from specjax.checkpoints import Pretrained, build
from specjax.exactness import certify
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.measure import costs
from specjax.models import gpt
from specjax.sides import Side
from specjax.step import build_step
from specjax.types import Draft, Law, Prompt, Request, Verdict
from specjax.verifiers import token
from tests import conftest
from tests.support import mutants, text_folders, tiny, tiny_llama, tiny_t5

GAMMA, NEW, GPT_VOCAB = 2, 8, 4096
# Matrices that eight devices divide; ids that fill no whole number of blocks of each.
GPT = gpt.Config(GPT_VOCAB, 32, 64, 1, 8)
LLAMA = tiny_llama.LLAMA._replace(
    vocab=2000, mlp_dim=32, num_layers=1, num_heads=16, key_heads=8
)
T5 = tiny_t5.SMALL._replace(vocab=2000, mlp_dim=64, num_heads=8, pieces=1990)
TAUGHT = gpt.Config(16, 8, 16, 1, 2)
CODE = gpt.Config(8192, 16, 32, 1, 2)
PROMPTS = ["def add(", "class Stack:\n    ", "import", "for i in"]
FAMILIES = {
    "gpt": (GPT, tiny.weights),
    "llama": (LLAMA, tiny_llama.weights),
    "t5": (T5, tiny_t5.weights),
}
TEXTS = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [1], [2, 2], [3], [9, 9, 9]]
HEATS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.7, 1.0, 0.0]


def pair(family: str) -> tuple[Side, Side]:
    """A target, and a draft that is mostly right."""
    config, weights = FAMILIES[family]
    target = weights(config, 2)
    draft = tiny.mixed(target, weights(config, 52), 0.1)
    model = build(config)
    named = ("target", target), ("draft", draft)
    loaded = (Pretrained(name, config, model, params) for name, params in named)
    return tuple(map(sides.of_pretrained, loaded))


def asked(family: str) -> tuple[Prompt, Request]:
    inputs = [[3, 4, 5], [6]] * 4 if family == "t5" else None
    prompt, sampling = make_prompt(TEXTS, inputs), make_sampling(8, 1.0, top_p=0.95)
    sampling = sampling._replace(temperature=jnp.float32(HEATS))
    return prompt, make_request(jax.random.key(0), prompt, NEW, sampling)


def placed(family: str) -> costs.Pair:
    slots = max(map(len, TEXTS)) + NEW + GAMMA + 1
    return costs.Pair(*mesh.pair(*pair(family)), slots)


def written(text: str, family: str) -> generate.Output:
    with mesh.using(text):
        decode = costs.decode(placed(family), GAMMA)
        return jax.device_get(decode(*mesh.rows(asked(family))))


def step_text(text: str, family: str = "gpt") -> str:
    """The compiled code of a step."""
    with mesh.using(text):
        case, (prompt, request) = placed(family), mesh.rows(asked(family))
        state = costs.begin(case, GAMMA, prompt, request)
        step = jax.jit(build_step(*case.decoder(GAMMA)))
        return step.lower(case.params(GAMMA), request, state).compile().as_text()


# The certificate of a law that lies over two devices.


def halved(law: Law) -> Law:
    spec = PartitionSpec(*[None] * (law.logits.ndim - 1), mesh.MODEL)
    split = jax.lax.with_sharding_constraint(law.logits, spec)
    return law._replace(logits=split)


def added_twice(law: Law) -> Law:
    """The mistake: devices add up a sum that each of them has whole."""
    return law._replace(lse=law.lse + jnp.log(2))


def verify(read, law: Law, draft: Draft, noise, keep_residual: bool = False) -> Verdict:
    draft = draft._replace(law=halved(draft.law))
    return token.verify(read(halved(law)), draft, noise, keep_residual)


def certificate(read) -> certify.Certificate:
    rule = token.verifier._replace(verify=functools.partial(verify, read))
    fixture, gamma, _ = mutants.trials()["random"]
    with jax.set_mesh(mesh.of(mesh.Layout(model=2))):
        return certify.certify(rule, fixture, gamma, 2, CLAIMS["token"])


def compared(family: str, layouts: list[str]) -> dict:
    """accepted: [B] drafted tokens. differ: the layouts that wrote anything else."""
    one = written("", family)
    others = {text: written(text, family) for text in layouts}
    differ = [
        text
        for text, other in others.items()
        if not all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))
    ]
    return {"accepted": one.counts.accepted.tolist(), "differ": differ}


def texts(*layouts: str) -> list:
    """What `generate_text` writes of four prompts on each, whole and by its pieces."""
    with tempfile.TemporaryDirectory() as folder:
        target, draft = text_folders.code_pair(Path(folder), CODE)
    asked = dict(temperature=1.0, new_tokens=NEW, gamma=GAMMA)
    found = []
    for text in layouts:
        how = target, draft, PROMPTS
        whole = specjax.generate_text(*how, **asked, mesh=text)
        pieces = specjax.stream_text(*how, **asked, mesh=text)
        parts = ["" for _ in PROMPTS]
        for piece in pieces:
            parts[piece.index] += piece.text
        found.append([whole.texts, whole.alpha, parts])
    return found


def trained(*layouts: str) -> list:
    """The curves and weights of some steps on each: rates that rise, and fall."""
    rng = np.random.default_rng(0)
    documents = [[1, *rng.integers(3, 16, rng.integers(3, 20)), 2] for _ in range(30)]
    data = language.stream(documents)
    texts = {"text": language.data(data, {"held_out": (data, 2)})}
    found = []
    for optimizer in ("adamw", "adafactor"):
        recipe = loop.Recipe(5, 2, 4, 6, warmup=2, evaluate_every=2)
        recipe = recipe._replace(optimizer=optimizer, checkpoint_every=2)
        for text in layouts:
            with tempfile.TemporaryDirectory() as folder:
                stage = Stage("", TAUGHT, recipe, "text", devices=text)
                params = pipeline.run(Path(folder), [stage], texts)
                lines = (Path(folder) / "curve.jsonl").read_text().splitlines()
            losses = [json.loads(line)["held_out"] for line in lines]
            weights = np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])
            found.append([optimizer, losses, weights.tolist()])
    return found


def main(what: str, *arguments: str) -> None:
    jax.config.update("jax_compilation_cache_dir", str(conftest.CACHE))
    jax.config.update("jax_disable_most_optimizations", True)
    match what:
        case "compared":
            found = compared(arguments[0], arguments[1:])
        case "step":
            found = step_text(*arguments)
        case "texts":
            found = texts(*arguments)
        case "trained":
            found = trained(*arguments)
        case "certificate":
            reads = dict(right=lambda law: law, wrong=added_twice)
            found = {name: certificate(read) for name, read in reads.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
