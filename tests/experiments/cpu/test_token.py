"""Where a token's time goes adds up, and programs are counted as XLA runs them."""

import math

import pytest

from experiments.cpu import token
from experiments.cpu.token import TokenSetting
from specjax import native, pretrained
from specjax.measure import timing

LOOP = """
%branch_a (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %copy.1 = f32[] copy(%x)
}

%branch_b (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %negate.1 = f32[] negate(%x)
  ROOT %copy.2 = f32[] copy(%negate.1)
}

%short (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %s = (s32[], f32[2]{0}) parameter(0)
  ROOT %copy.3 = (s32[], f32[2]{0}) copy(%s)
}

%long (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %s = (s32[], f32[2]{0}) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %dot.1 = f32[2]{0} dot(%n, %n), lhs_contracting_dims={0}
  %custom.1 = f32[2]{0} custom-call(%dot.1), custom_call_target="rows"
  %chosen = f32[] conditional(%n, %n, %n), branch_computations={%branch_a, %branch_b}
  %inner = (s32[], f32[2]{0}) while(%s), condition=%done, body=%short
  ROOT %out = (s32[], f32[2]{0}) tuple(%n, %custom.1)
}

ENTRY %main (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %s = (s32[], f32[2]{0}) parameter(0)
  ROOT %while.1 = (s32[], f32[2]{0}) while(%s), condition=%done, body=%long
}
"""


def test_programs_of_the_largest_loop_are_counted():
    # A product, a call of compiled code, the longer branch and a round of a loop.
    assert token.count_programs(LOOP) == 1 + 1 + 2 + 1


@pytest.mark.slow
@pytest.mark.skipif(native.problem() is not None, reason="needs a compiler")
def test_the_parts_of_a_tokens_time_add_up(monkeypatch):
    monkeypatch.setattr(token, "SIDE", 256)
    monkeypatch.setattr(timing, "LOOPS", 4)
    found = token.measure("code_small", "float32", TokenSetting(slots=64, rounds=2))
    assert found["native_programs"] < found["xla_programs"]
    for way in ("native", "xla"):
        parts = (found[f"{way}_start_ms"], found["read_ms"], found[f"{way}_rest_ms"])
        assert math.isclose(sum(parts), found[f"{way}_ms"])
        assert found[f"{way}_v_4"] > 0 and len(found[f"{way}_v_7_ci"]) == 2
    weights = pretrained.load("code_small").params
    readout = weights["readout"].nbytes
    assert readout < 1e6 * found["megabytes"] < 8e6


def test_a_setting_or_a_model_that_it_cannot_measure_is_refused():
    for setting in (TokenSetting(slots=8), TokenSetting(rounds=0)):
        with pytest.raises(ValueError, match="want slots"):
            token.row_of_a_target("code_small", "float32", setting=setting)
    with pytest.raises(ValueError, match="has an encoder"):
        token.row_of_a_target("t5_small", "float32", setting=TokenSetting())
