"""Real weights by many engines: `python -m experiments.rivals.real --questions FILE`

FILE has questions of a benchmark, such as Spec-Bench, a JSON object a line; FOLDER of
--speech has recordings and their transcripts.tsv. Nothing of either is recorded but
numbers. Each row is appended to OUT/bench.jsonl; rows of a model that are there
already, with the same settings, are kept unless `--again`. An engine is in a process
of its own, and all of them are on the same few cores.
"""

import argparse
import sys
import time
from importlib import metadata
from pathlib import Path

from experiments.records import compilation, markup, records
from experiments.report import details
from experiments.rivals.__main__ import ROOT, hold
from experiments.rivals.real import language, speech
from specjax.measure import jsonl, provenance
from specjax.measure.row import Measurement
from specjax.native.cache_folder import cache_folder

PACKAGES = "torch transformers ctranslate2 llama-cpp-python openvino-genai"
PACKAGES += " onnxruntime-genai optimum-intel faster-whisper"


def main(arguments: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog="python -m experiments.rivals.real")
    add = flags.add_argument
    add("--questions", type=Path, metavar="FILE", help="no rows of text without")
    add("--speech", type=Path, nargs="+", metavar="FOLDER", help="nor of speech")
    add("--out", type=Path, default=ROOT / "results")
    add("--again", action="store_true", help="measure what is there too")
    kept = cache_folder() / "rivals"
    add("--work", type=Path, default=kept, help="keeps the weights of each format")
    add("--texts_to", type=Path, metavar="FOLDER", help="keeps what everyone wrote")
    both = language.LanguageSetting(), speech.SpeechSetting()
    usual = both[1]._asdict() | both[0]._asdict()
    for name, value in usual.items():
        if name != "model":
            add(f"--{name}", type=type(value), default=value)
    chosen = flags.parse_args(arguments)
    hold(chosen.threads)
    compilation.keep()
    try:
        run(chosen)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def run(chosen: argparse.Namespace) -> None:
    work, kept = chosen.work, chosen.texts_to
    asked = {
        language: (chosen.questions, language.LanguageSetting, "--questions FILE"),
        speech: (chosen.speech, speech.SpeechSetting, "--speech FOLDER"),
    }
    for module, (files, make, flag) in asked.items():
        usual = make()
        setting = make(*(getattr(chosen, x, y) for x, y in usual._asdict().items()))
        if files is None:
            print(f"bench/{usual.model}: not measured, it needs {flag}")
            continue
        rows = module.rows(setting)
        config = "".join(f"{name} = {x!r}\n" for name, x in setting._asdict().items())
        if not chosen.again and all_there(chosen.out, rows, config):
            print(f"bench/{usual.model}: kept")
            continue
        begun = time.monotonic()
        for row, measured in module.measure(setting, files, work, kept):
            append(chosen.out, row, measured, config, time.monotonic() - begun)
            print(f"bench/{row}: measured", flush=True)
            begun = time.monotonic()
    latest = records.latest(jsonl.read(chosen.out / "bench.jsonl"))
    for title, head, lines in details.bench({"bench": latest}):
        print(f"\n{title}\n{markup.plain(head, lines)}", end="")


def all_there(out: Path, rows: list[str], config: str) -> bool:
    there = records.latest(jsonl.read(out / "bench.jsonl"))
    return all(
        row in there and there[row]["provenance"]["config"] == config for row in rows
    )


def append(out: Path, row: str, measured: dict, config: str, seconds: float) -> None:
    measurement = Measurement(dict, __package__, dtype="float32")
    origin = provenance.of(measurement, config, seconds)
    origin["versions"] |= versions()
    record = {"row": row, "table": "bench", "scale": "laptop", "kind": "time"}
    record |= {"measured": measured, "published": None, "provenance": origin}
    jsonl.put(out / "bench.jsonl", record)


def versions() -> dict[str, str | None]:
    """Of the engines; None for what is not here."""
    known = {}
    for name in PACKAGES.split():
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = None
    return known


if __name__ == "__main__":
    main()
