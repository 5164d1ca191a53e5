"""The installed package can be imported, and rules are found by their names."""

import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import specjax
from specjax import __main__, checkpoints, verifiers, zoo

ROOT = Path(__file__).resolve().parents[1]


def test_there_is_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", specjax.__version__)
    assert f"\nversion: {specjax.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## (.+)$", changes, re.MULTILINE)[1] == specjax.__version__


def test_every_folder_of_modules_is_a_package_that_a_wheel_has():
    for name in ("specjax", "pallas_kernels"):
        folders = {path.parent for path in (ROOT / name).rglob("*.py")}
        assert not [it for it in folders if not (it / "__init__.py").is_file()]


def test_every_command_has_its_module_and_is_given_its_own_flags(monkeypatch, capsys):
    for command, (package, _) in __main__.COMMANDS.items():
        module = command.replace("-", "_")
        assert find_spec(f"specjax.{package}.{module}"), command
    monkeypatch.setattr(sys, "argv", ["specjax", "demo", "--K", "-1"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert capsys.readouterr().err.startswith("specjax demo: argument --K")


def test_the_installed_package_is_this_one():
    try:
        installed = metadata.distribution("specjax")
    except metadata.PackageNotFoundError:
        pytest.skip("run from the sources; `make test` installs them")
    assert installed.version == specjax.__version__
    (script,) = installed.entry_points.select(group="console_scripts")
    assert (script.name, script.load()) == ("specjax", __main__.main)


def test_models_and_tokenizer_are_package_data_and_small():
    files = {path.name: path for path in zoo.FOLDER.rglob("*") if path.is_file()}
    names = (*checkpoints.BUNDLED, *zoo.DRAFTS, "bigram", "t5_bigram")
    assert {f"{name}.safetensors" for name in names} <= files.keys()
    assert {"tokenizer.model", "t5.model"} <= files.keys()
    assert {*zoo.HEADS} <= {path.parent.name for path in files.values()}
    sizes = [path.stat().st_size for path in zoo.FOLDER.rglob("*") if path.is_file()]
    assert sum(sizes) <= 130e6 and max(sizes) <= 50e6


# No backend of this name exists: asking for one fails.
NOTHING = {"JAX_PLATFORMS": "nonsense", "PATH": "", "PYTHONPATH": str(ROOT)}


def test_every_public_name_is_there_and_documented():
    for name in specjax.__all__:
        assert getattr(specjax, name).__doc__, name
    assert set(specjax.__all__) <= set(dir(specjax))
    assert (ROOT / "specjax/py.typed").is_file()
    assert '"specjax": ["py.typed"]' in (ROOT / "setup.py").read_text()
    with pytest.raises(AttributeError, match="no attribute 'loads'"):
        _ = specjax.loads


def test_importing_it_starts_no_device_and_reads_no_file_formats():
    code = (
        "import sys, specjax; print({'flax', 'safetensors'} & {*sys.modules});"
        "from specjax import text, zoo; import specjax.cli.flags;"
        "print('tokenizers' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, env=NOTHING)
    assert (run.stdout, run.stderr) == ("set()\nFalse\n", "")


def test_rules_go_by_name_and_say_what_they_guarantee():
    files = {path.stem for path in (ROOT / "specjax/verifiers").glob("*.py")}
    assert files - {"__init__", "guarantees"} == {*verifiers.EXACT, *verifiers.LOSSY}
    for name in verifiers.names():
        assert verifiers.find(name).guarantee in ("exact law", "pathwise")
    for name in verifiers.LOSSY:
        assert verifiers.find(name).guarantee.startswith(("lenient: ", "lossy: "))
    assert verifiers.find("lenient:1").guarantee == "exact law"


def test_a_name_that_stands_for_no_rule_is_told():
    for name, message in (
        ("tokens", "no rule 'tokens': choose one of block, .*lenient:0.5"),
        ("token:1", "no rule 'token:1': token takes no number"),
        ("lenient:much", "write lenient:0.5"),
        ("lenient:2", r"lenience must be in \(0, 1\]"),
        ("sigmoid:-1", "need alpha < 0 < beta"),
    ):
        with pytest.raises(ValueError, match=message):
            verifiers.find(name)
