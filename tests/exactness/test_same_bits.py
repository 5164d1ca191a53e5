"""`specjax certify --bits` shows that drafts leave greedy texts as they are, and fails
where sums depend on the shape of a call."""

import json

import numpy as np
import pytest

from specjax import native
from specjax.exactness import certify, same_bits

CASES = [("llama", "int8_dynamic")]
CASES += [
    (family, dtype)
    for family in ("gpt", "qwen3", "gemma2", "t5")
    for dtype in ("int8", "int8_dynamic")
]
pytestmark = pytest.mark.skipif(
    native.problem() is not None, reason=f"no products: {native.problem()}"
)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype"), CASES)
def test_a_tiny_model_has_the_same_bits(family, dtype):
    found = same_bits.compare(same_bits.tiny(family, dtype))
    assert found.wrong == [] and found.tree is not None
    assert found.chain[0] == found.batch[0] > 1


def test_sums_of_xla_are_caught():
    case = same_bits.tiny("gpt", "float32")
    count = case.prompt.tokens.shape[1] + same_bits.TOKENS
    texts = np.random.default_rng(0).integers(1, 200, (len(case.prompt.tokens), count))
    equal, of = same_bits.compare_calls(case, texts)
    assert equal == of
    with native.products(native.XLA):
        equal, of = same_bits.compare_calls(case, texts)
    assert equal < of


def found(calls: int) -> same_bits.Found:
    return same_bits.Found((calls, 9), (4, 4), None, (4, 4))


@pytest.mark.parametrize(("calls", "code"), [(9, 0), (8, 1)])
def test_the_command_says_whether_bits_differ(calls, code, monkeypatch, capsys):
    monkeypatch.setattr(same_bits, "compare", lambda case: found(calls))
    monkeypatch.setattr(same_bits, "FAMILIES", {"gpt": same_bits.FAMILIES["gpt"]})
    monkeypatch.setattr(
        same_bits, "pair_case", lambda *_: same_bits.tiny("gpt", "int8")
    )
    with pytest.raises(SystemExit) as ended:
        certify.main(["--bits", "--dtype", "int8", "--json"])
    assert ended.value.code == code
    document = json.loads(capsys.readouterr().out)
    verdict = "DIFFERENT calls" if code else "same bits"
    assert [line["verdict"] for line in document["bits"]] == [verdict] * 2


def test_without_native_code_the_promise_does_not_apply(monkeypatch, capsys):
    monkeypatch.setattr(native, "problem", lambda: "no C++ compiler was found")
    with pytest.raises(SystemExit) as ended:
        certify.main(["--bits"])
    assert ended.value.code == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("does not apply here: no C++ compiler was found.")


@pytest.mark.slow
def test_the_command_certifies_the_code_pair_and_fails_for_xla():
    for products, code in ("thin", 0), ("xla", 1):
        pair = ["--target", "code_target", "--draft", "code_small"]
        with pytest.raises(SystemExit) as ended:
            certify.main(
                ["--bits", *pair, "--dtype", "float32", "--products", products]
            )
        assert ended.value.code == code


@pytest.mark.parametrize(
    "flags", ["--target code_target", "--dtype int8", "--bits --rule token"]
)
def test_flags_that_do_not_belong_together_are_refused(flags, capsys):
    with pytest.raises(SystemExit) as ended:
        certify.main(flags.split())
    assert ended.value.code == 2 and "--bits" in capsys.readouterr().err
