"""One class has the settings of everything that decodes; it checks them, and every
place where a user writes one accepts it."""

import inspect
import re
from pathlib import Path

import pytest

from specjax import decode_config, text
from specjax.cli import flags
from specjax.decode_config import (
    KERNELS,
    NAMES,
    PER_PROMPT,
    DecodeConfig,
    change,
    check_setting,
    record_fields,
)
from specjax.measure.texts import Protocol
from specjax.types import Sampling

RUNS = Path(__file__).resolve().parent.parent / "gin_configs" / "runs"
# Settings whose flag has another name, and those that no command has.
FLAGS = {"gamma": "gammas", "new_tokens": "tokens"}
NO_FLAG = {"logprobs"}
NO_ROW = {"gamma", "logprobs"}  # rows have GAMMA or GAMMAS, and measure no logprobs


def test_the_defaults_are_settings_and_anything_else_is_refused_by_name():
    config = DecodeConfig()
    decode_config.check(config)
    assert hash(config) == hash(DecodeConfig())
    for name in NAMES:
        with pytest.raises(ValueError, match=f"^{name} must be "):
            check_setting(name, object())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gamma", 1001, "a whole number, at least 0 and at most 1000; got 1001"),
        ("gamma", True, "a whole number, at least 0 and at most 1000; got True"),
        ("temperature", "1", "a number, 0, which is argmax, or from .*; got '1'"),
        ("temperature", float("nan"), "0, which is argmax, or from .*; got nan"),
        ("top_k", 2.0, "a whole number, at least 1; leave top_k out .*; got 2.0"),
        ("top_p", 0.0, r"in \(0, 1\]; leave top_p out for no limit; got 0.0"),
        ("min_p", 2, r"in \[0, 1\]; leave min_p out for none; got 2"),
        ("new_tokens", 0, "a whole number, at least 1 and at most 1000000; got 0"),
        ("seed", -1, "a whole number from 0 to 4294967295; got -1"),
        ("kernels", "fast", f"one of {', '.join(KERNELS)}; got 'fast'"),
        ("rule", 5, "a name, a text; got 5"),
        ("logprobs", 1, "True or False; got 1"),
    ],
)
def test_a_value_that_cannot_be_is_one_clear_line(name, value, said):
    with pytest.raises(ValueError, match=f"^{name} must be {said}$"):
        check_setting(name, value)


def test_generate_text_has_every_setting_with_its_default_and_tells_of_it():
    parameters = inspect.signature(text.generate_text).parameters
    document = inspect.getdoc(text.generate_text)
    for name in NAMES:
        assert parameters[name].default == getattr(DecodeConfig(), name), name
        assert re.search(rf"^  {name}: ", document, re.M), name
    streamed = inspect.signature(text.stream_text).parameters
    for name in streamed.keys() & {*NAMES}:
        assert streamed[name].default == parameters[name].default, name


def test_commands_have_a_flag_for_every_setting_of_its_type():
    names = {FLAGS.get(name, name): name for name in NAMES if name not in NO_FLAG}
    assert names.keys() <= flags.FLAGS.keys() | flags.FILTERS.keys()
    parser = flags.Parser()
    flags.add(parser, *(flag for flag in names if flag in flags.FLAGS))
    flags.add_filters(parser)
    given = {"gammas": "3", "tokens": "7", "temperature": "0.5", "top_k": "2"}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    read = flags.read_config(parser.parse_args(words), gamma=3, new_tokens=7)
    assert read == DecodeConfig(gamma=3, new_tokens=7, temperature=0.5, top_k=2)


def test_rows_of_gin_files_bind_every_setting():
    text_of = (RUNS / "decode.gin").read_text("utf-8")
    bound = re.findall(r"^decode_config\.DecodeConfig\.(\w+) = %", text_of, re.M)
    assert {*bound} == {*NAMES} - NO_ROW


def test_what_changes_no_program_is_no_part_of_its_key():
    sampling = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1}
    rules = {"rule": "block", "policy": "adaptive"}
    changed = DecodeConfig(1, **sampling, **rules, new_tokens=8, seed=5)
    assert changed.static() == DecodeConfig(1, **rules)
    assert {*Sampling._fields} < {*PER_PROMPT} < {*NAMES}


def test_a_record_has_the_settings_beside_the_other_fields():
    protocol = change(Protocol("code", DecodeConfig()), gamma=2, batch=3, top_k=5)
    assert protocol == Protocol("code", DecodeConfig(2, top_k=5), batch=3)
    fields = {"task": "code", "tokens": 10_000, "batch": 3}
    assert record_fields(protocol, ["gamma"]) == fields | {"gamma": 2}
    assert record_fields(protocol).keys() == fields.keys() | {*NAMES} - {"logprobs"}
