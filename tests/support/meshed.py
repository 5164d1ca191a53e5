"""Small pairs are decoded on one device and on meshes of eight devices, which a CPU
simulates.

Run as a module it prints, as JSON, what functions give that `tests.test_mesh` names,
each with its arguments and a + between them.
"""

import functools
import json
import math
import sys
import tempfile
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import specjax
from experiments.training import language, pipeline
from experiments.training.pipeline import Stage
from pallas_kernels import fuse, parts
from pallas_kernels.plan import Tiles
from specjax import fused, generate, probs
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafters import tree
from specjax.drafts.models import model_source
from specjax.drafts.placement import place_pair
from specjax.drafts.source import DraftSource, Recipe
from specjax.exactness import certify, draws
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.measure import costs
from specjax.models import families, gpt
from specjax.runtime import mesh
from specjax.speech import decoding, tokens
from specjax.speech import pair as pairs
from specjax.step import build_step
from specjax.training import loop
from specjax.types import Draft, Law, Prompt, Request, Verdict
from specjax.verifiers import recursive, token
from tests import conftest
from tests.support import (
    kernel_cases,
    mutants,
    speech_folders,
    text_folders,
    tiny,
    tiny_llama,
    tiny_t5,
)
from tests.support.tiny import quantize_params

GAMMA, NEW, GPT_VOCAB = 2, 8, 4096
# Matrices that eight devices divide; ids that fill no whole number of blocks of each.
GPT = gpt.Config(GPT_VOCAB, 32, 64, 1, 8)
LLAMA = tiny_llama.LLAMA._replace(
    vocab=2000, mlp_dim=32, num_layers=1, num_heads=16, key_heads=8
)
T5 = tiny_t5.SMALL._replace(vocab=2000, mlp_dim=64, num_heads=8, pieces=1990)
PARENT = -1, -1, 0, 0, 1  # of trees
KERNEL = "triton", Tiles(256, 2), True
SPOKEN = DecodeConfig(gamma=2)
TAUGHT = gpt.Config(16, 8, 16, 1, 2)
CODE = gpt.Config(8192, 16, 32, 1, 2)
PROMPTS = ["def add(", "class Stack:\n    ", "import", "for i in"]
FAMILIES = {
    "gpt": (GPT, tiny.weights),
    "int8": (GPT, tiny.weights),
    "llama": (LLAMA, tiny_llama.weights),
    "t5": (T5, tiny_t5.weights),
}
TEXTS = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [1], [2, 2], [3], [9, 9, 9]]
HEATS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.7, 1.0, 0.0]


@functools.cache
def pair(family: str) -> tuple[Pretrained, DraftSource]:
    """Returns a target, and a draft that is mostly right.

    To be made before a mesh is in use, under which every product of its weights would
    be compiled again."""
    config, weights = FAMILIES[family]
    target = weights(config, 2)
    draft = tiny.add_share(target, weights(config, 52), 0.1)
    model, dtype = families.build(config), "float32"
    if family == "int8":
        target, draft, dtype = quantize_params(target), quantize_params(draft), "int8"
    named = ("target", target), ("draft", draft)
    loaded = [Pretrained(name, config, model, it, dtype) for name, it in named]
    return loaded[0], model_source(loaded[1])


def branch(draft: DraftSource) -> DraftSource:
    """Returns a draft of trees by the same model."""

    def build(gamma, draw):
        return tree.build(draft.model(), PARENT)

    return draft._replace(factory=Recipe(build))


@functools.cache
def make_batch(family: str) -> tuple[Prompt, Request]:
    """Returns the prompts and the request of eight rows."""
    inputs = [[3, 4, 5], [6]] * 4 if family == "t5" else None
    prompt, sampling = make_prompt(TEXTS, inputs), make_sampling(8, 1.0, top_p=0.95)
    sampling = sampling._replace(temperature=jnp.float32(HEATS))
    return prompt, make_request(jax.random.key(0), prompt, NEW, sampling)


def place(family: str, trees: bool = False) -> costs.Pair:
    slots = max(map(len, TEXTS)) + NEW + len(PARENT) + 1
    target, draft = pair(family)
    if not trees:
        return costs.Pair(*place_pair(target, draft), slots)
    kernels = fused.reference(recursive.verifier)
    return costs.Pair(*place_pair(target, branch(draft)), slots, kernels)


def decode_texts(text: str, family: str) -> generate.Output:
    trees, family = family == "trees", family.replace("trees", "gpt")
    _, batch = pair(family), make_batch(family)
    with mesh.using(text):
        decode = costs.decode(place(family, trees), GAMMA)
        return jax.device_get(decode(*mesh.rows(batch)))


def step_text(text: str, family: str = "gpt") -> str:
    """Returns the compiled code of a step; for trees, without the selection of the
    target's ids."""
    trees, family = family == "trees", family.replace("trees", "gpt")
    _, batch = pair(family), make_batch(family)
    with mesh.using(text):
        case, (prompt, request) = place(family, trees), mesh.rows(batch)
        if trees:
            sampling = request.sampling._replace(top_p=None)
            request = request._replace(sampling=sampling)
        state = costs.begin(case, GAMMA, prompt, request)
        step = jax.jit(build_step(*case.decoder(GAMMA)))
        return step.lower(case.params(GAMMA), request, state).compile().as_text()


def find_draw_problems(text: str, family: str) -> list:
    """Returns the problems with the draws of a step on a mesh, and the number of
    keys."""
    trees, family = family == "trees", family.replace("trees", "gpt")
    pair(family)
    with mesh.using(text):
        case = place(family, trees)
        decoder = case.decoder(GAMMA)
        sizes = decoder.drafter.gamma, case.target.vocab
        prompt, key = draws.make_requests(*sizes, requests=4)
        found = draws.record_step(decoder, case.params(GAMMA), prompt, key)
    count = sum(draw.key[..., 0].size for draw in found.draws)
    return [draws.problems(found), count]


# The certificate of a law that lies over two devices.


def halve_vocab(law: Law) -> Law:
    spec = PartitionSpec(*[None] * (law.logits.ndim - 1), mesh.MODEL)
    split = jax.lax.with_sharding_constraint(law.logits, spec)
    return law._replace(logits=split)


def keep_as_is(law: Law) -> Law:
    return law


def added_twice(law: Law) -> Law:
    """Makes a mistake: devices add up a sum that each of them already has
    completely."""
    return law._replace(lse=law.lse + jnp.log(2))


def verify(read, law: Law, draft: Draft, noise, keep_residual: bool = False) -> Verdict:
    draft = draft._replace(law=halve_vocab(draft.law))
    return token.verify(read(halve_vocab(law)), draft, noise, keep_residual)


def read_by_ids(law: Law) -> Law:
    """Returns the law as devices hold it by ids, read by a kernel."""
    argmax = (law.scale == 1) & (law.tau == law.top) & (law.lse == 0)
    heat = jnp.where(argmax, 0.0, 1 / law.scale)[:, 0]
    name, tiles, interpret = KERNEL
    whole = parts.law(mesh.MODEL, parts.reader(name, tiles, interpret))
    where = dict(in_specs=(PartitionSpec(None, None, mesh.MODEL), PartitionSpec()))
    where |= dict(out_specs=PartitionSpec(), check_vma=False)
    more = [(0, 0)] * 2 + [(0, law.logits.shape[-1] % 2)]
    even = jnp.pad(law.logits, more, constant_values=-jnp.inf)
    return Law(law.logits, *jax.shard_map(whole, **where)(even, heat))


def certify_on_mesh(read) -> certify.Certificate:
    rule = token.verifier._replace(verify=functools.partial(verify, read))
    fixture, gamma, _ = mutants.trials()["random"]
    with jax.set_mesh(mesh.build(mesh.Layout(model=2))):
        return certify.certify(rule, fixture, gamma, 2, CLAIMS["token"])


def certificates() -> list[list[certify.Certificate]]:
    """Returns the certificates of a right law and a wrong one, for both ways to sum
    it."""
    summed, by_kernel = (
        [*map(certify_on_mesh, (keep_as_is, added_twice))],
        [certify_on_mesh(read_by_ids)],
    )
    # The mistake: a device takes the sum of its own ids for that of all.
    with mock.patch.object(parts.lax, "psum", lambda x, axis: x):
        return [summed, [*by_kernel, certify_on_mesh(read_by_ids)]]


def kernels(*layouts: str) -> list:
    """Returns what an interpreted kernel verifies and draws on each layout, with the
    reference first."""
    backend = kernel_cases.BACKENDS[2]
    _, tiles, interpret = KERNEL
    fuse.wire = functools.partial(
        fuse.wire, options=fuse.Options(tiles=tiles, interpret=interpret)
    )
    parts.reader = functools.partial(parts.reader, tiles=tiles, interpret=interpret)
    case = kernel_cases.random_case(1, (8, 2, 1024))
    sizes, found = fused.Sizes(8, 2, 1024), []

    def run(kernels, case):
        read = kernels.verifier.law or probs.standardize
        law = probs.standardize(case.draft, case.sampling)
        draft = Draft(case.tokens, case.num, law)
        target = read(case.target, case.sampling)
        verdict = kernels.verifier.verify(target, draft, case.noise)
        request = Request(
            jax.random.split(jax.random.key(0), 8), case.sampling, *[None] * 3
        )
        drawn = kernels.draw(request.key, request, None, 1)(case.draft[:, 0], 0)[0]
        return verdict.num_accepted, verdict.tokens, drawn

    for text in layouts:
        with mesh.using(text):
            name = backend.name if text else "reference"
            chosen = fused.choose(name, token.verifier, sizes, device=backend.device)
            case = mesh.rows(case)
            out = jax.jit(functools.partial(run, chosen))(case)
            found.append([chosen.record, *(x.tolist() for x in out)])
    return found


def compare_transcripts(kind: str, *layouts: str) -> list:
    """Returns the transcripts of sounds on each layout, with a draft of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        names = speech_folders.folders(Path(folder))
        pair = pairs.load_pair(names["target"], names[kind])
    if kind != "few":
        pair = pair._replace(
            target=with_even_vocab(pair.target), draft=with_even_vocab(pair.draft)
        )
    rng = np.random.default_rng(0)
    features = np.float32(rng.standard_normal((3, 300, 4)))
    prompts = [tokens.prompt(pair.tokens, "en", timestamps=False)] * 3
    found = []
    for text in layouts:
        with mesh.using(text):
            decode = decoding.build(pairs.place(pair), SPOKEN, timestamps=False)
            written = decode(features, prompts, np.float32([0, 0.5, 0])).tokens
        found.append([*map(list, written)])
    return found


def with_even_vocab(model: Pretrained) -> Pretrained:
    """Returns a Whisper with one more time token, so that two devices can divide its
    ids."""
    table = model.params["decoder"]["embedding"]
    table = jnp.concatenate([table, table[-1:]])
    decoder = model.params["decoder"] | {"embedding": table}
    config = model.config._replace(vocab=len(table))
    params = model.params | {"decoder": decoder}
    return model._replace(config=config, params=params, model=families.build(config))


def compare_texts(family: str, *layouts: str) -> dict:
    """Returns the numbers of drafted tokens that were accepted, [B], and the layouts
    that wrote anything else."""
    one = decode_texts("", family)
    others = {text: decode_texts(text, family) for text in layouts}
    differ = [
        text
        for text, other in others.items()
        if not all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))
    ]
    return {"accepted": one.counts.accepted.tolist(), "differ": differ}


def texts(*layouts: str) -> list:
    """Returns what `generate_text` writes for four prompts on each layout, as a whole
    and in pieces."""
    with tempfile.TemporaryDirectory() as folder:
        target, draft = text_folders.code_pair(Path(folder), CODE)
    calls = dict(temperature=1.0, new_tokens=NEW, gamma=GAMMA)
    found = []
    for text in layouts:
        how = target, draft, PROMPTS
        whole = specjax.generate_text(*how, **calls, mesh=text)
        pieces = specjax.stream_text(*how, **calls, mesh=text)
        parts = ["" for _ in PROMPTS]
        for piece in pieces:
            parts[piece.index] += piece.text
        found.append([whole.texts, whole.alpha, parts])
    return found


def compare_training(one: str, other: str) -> list:
    """Returns both runs with two optimizers; the second run continues where the first
    one reached its plateau. share: the part of the optimizer's state that is on one
    device."""
    rng = np.random.default_rng(0)
    documents = [[1, *rng.integers(3, 16, rng.integers(3, 20)), 2] for _ in range(30)]
    data = language.stream(documents)
    texts, found = {"text": language.data(data, {"held_out": (data, 2)})}, []
    for optimizer in ("adamw", "adafactor"):
        recipe = loop.Recipe(5, 2, 4, 6, warmup=2, evaluate_every=2)
        recipe = recipe._replace(optimizer=optimizer)
        with tempfile.TemporaryDirectory() as folder:
            of_one = train(Path(folder), recipe, one, texts=texts)
            goes_on = Path(folder if optimizer == "adafactor" else f"{folder}/new")
            if optimizer == "adafactor":
                (goes_on / "plateau.msgpack").replace(goes_on / "checkpoint.msgpack")
            found.append([of_one, train(goes_on, recipe, other, texts=texts)])
    return found


def train(folder: Path, recipe: loop.Recipe, text: str, *, texts) -> dict:
    params = pipeline.run(folder, [Stage("", TAUGHT, recipe, "text", "", text)], texts)
    lines = (folder / "curve.jsonl").read_text().splitlines()
    with mesh.using(text):
        rule, task = loop.optimizer(recipe), loop.Task({}, None, None, TAUGHT, None, {})
        state = loop.TrainState(params, rule.init(params), 0)
        moments = jax.tree.leaves(loop.place(state, task, rule).optimizer)
        here = sum(math.prod(x.sharding.shard_shape(x.shape)) for x in moments)
    return {
        "losses": [json.loads(line)["held_out"] for line in lines],
        "weights": np.concatenate([*map(np.ravel, jax.tree.leaves(params))]).tolist(),
        "share": here / sum(x.size for x in moments),
    }


def main(*words: str) -> None:
    calls = [[]]
    for word in words:
        if word == "+":
            calls.append([])
        else:
            calls[-1].append(word)
    jax.config.update("jax_compilation_cache_dir", str(conftest.CACHE))
    jax.config.update("jax_disable_most_optimizations", True)
    found = [globals()[what](*arguments) for what, *arguments in calls]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
