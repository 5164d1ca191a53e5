"""`specjax demo` prints the flags, the blocks and the counts that it promises."""

import io
import re
import types

import numpy as np
import pytest

from specjax import zoo
from specjax.cli import demo, demo_pairs
from specjax.models import gpt
from tests.support import text_folders

NEW, K = 12, 3
CODE = zoo.tokenizer()
FLAGS = ["--n_tokens_to_generate", str(NEW), "--K", str(K)]
BLOCKS = re.compile(
    r"Autoregressive Decode\n---------------------\nTime = \d+\.\d\ds\nText = (.*)\n\n"
    r"Speculative Decode\n------------------\nTime = \d+\.\d\ds\nText = (.*)\n\n"
    r"Summary\n-------\n(.*)\n\nTrace: (.*)\n",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Flags for a pair that compiles fast."""
    folder = tmp_path_factory.mktemp("demo")
    text_folders.code_pair(folder, gpt.Config(8192, 16, 32, 1, 2))
    return [f"--target={folder}/m0.safetensors", f"--draft={folder}/m1.safetensors"]


def run(*flags: str) -> types.SimpleNamespace:
    """Runs the demo, and returns its sections and the ids that were decoded."""
    with pytest.MonkeyPatch.context() as patch:
        out, kept = io.StringIO(), {}
        measure, show = demo.measure, demo.show

        def measure_and_keep(case):
            kept["baseline"], kept["timed"], seconds = measure(case)
            kept["start"] = int(case.prompt.length[0])
            return kept["baseline"], kept["timed"], seconds

        def show_and_keep(*what):
            kept["streamed"], kept["trace"] = show(*what)
            return kept["streamed"], kept["trace"]

        patch.setattr("sys.stdout", out)
        patch.setattr(demo, "measure", measure_and_keep)
        patch.setattr(demo, "show", show_and_keep)
        assert demo.main([*FLAGS, *flags]) == 0
    names = "alone", "speculative", "summary", "lines"
    sections = zip(names, BLOCKS.fullmatch(out.getvalue()).groups(), strict=True)
    return types.SimpleNamespace(**dict(sections), **kept)


def test_greedy_texts_are_identical_and_the_summary_is_the_traces(pair):
    greedy = run(*pair)
    sampled = run(*pair, "--temperature", "1", "--seed", "4", "--color", "always")
    assert sampled.speculative == CODE.decode(sampled.streamed)
    assert "identical" not in sampled.summary
    assert "\x1b" not in greedy.lines and "{+" in greedy.lines
    # Without colors a token is told by marks, and with them by more than a color.
    assert "\x1b[34;4m" in sampled.lines and "\x1b[31;9m" in sampled.lines
    assert "{+" not in sampled.lines
    assert greedy.alone == greedy.speculative == CODE.decode(greedy.baseline)
    assert greedy.alone.startswith(demo_pairs.PAIRS["code"].prompt)
    assert "texts: identical" in greedy.summary
    assert "repeats: " in greedy.summary
    for printed in (greedy, sampled):
        for ids in (printed.baseline, printed.timed, printed.streamed):
            assert len(ids) == printed.start + NEW
        np.testing.assert_array_equal(printed.timed, printed.streamed)
        accepted, added, rejected = (
            sum(len(getattr(step, kind)) for step in printed.trace)
            for kind in ("accepted", "added", "rejected")
        )
        tested = sum(step.tested for step in printed.trace)
        assert accepted + added == NEW and accepted + rejected == tested
        calls = len(printed.trace)
        assert f"({accepted} accepted of {tested} tested" in printed.summary
        assert f"= {NEW / calls:.2f} ({NEW} in {calls} calls)" in printed.summary
        assert (
            f"; at most gamma + 1 = {K + 1}\nChen's r = {NEW / calls / (K + 1):.3f} "
            in printed.summary
        )
        assert len(printed.lines.splitlines()) == 1 + calls
        speeds = re.search(r"speedup = (.*), 95 % (.*) to (.*) \(", printed.summary)
        speed, low, high = map(float, speeds.groups())
        assert low <= speed <= high
    steps = greedy.trace + sampled.trace
    assert any(step.accepted for step in steps)
    assert any(step.rejected for step in steps)
    ids = np.array([*range(8), *range(8), 9, 10])  # what ends the second run, of five
    assert demo.repetition(ids, 13) == 0.2


def one_token_steps(ids: list[int], begun: int, asked=lambda shown: None):
    """Yields steps of one token, without drafts, and calls `asked` before each step but
    the first."""
    info = types.SimpleNamespace(accepted=0, tested=0, tokens=np.zeros(0, int))
    for length in range(begun + 1, len(ids) + 1):
        yield np.array(ids[:length]), info
        asked(length)


@pytest.mark.parametrize(
    "text", ["def add(a, b):\n    return a + b\n", "x = '\U0001f642 \u6f22'"]
)
def test_the_text_is_printed_as_it_grows(text, capsys):
    """A character of several tokens is printed only when it is complete."""
    ids, printed = CODE.encode(text), []

    def check_printed(length):
        printed.append(capsys.readouterr().out)
        so_far = CODE.decode(ids[:length]).rstrip("\ufffd")
        assert "".join(printed) == so_far

    demo.show(CODE, 1, one_token_steps(ids, 1, check_printed))
    assert len(printed) == len(ids) - 1 and "".join(printed) == text
    assert text.isascii() or "\ufffd" in CODE.decode(ids[:-3])
    capsys.readouterr()
    demo.show(CODE, 1, one_token_steps(ids, 1), 2)  # as where a template is left out
    assert capsys.readouterr().out == CODE.decode(ids[2:]) + "\n"
    ids = CODE.encode("a\U0001f642")[:-1]  # a broken character is printed as such
    demo.show(CODE, 1, one_token_steps(ids, 1))
    assert capsys.readouterr().out == CODE.decode(ids) + "\n"
    assert CODE.decode(ids).endswith("\ufffd")


def test_logits_that_are_no_law_end_it_in_one_line(pair, monkeypatch, capsys):
    case = demo.make_case(demo.make_parser().parse_args([*pair, *FLAGS]))
    assert case.request.eos.tolist() == [zoo.END]  # it stops at the end of a text
    target = case.params.target | {"readout": case.params.target["readout"] * np.nan}
    params = case.params._replace(target=target)
    monkeypatch.setattr(demo, "make_case", lambda flags: case._replace(params=params))
    with pytest.raises(SystemExit) as stopped:
        demo.main([*pair, *FLAGS])
    *_, last = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert "row 0, the step that writes token 0 of its text: the target's" in last


def choose_pair(*words: str) -> demo_pairs.DemoPair:
    return demo_pairs.choose(demo.make_parser().parse_args(words))


def test_the_scripts_own_flags_and_defaults(tmp_path):
    flags = demo.make_parser().parse_args([])
    assert (flags.n_tokens_to_generate, flags.K) == (60, 4)
    assert (flags.temperature, flags.seed) == (0.0, 123)
    assert choose_pair() == demo_pairs.PAIRS["code"]
    assert choose_pair("--models_dir", "mine")[:2] == ("1558M", "124M")
    names = ["--draft_model_size", "code_target", "--target_model_size", "code_small"]
    assert choose_pair(*names)[:2] == zoo.MODELS[::-1]
    # A GPT-2 by its size goes on past its end, as the script does.
    pytest.importorskip("tokenizers")
    for name in ("1558M", "124M"):
        text_folders.gpt2(tmp_path / name)
    by_size = ["--models_dir", str(tmp_path), *FLAGS, "--prompt", "def add("]
    case = demo.make_case(demo.make_parser().parse_args(by_size))
    assert case.names == ("1558M", "124M") and case.request.eos.tolist() == [-1]


def test_a_pair_goes_by_one_name_with_a_prompt_that_suits_it(refused):
    assert choose_pair("--pair", "ende")[:2] == ("t5_target", "t5_small")
    assert choose_pair("--target", "t5_target") == choose_pair("--pair", "ende")
    assert choose_pair("--audio", "a.wav")[:2] == zoo.SPEECH_MODELS
    typed = choose_pair("--pair", "smollm2", "--prompt", "Why?")
    assert typed.prompt == "Why?" and typed.chat
    for words, told in (
        (["--pair", "hope"], "'code', 'ende', 'correct', 'docs', 'speech', 'smollm2'"),
        (["--pair", "ende", "--draft", "copying"], "--pair names target and draft"),
        (["--audio", "a.wav", "--prompt", "x"], "leave --prompt out"),
    ):
        assert told in refused(demo.main, words)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ende", "correct"])
def test_an_encoders_input_is_printed_above_what_was_made_of_it(name, capsys):
    assert demo.main(["--pair", name, *FLAGS]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Input = {demo_pairs.PAIRS[name].prompt}\n\nAuto")
    assert "texts: identical" in printed and "[-" in printed


@pytest.mark.slow
def test_a_recording_is_decoded_by_the_bundled_pair(capsys):
    for library in ("soundfile", "soxr", "tokenizers"):
        pytest.importorskip(library)
    recording = zoo.FOLDER / "speech" / "speech.flac"
    new = ["--n_tokens_to_generate", "60", "--K", "5"]
    assert demo.main(["--audio", str(recording), *new]) == 0
    spoken = recording.with_suffix(".txt").read_text().strip()
    assert capsys.readouterr().out.count(f"Text =  {spoken}\n") == 2
