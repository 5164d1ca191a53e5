"""Names that other libraries use are refused, with our name, in Python and as flags."""

import inspect

import pytest

import specjax
from specjax.cli import decode, demo, measure
from specjax.runtime import foreign_names


@pytest.mark.parametrize("function", [specjax.generate_text, specjax.stream_text])
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("max_new_tokens", "write new_tokens, which counts no"),
        ("do_sample", "write temperature, which is greedy at 0"),
        ("num_return_sequences", "write samples"),
        ("stop_sequences", "write stop$"),
        ("repetition_penalty", "write rules, such as"),
        ("response_format", "write schema$"),
        ("num_speculative_tokens", "write gamma"),
        ("temprature", "write temperature$"),
        ("num_beams", "write specjax.generate_beams, which searches with beams$"),
        ("lengths", "it has target, draft, prompts, .*, mesh$"),
    ],
)
def test_a_setting_is_named_as_it_is_here(function, name, ours):
    """The error comes before a model is looked for."""
    message = rf"^{function.__name__}\(\) has no {name}: {ours}"
    with pytest.raises(ValueError, match=message):
        function("absent", None, ["x"], **{name: 1})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("num_beams", "write width, beams that are kept"),
        ("num_return_sequences", "write best, texts of each prompt"),
        ("max_new_tokens", "write new_tokens"),
        ("length_penalti", "write length_penalty$"),
        ("temperature", "it has target, draft, prompts, width, .*, task$"),
    ],
)
def test_a_setting_of_beam_search_is_named_as_it_is_here(name, ours):
    message = rf"^generate_beams\(\) has no {name}: {ours}"
    with pytest.raises(ValueError, match=message):
        specjax.generate_beams("absent", None, ["x"], **{name: 1})


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        ([["x"], "absent"], {"draft": None}, "multiple values for argument 'draft'"),
        (["absent", None], {}, "missing a required argument: 'prompts'"),
    ],
)
def test_arguments_in_another_order_are_refused_with_the_right_one(
    arguments, settings, says
):
    message = rf"^generate_text\(\) takes target, draft, prompts, .*: {says}$"
    with pytest.raises(TypeError, match=message):
        specjax.generate_text(*arguments, **settings)


def test_every_name_is_of_a_setting_that_there_is():
    functions = specjax.generate_text, specjax.generate_beams
    known = {name for f in functions for name in inspect.signature(f).parameters}
    assert set(foreign_names.FOREIGN) <= {*known}
    assert not {*foreign_names.OURS} & {*known}


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (demo, "--max_new_tokens 5", ": write --tokens"),
        (demo, "--n 5", ": write specjax.generate_text, which has samples"),
        (demo, "--num-speculative-tokens 5", ": write --gamma"),
        (demo, "--temp 0.5", ": write --temperature"),
        (measure, "--data x --num-speculative-tokens=5", ": write --gammas"),
        (measure, "--data x --stop x", ": write specjax.generate_text, which has stop"),
        (measure, "--data x --do-sample", ": write --temperature"),
        (decode, "x --out y --max-tokens 5", ": write --tokens"),
        (decode, "x --out y --assistant-model z", ": write --draft"),
        (decode, "x --out y --colour", "unrecognized arguments: --colour"),
    ],
)
def test_a_flag_is_named_as_it_is_here(refused, command, flags, message):
    assert message in refused(command.main, flags.split())
