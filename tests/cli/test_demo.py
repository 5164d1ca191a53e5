"""`specjax demo`: the flags, the blocks and the counts that it promises."""

import io
import re
import time
import types

import numpy as np
import pytest

from specjax import console, zoo
from specjax.cli import demo
from specjax.models import gpt
from tests.support import text_folders, tiny
from tests.support.checkpoint_folders import reconfigure

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
    """Flags for a pair that compiles fast; the draft is the target with some noise."""
    config = gpt.Config(8192, dim=16, mlp_dim=32, num_layers=1, num_heads=2)
    target = tiny.weights(config, 0)
    draft = tiny.mixed(target, tiny.weights(config, 1), 0.1)
    folder, flags = tmp_path_factory.mktemp("demo"), []
    for side, weights in (("target", target), ("draft", draft)):
        path = folder / f"{side}.safetensors"
        zoo.save(path, config, weights)
        flags += [f"--{side}", str(path)]
    return flags


def run(*flags: str) -> types.SimpleNamespace:
    """Runs the demo; its sections, and the token ids that were decoded."""
    with pytest.MonkeyPatch.context() as patch:
        out, kept = io.StringIO(), {}
        measure, show = demo.measure, demo.show

        def measure_and_keep(case):
            kept["baseline"], kept["timed"], seconds = measure(case)
            kept["start"] = int(case.prompt.length[0])
            return kept["baseline"], kept["timed"], seconds

        def show_and_keep(tokenizer, length, steps):
            kept["streamed"], kept["trace"] = show(tokenizer, length, steps)
            return kept["streamed"], kept["trace"]

        patch.setattr("sys.stdout", out)
        patch.setattr(demo, "measure", measure_and_keep)
        patch.setattr(demo, "show", show_and_keep)
        assert demo.main([*FLAGS, *flags]) == 0
    names = "alone", "speculative", "summary", "lines"
    sections = zip(names, BLOCKS.fullmatch(out.getvalue()).groups(), strict=True)
    return types.SimpleNamespace(**dict(sections), **kept)


@pytest.fixture(scope="module")
def greedy(pair):
    return run(*pair)


@pytest.fixture(scope="module")
def sampled(pair):
    return run(*pair, "--temperature", "1", "--seed", "4", "--color", "always")


def test_greedy_texts_are_identical_and_said_to_be(greedy):
    assert greedy.alone == greedy.speculative == CODE.decode(greedy.baseline)
    assert greedy.alone.startswith(demo.PROMPT)
    assert "texts: identical" in greedy.summary
    assert "repeats: " in greedy.summary


def test_a_text_that_runs_in_circles_is_said_to_repeat():
    ids = np.array([*range(8), *range(8), 9, 10])  # what ends the second run, of five
    told = "repeats: 20% of tokens end 8 that the text had before"
    assert demo.repetition(ids, 13) == told


def test_sampled_texts_are_not_said_to_be_identical(sampled):
    assert sampled.speculative == CODE.decode(sampled.streamed)
    assert "identical" not in sampled.summary


def test_all_runs_write_what_was_asked_for(greedy, sampled):
    for printed in (greedy, sampled):
        for ids in (printed.baseline, printed.timed, printed.streamed):
            assert len(ids) == printed.start + NEW
        np.testing.assert_array_equal(printed.timed, printed.streamed)


def test_the_summary_is_the_traces(greedy, sampled):
    for printed in (greedy, sampled):
        accepted = sum(len(step.accepted) for step in printed.trace)
        added = sum(len(step.added) for step in printed.trace)
        tested = sum(step.tested for step in printed.trace)
        rejected = sum(len(step.rejected) for step in printed.trace)
        assert accepted + added == NEW
        assert accepted + rejected == tested
        calls = len(printed.trace)
        assert f"({accepted} accepted of {tested} drafted" in printed.summary
        assert f"= {NEW / calls:.2f} ({NEW} in {calls} calls)" in printed.summary
        assert f"r = {NEW / calls / (K + 1):.3f} (K = {K})" in printed.summary
        assert len(printed.lines.splitlines()) == 1 + calls
        speeds = re.search(r"speedup = (.*), 95 % (.*) to (.*) \(", printed.summary)
        speed, low, high = map(float, speeds.groups())
        assert low <= speed <= high
        # A step adds one token, unless the limit cuts it.
        assert all(len(step.added) == 1 for step in printed.trace[:-1])
        assert all(len(step.rejected) <= 1 for step in printed.trace)
    steps = greedy.trace + sampled.trace
    assert any(step.accepted for step in steps)
    assert any(step.rejected for step in steps)


def test_colors_or_marks(greedy, sampled):
    assert "\x1b" not in greedy.lines and "{+" in greedy.lines
    assert "\x1b[34m" in sampled.lines and "{+" not in sampled.lines


@pytest.mark.parametrize(
    "terminal, wish, color", [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colors_are_for_terminals_without_no_color(monkeypatch, terminal, wish, color):
    monkeypatch.setenv("NO_COLOR", wish)
    monkeypatch.setattr("sys.stdout", types.SimpleNamespace(isatty=lambda: terminal))
    assert demo.colorful() is color


def steps_of(ids: list[int], begun: int, asked=lambda shown: None):
    """One token a step, nothing drafted; `asked` before each step but the first."""
    info = types.SimpleNamespace(accepted=0, tested=0, tokens=np.zeros(0, int))
    for length in range(begun + 1, len(ids) + 1):
        yield np.array(ids[:length]), info
        asked(length)


@pytest.mark.parametrize(
    "text", ["def add(a, b):\n    return a + b\n", "x = '\U0001f642 \u6f22'"]
)
def test_the_text_is_printed_as_it_grows(text, capsys):
    """A character of several tokens only when it is whole."""
    ids, printed = CODE.encode(text), []

    def asked(length):
        printed.append(capsys.readouterr().out)
        so_far = CODE.decode(ids[:length]).rstrip("\ufffd")
        assert "".join(printed) == so_far

    demo.show(CODE, 1, steps_of(ids, 1, asked))
    assert len(printed) == len(ids) - 1 and "".join(printed) == text
    assert text.isascii() or "\ufffd" in CODE.decode(ids[:-3])


def test_a_broken_character_at_the_end_is_printed_as_such(capsys):
    ids = CODE.encode("a\U0001f642")[:-1]
    demo.show(CODE, 1, steps_of(ids, 1))
    assert capsys.readouterr().out == CODE.decode(ids) + "\n"
    assert CODE.decode(ids).endswith("\ufffd")


def test_it_says_what_it_does_and_stops_at_the_end_of_text(pair, capsys):
    flags = demo.make_parser().parse_args([*pair, *FLAGS])
    assert demo.make_case(flags).request.eos.tolist() == [zoo.END]
    with console.announced("Compiling"):
        pass
    assert re.fullmatch(r"Compiling \.\.\. \d\.\d s\n", capsys.readouterr().err)


def test_slow_reading_is_said(monkeypatch, capsys):
    monkeypatch.setattr(demo, "PATIENCE", 0.0)
    with demo.told_if_slow("Reading"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "Reading\n"


def test_logits_that_are_no_law_end_it_in_one_line(pair, monkeypatch, capsys):
    case = demo.make_case(demo.make_parser().parse_args([*pair, *FLAGS]))
    target = case.params.target | {"readout": case.params.target["readout"] * np.nan}
    params = case.params._replace(target=target)
    monkeypatch.setattr(demo, "make_case", lambda flags: case._replace(params=params))
    with pytest.raises(SystemExit) as stopped:
        demo.main([*pair, *FLAGS])
    *_, last = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert "row 0, the step that writes token 0 of its text: the target's" in last


def test_without_drafts_it_is_autoregression():
    flags = demo.make_parser().parse_args(["--K", "0"])
    assert demo.make_case(flags).decoder.drafter.gamma == 0


def test_the_scripts_own_flags_and_defaults():
    flags = demo.make_parser().parse_args([])
    assert (flags.n_tokens_to_generate, flags.K) == (60, 4)
    assert (flags.temperature, flags.seed, flags.kernels) == (0.0, 123, "auto")
    assert demo.named_pair(flags) == zoo.MODELS
    flags = demo.make_parser().parse_args(["--models_dir", "mine"])
    assert demo.named_pair(flags) == ("1558M", "124M")
    names = ["--draft_model_size", "code_target", "--target_model_size", "code_small"]
    flags = demo.make_parser().parse_args(names)
    assert demo.named_pair(flags)[::-1] == zoo.MODELS


def test_gpt2_by_its_sizes_goes_on_past_its_end(tmp_path):
    """As the script does; a text of the same folder by its path stops."""
    pytest.importorskip("tokenizers")
    for seed, name in enumerate(("1558M", "124M")):
        text_folders.gpt2(tmp_path / name, seed)
        reconfigure(tmp_path / name, eos_token_id=list(range(300)))

    def case(*flags: str):
        flags = [*flags, *FLAGS, "--prompt", "def add("]
        return demo.make_case(demo.make_parser().parse_args(flags))

    by_size = case("--models_dir", str(tmp_path))
    assert by_size.names == ("1558M", "124M") and by_size.request.eos.tolist() == [-1]
    names = "--target", str(tmp_path / "1558M"), "--draft", str(tmp_path / "124M")
    assert case(*names).request.eos.size == 300


@pytest.mark.slow
def test_a_recording_is_decoded_by_the_bundled_pair(capsys):
    for library in ("soundfile", "soxr", "tokenizers"):
        pytest.importorskip(library)
    recording = str(zoo.FOLDER / "speech" / "speech.flac")
    new = ["--n_tokens_to_generate", "60", "--K", "5"]
    assert demo.main(["--audio", recording, *new]) == 0
    printed = capsys.readouterr().out
    spoken = (zoo.FOLDER / "speech" / "speech.txt").read_text().strip()
    assert printed.count(f"Text =  {spoken}\n") == 2
    assert "texts: identical" in printed
