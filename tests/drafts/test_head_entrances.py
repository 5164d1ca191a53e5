"""A head drafts by every entrance: in Python at once and piece by piece, by the
commands, and where rows are refilled. The greedy texts are the target's own."""

import contextlib
import itertools
import json
import sys

import jax
import pytest
from jax.sharding import PartitionSpec

import specjax
from specjax import drafts
from specjax.cli import decode, measure
from specjax.decode_config import DecodeConfig
from specjax.drafts.placement import place_pair
from specjax.models import gpt
from specjax.runtime import mesh as meshes
from specjax.text import programs, serving
from specjax.text.serving import Arrival
from tests.support import devices, fresh_heads, slow, text_folders
from tests.support.fresh_heads import KINDS

CODE = gpt.Config(8192, 16, 32, 2, 2)
PROMPTS = ["def add(", "class Stack:\n", "import"]
GAMMA, NEW = 3, 10


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a target, m0.safetensors, a head of each kind and prompts."""
    folder = tmp_path_factory.mktemp("desk")
    target, _ = text_folders.code_pair(folder, CODE)
    for kind in KINDS:
        fresh_heads.write(folder / kind, kind, target)
    lines = (json.dumps({"prompt": text}) + "\n" for text in PROMPTS)
    (folder / "prompts.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def target(desk):
    return specjax.load(desk / "m0.safetensors")


ASKED = {"gamma": GAMMA, "new_tokens": NEW}


def generate(target, name, desk):
    return specjax.generate_text(target, name, PROMPTS, **ASKED).texts


def stream(target, name, desk):
    texts = ["" for _ in PROMPTS]
    for piece in specjax.stream_text(target, name, PROMPTS, **ASKED):
        texts[piece.index] += piece.text
    return texts


def flags(name, desk):
    pair = f"--target {desk}/m0.safetensors --draft {name} --temperature 0"
    return [*pair.split(), "--tokens", str(NEW)]


def decode_file(target, name, desk):
    out = desk / f"decoded by {desk.joinpath(name).name}"
    asked = ["--out", str(out), "--gamma", str(GAMMA), "--batch", "2"]
    decode.main([str(desk / "prompts.jsonl"), *asked, *flags(name, desk)])
    (file,) = out.glob("*.jsonl")
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


def serve(target, name, desk):
    """Two rows are refilled by the third prompt."""
    config = DecodeConfig(gamma=GAMMA, temperature=0.0, new_tokens=NEW)
    job = programs.prepare(target, name, PROMPTS, config)
    server = serving.build(programs.decoder(job.key), job.key.slots, rows=2)
    both, rows = (job.prompt, job.request), range(len(PROMPTS))
    asked = [Arrival(*jax.tree.map(lambda x, i=i: x[i : i + 1], both)) for i in rows]
    texts = {it.index: it.tokens for it in serving.serve(server, job.params, asked)}
    return [target.tokenizer.decode(texts[i].tolist()) for i in rows]


ENTRANCES = generate, stream, decode_file, serve


@pytest.mark.parametrize(
    ("kind", "entrance"),
    slow.mark_slow_unless(
        lambda case: case == ("eagle3", stream), itertools.product(KINDS, ENTRANCES)
    ),
)
def test_a_head_drafts_by_every_entrance(kind, entrance, target, desk):
    alone = specjax.generate_text(target, None, PROMPTS, new_tokens=NEW)
    assert entrance(target, str(desk / kind), desk) == alone.texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_is_measured_by_the_command(kind, desk, capsys):
    asked = f"--data {desk}/prompts.jsonl --gammas 2 --texts 2 --rounds 1 --json"
    assert measure.main([*asked.split(), *flags(str(desk / kind), desk)]) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    measured = record["measured"]
    assert measured["draft"].startswith(kind)
    assert measured["alpha_estimator"] == "counts"
    assert measured["same_greedy_texts"] == 2


MESHES = "data=2", "data=2,model=2"


def write_on_meshes(folder: str, kind: str) -> None:
    """Prints what a head writes on one device and on each mesh, as JSON; sampled and
    greedy. For a process that has several devices."""
    found = []
    how = dict(temperature=[0.0, 1.0, 1.0, 0.0], **ASKED)
    with contextlib.redirect_stdout(sys.stderr):
        for mesh in ("", *MESHES):
            with meshes.using(mesh):  # weights are read on it
                target = specjax.load(f"{folder}/m0.safetensors")
                source = specjax.load_draft(f"{folder}/{kind}", target)
            texts = [*PROMPTS, "for i in"]
            done = specjax.generate_text(target, source, texts, mesh=mesh, **how)
            found.append([done.ids, done.alpha])
    json.dump(found, sys.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_writes_on_a_mesh_what_it_writes_on_one_device(kind, desk):
    one, *others = devices.run_module(__name__, str(desk), kind)
    assert others == [one] * len(MESHES)
    assert 0 < one[1] < 1


def test_what_a_head_has_of_its_target_is_not_copied_on_a_mesh(target, desk):
    whole, source = drafts.pair(target, str(desk / "eagle"))
    assert source.params["target"]["readout"] is whole.params["readout"]
    with meshes.using("data=1,model=1"):
        placed, draft = place_pair(whole, source)
    for name, table in draft.params["target"].items():
        assert table is placed.params[name]
    spec = draft.params["head"]["join"]["kernel"].sharding.spec
    assert spec == PartitionSpec()
    with meshes.using("data=1,model=1"), meshes.layout(meshes.Layout(1, 2, 2)):
        with pytest.raises(ValueError, match="not a model to split: leave draft=2 out"):
            place_pair(whole, source)


if __name__ == "__main__":
    write_on_meshes(*sys.argv[1:])
