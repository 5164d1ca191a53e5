"""What `import specjax` gives, and the names that rules go by."""

import subprocess
import sys
from pathlib import Path

import pytest

import specjax
from specjax import verifiers
from specjax.verifiers import lenient

ROOT = Path(__file__).resolve().parents[1]
# No backend of this name exists: asking for one fails.
NOTHING = {"JAX_PLATFORMS": "nonsense", "PATH": "", "PYTHONPATH": str(ROOT)}


def test_every_public_name_is_there_and_documented():
    for name in specjax.__all__:
        assert getattr(specjax, name).__doc__, name
    assert set(specjax.__all__) <= set(dir(specjax))
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


def test_it_is_marked_as_typed():
    assert (ROOT / "specjax/py.typed").is_file()
    assert '"specjax": ["py.typed"]' in (ROOT / "setup.py").read_text()


def test_rules_go_by_name_and_say_what_they_guarantee():
    files = {path.stem for path in (ROOT / "specjax/verifiers").glob("*.py")}
    assert files - {"__init__"} == {*verifiers.EXACT, *verifiers.LOSSY}
    for name in verifiers.names():
        assert verifiers.named(name).guarantee in ("exact law", "pathwise")
    for name in verifiers.LOSSY:
        assert verifiers.named(name).guarantee.startswith(("lenient: ", "lossy: "))
    assert verifiers.named("lenient:1").guarantee == "exact law"


def test_a_number_is_the_rules_own(monkeypatch):
    built = []
    rule = verifiers.LOSSY["lenient"]._replace(build=built.append)
    monkeypatch.setitem(verifiers.LOSSY, "lenient", rule)
    verifiers.named("lenient:0.3")
    verifiers.named("lenient")
    assert built == [0.3, 0.5]
    assert lenient.build(0.3).noise is verifiers.EXACT["token"].noise


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokens", "no rule 'tokens': choose one of block, .*lenient:0.5"),
        ("token:1", "no rule 'token:1': token takes no number"),
        ("lenient:", "write lenient:0.5"),
        ("lenient:much", "write lenient:0.5"),
        ("lenient:2", r"lenience must be in \(0, 1\]"),
        ("sigmoid:-1", "need alpha < 0 < beta"),
    ],
)
def test_a_name_that_stands_for_no_rule_is_told(name, message):
    with pytest.raises(ValueError, match=message):
        verifiers.named(name)
