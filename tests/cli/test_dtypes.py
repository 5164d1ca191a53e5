"""Every command that loads models takes the dtype of their weights."""

from types import SimpleNamespace

import pytest

from specjax import sides, zoo
from specjax.cli import audit, demo, flags, measure, microscope
from tests.support import tiny

COMMANDS = (audit, demo, measure, microscope)


def of(module) -> str:
    return module.__name__.rpartition(".")[2]


def needed(command) -> list[str]:
    return ["--data", "prompts.jsonl"] if command is measure else []


@pytest.mark.parametrize("dtype", [*flags.DTYPES, None])
@pytest.mark.parametrize("command", COMMANDS, ids=of)
def test_both_models_are_loaded_in_the_dtype_that_is_named(command, dtype, monkeypatch):
    asked = {}

    def load(name, dtype="float32"):
        asked[name] = dtype
        if len(asked) == 2:
            raise ValueError("that was all")
        return tiny_side._replace(pretrained=SimpleNamespace(dtype=dtype))

    tiny_side = sides.of_model("tiny", *tiny.transformers()[0:4:3])
    monkeypatch.setattr(sides, "model", load)
    named = ["--dtype", dtype] if dtype else []
    with pytest.raises(SystemExit):
        command.main([*named, *needed(command)])
    assert asked == dict.fromkeys(zoo.MODELS, dtype or "float32")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Flags that name two small models of the bundled vocabulary, and prompts."""
    folder, config = tmp_path_factory.mktemp("pair"), tiny.TARGET._replace(vocab=8192)
    for seed, name in enumerate(("target", "draft")):
        (folder / name).mkdir()
        path = folder / name / "model.safetensors"
        zoo.save(path, config, tiny.weights(config, seed))
    (folder / "prompts.jsonl").write_text('{"prompt": "def f("}\n{"prompt": "x ="}\n')
    named = [f"--{name}={folder / name}" for name in ("target", "draft")]
    return [*named, f"--data={folder / 'prompts.jsonl'}", "--dtype=int8"]


@pytest.mark.slow
def test_a_pair_in_eight_bits_passes_its_audit(pair, capsys):
    sizes = "--gamma 2 --tokens 256 --length 16 --batch 8".split()
    assert audit.main([*pair, *sizes]) == 0
    assert "int8, T = 1" in capsys.readouterr().out


@pytest.mark.slow
def test_texts_in_eight_bits_differ_by_no_more_than_rounding(pair, capsys):
    sizes = "--gammas 2 --texts 2 --tokens 8".split()
    assert microscope.main([*pair, *sizes]) == 0
    assert ", int8, " in capsys.readouterr().out
