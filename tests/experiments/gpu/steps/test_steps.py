"""Steps are timed under flags of XLA: the test checks what a process is given, and what
is read from it."""

import pytest

from experiments.gpu.aot import graphs, hlo
from experiments.gpu.steps import log, loops, pair, row, token
from specjax.decode_config import change
from specjax.models import t5
from tests.support.settings import make

TINY = t5.Config(64, 16, 32, 1, 1, 2, 8, pieces=60)
SETTING = make(
    row.StepSetting, texts=1, rounds=1, loops=2, new_tokens=4, input_tokens=4, gamma=3
)
RUN = row.subprocess.run


def process(monkeypatch, text: str) -> None:
    """Replaces the measurement in a row's process by a program that prints `text`."""

    def shell(command, **options):
        return RUN(["/bin/sh", "-c", text], **options)

    monkeypatch.setattr(row.subprocess, "run", shell)


def test_a_row_keeps_what_its_process_prints_last_and_its_messages(monkeypatch):
    said = "I1127 16:00:00.1 7 command_buffer_thunk.cc:12] Updated 0x7f in 20 us; n=3"
    process(monkeypatch, f"echo noise; echo '{said}' >&2; echo '{{\"token_ms\": 2.5}}'")
    found = row.measure(TINY, TINY, SETTING._replace(logged="command_buffer_thunk"))
    assert found["token_ms"] == 2.5 and found["draft"]["vocab"] == 64
    message = {"said": "command_buffer_thunk.cc:12 Updated # in # us; n=#"}
    assert found["messages"] == [message | {"count": 1, "us": 20.0}]


def test_a_crash_is_a_record_with_its_last_words(monkeypatch):
    process(monkeypatch, "echo 'E0000 Unknown flag in XLA_FLAGS: --no' >&2; kill -6 $$")
    found = row.measure(TINY, TINY, SETTING._replace(flags="--no"))
    assert found["token_ms"] == found["syncs"] == row.NO_NUMBER
    assert found["error"].startswith("exit -6: ") and "--no" in found["error"]
    process(monkeypatch, "exec sleep 20")
    found = row.measure(TINY, TINY, SETTING._replace(part="token", seconds=1))
    assert found["gaps_us"] == row.NO_NUMBER and "longer than 1 s" in found["error"]


def test_a_process_gets_its_flags_beside_those_that_there_are(monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "--first")
    own = row.environment(SETTING._replace(flags="--second", logged="a"), tmp_path)
    assert own["XLA_FLAGS"] == "--first --second"  # no dumps on a CPU
    assert own["TF_CPP_VMODULE"] == "a=3" and own["TF_CPP_MIN_LOG_LEVEL"] == "0"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"part": "whole"}, "part must be one of steps, token"),
        ({"trips": "some"}, "trips must be one of known, device"),
        ({"gamma": 1}, "gamma must be at least 2"),
        ({"alpha": 2.0}, "alpha must be in"),
        ({"texts": 0}, "texts must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        row.build(TINY, TINY, change(SETTING, **changed))


def nest_loops(outer: int | None, inner: int | None) -> hlo.Sequence:
    """Returns a loop of steps that contains a draft's loop."""
    nothing = hlo.Sequence(())
    draft = hlo.Loop("draft", nothing, nothing, inner)
    steps = hlo.Loop("steps", hlo.Sequence((), (draft,)), nothing, outer)
    return hlo.Sequence((), (steps,))


def test_waits_are_of_loops_without_a_known_end_outside_of_graphs():
    assert loops.count_waits(nest_loops(None, None), set(), 7) == 8
    assert loops.count_waits(nest_loops(None, 6), set(), 7) == 1
    assert loops.count_waits(nest_loops(None, None), {"draft"}, 7) == 1
    assert loops.count_waits(nest_loops(None, None), {"draft", "steps"}, 7) == 0


def test_loops_in_graphs_are_read_from_the_list_of_thunks():
    text = "\n".join(
        ("000: kCommandBuffer\t[a] graph", "    000: kWhile [b] steps")
        + ("      body:", "        000: kKernel [c] k1", "001: kWhile [d] other")
        + ("  body:", "    000: kKernel [e] k2")
    )
    thunks = graphs.read(text)
    assert graphs.loops_inside(thunks) == {"steps"}
    assert graphs.count(thunks, graphs.LOOP) == 2
    assert [inside for _, inside in graphs.all_launches(thunks)] == [True, False]


def test_a_token_is_a_draft_less_a_shorter_one():
    once = [("norm", 0.002), ("product", 0.004)]
    longer, shorter = [*once * 6, ("draw", 0.001)], [*once * 4, ("draw", 0.001)]
    assert token.difference(longer, shorter, 2) == [
        {"name": "product", "count": 1.0, "us": 4.0},
        {"name": "norm", "count": 1.0, "us": 2.0},
    ]
    assert token.total(longer) == pytest.approx(37.0)


def test_messages_are_counted_without_their_numbers():
    line = "I1127 16:00:00.123456 17 a/thunk.cc:9] Recorded {} commands in {} us"
    text = "\n".join([line.format(3, 10), "no message", line.format(5, 2.5)])
    said = "a/thunk.cc:9 Recorded # commands in # us"
    assert log.count_messages(text) == [{"said": said, "count": 2, "us": 12.5}]


@pytest.mark.slow
@pytest.mark.parametrize("trips", row.TRIPS)
def test_both_ways_to_end_a_draft_make_the_same_texts(trips, tmp_path):
    setting = change(SETTING, trips=trips, texts=2, new_tokens=8)
    asked = row.to_json(TINY, TINY, setting)
    found = loops.measure(pair.parse_inputs([asked, str(tmp_path)]))
    known = asked.replace(trips, "known")
    known = loops.measure(pair.parse_inputs([known, str(tmp_path)]))
    assert found["checksum"] == known["checksum"] and found["calls"] == known["calls"]
    assert min(found[name] for name in ("token_ms", "prefill_ms")) > 0
