"""Real weights on many engines: `python -m experiments.rivals.real --questions FILE`

FILE has questions of a benchmark, such as Spec-Bench, a JSON object a line; FOLDER of
--speech has recordings and their transcripts.tsv. Only numbers of either are recorded.
Each row is appended to OUT/bench.jsonl; a row that is there already, with the same
settings, weights and files, is kept unless `--again`. Each engine runs in a separate
process, and all of them use the same few cores. Each call is on the disk as soon as it
was measured: after a stop the same command continues with the next one.
"""

import argparse
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments.rivals import bench, journal, language, speech
from experiments.rivals.journal import Journal
from specjax.measure import provenance
from specjax.measure.row import Measurement
from specjax.runtime import console
from specjax.runtime.cache_folder import cache_folder

PACKAGES = "torch transformers ctranslate2 llama-cpp-python openvino-genai"
PACKAGES += " onnxruntime-genai optimum-intel faster-whisper"
MODULE = "experiments.rivals.real"


# What --quick asks for where a flag does not: answers within four minutes, once each
# engine has its weights.
QUICK = dict(texts=3, longest=128, new_tokens=24, batch=1, prefill=256, recordings=2)


def main(arguments: list[str] | None = None) -> None:
    flags = bench.flags(MODULE)
    add = flags.add_argument
    add("--questions", type=Path, metavar="FILE", help="no rows of text without")
    add("--speech", type=Path, nargs="+", metavar="FOLDER", help="nor of speech")
    kept = cache_folder() / "rivals"
    add("--work", type=Path, default=kept, help="keeps the weights of each format")
    add("--texts_to", type=Path, metavar="FOLDER", help="keeps what everyone wrote")
    both = language.LanguageSetting(), speech.SpeechSetting()
    usual = both[1]._asdict() | both[0]._asdict()
    for name, value in usual.items():
        if name != "model":
            add(f"--{name}", type=type(value), default=value)
    chosen = bench.parse(flags, arguments, QUICK)
    bench.begin(chosen.threads)
    try:
        provenance.check_clean(chosen.out)
        with console.handle_stops(bench.describe_kept_calls):
            run(chosen)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def run(chosen: argparse.Namespace) -> None:
    """Measures every row whose files are there, and prints the tables.

    Raises:
        ValueError: a setting measures nothing.
        OSError: a file is missing.
    """
    asked = {
        language: (chosen.questions, language.LanguageSetting, "--questions FILE"),
        speech: (chosen.speech, speech.SpeechSetting, "--speech FOLDER"),
    }
    opened = []
    for module, (files, make, flag) in asked.items():
        usual = make()
        setting = make(*(getattr(chosen, x, y) for x, y in usual._asdict().items()))
        if files is None:
            print(f"bench/{usual.model}: not measured, it needs {flag}", flush=True)
            continue
        module.check(setting)
        opened += measure(chosen, module, setting, files)
    journal.remove_all(opened)
    bench.show(chosen.out)


def measure(
    chosen: argparse.Namespace, module: ModuleType, setting: NamedTuple, files: Any
) -> list[Journal]:
    """Measures the rows of a module that have no record yet; returns their journals."""
    out, versions = chosen.out, bench.package_versions(PACKAGES.split())
    inputs = module.inputs(setting, files)
    measurement = Measurement(dict, MODULE, inputs, dtype="float32")
    belongs = journal.conditions(measurement, setting, versions)
    opened, wanted = {}, []
    for row in module.rows(setting):
        if chosen.quick and row.endswith("_calls"):
            continue
        if not chosen.again and bench.is_recorded(
            out, [row], setting=setting, measurement=measurement
        ):
            print(f"bench/{row}: kept", flush=True)
            continue
        opened[row] = journal.open_journal(out, row, belongs)
        if opened[row].recorded:
            print(f"bench/{row}: measured before the stop", flush=True)
        else:
            wanted.append(row)
    if not wanted:
        return [*opened.values()]
    begun = time.monotonic()
    for row, measured in module.measure(
        setting,
        files,
        work=chosen.work,
        texts_folder=chosen.texts_to,
        row_names=wanted,
        journals=opened.__getitem__,
    ):
        origin = measurement, setting, time.monotonic() - begun
        bench.add_record(out, row, measured, origin=origin, versions=versions)
        opened[row].mark_recorded()
        print(f"bench/{row}: measured", flush=True)
        begun = time.monotonic()
    return [*opened.values()]


if __name__ == "__main__":
    main()
