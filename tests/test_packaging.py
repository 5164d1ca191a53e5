"""What is installed says who it is, and brings what it needs."""

import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import specjax
from specjax import __main__, zoo

ROOT = Path(__file__).resolve().parents[1]


def test_there_is_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", specjax.__version__)
    assert f"\nversion: {specjax.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## (.+)$", changes, re.MULTILINE)[1] == specjax.__version__


def test_the_command_prints_its_version():
    command = [sys.executable, "-m", "specjax", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert printed.stdout == f"specjax {specjax.__version__}\n"
    assert printed.returncode == 0


def test_a_command_is_given_its_own_flags(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["specjax", "demo", "--K", "-1"])
    with pytest.raises(SystemExit) as exit:
        __main__.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("specjax demo: argument --K")


def test_every_command_has_its_module():
    for command, (package, _) in __main__.COMMANDS.items():
        assert find_spec(f"specjax.{package}.{command}"), command


def test_the_installed_package_is_this_one():
    try:
        installed = metadata.distribution("specjax")
    except metadata.PackageNotFoundError:
        pytest.skip("run from the sources; `make test` installs them")
    assert installed.version == specjax.__version__
    (script,) = installed.entry_points.select(group="console_scripts")
    assert (script.name, script.load()) == ("specjax", __main__.main)


def test_models_and_tokenizer_are_package_data_and_small():
    files = {path.name: path for path in zoo.FOLDER.iterdir() if path.is_file()}
    names = (*zoo.MODELS, *zoo.T5_MODELS, *zoo.SPEECH_MODELS, "bigram", "t5_bigram")
    weights = {f"{name}.safetensors" for name in names}
    others = {"tokenizer.model", "t5.model", "recipes.json", "t5_recipes.json"}
    others |= {"speech_recipes.json"}
    assert weights | others <= files.keys()
    sizes = [path.stat().st_size for path in files.values()]
    assert sum(sizes) <= 105e6 and max(sizes) <= 50e6
