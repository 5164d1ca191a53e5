"""Real weights by many engines: `python -m experiments.rivals.real --questions FILE`

FILE has questions of a benchmark, such as Spec-Bench, a JSON object a line; FOLDER of
--speech has recordings and their transcripts.tsv. Only numbers of either are recorded.
Each row is appended to OUT/bench.jsonl; rows of a model that are there already, with
the same settings, weights and files, are kept unless `--again`. Each engine runs in a
separate process, and all of them use the same few cores.
"""

import argparse
import sys
import time
from pathlib import Path

from experiments.rivals import bench, language, speech
from specjax.measure import provenance
from specjax.measure.row import Measurement
from specjax.runtime.cache_folder import cache_folder

PACKAGES = "torch transformers ctranslate2 llama-cpp-python openvino-genai"
PACKAGES += " onnxruntime-genai optimum-intel faster-whisper"
MODULE = "experiments.rivals.real"


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
    chosen = flags.parse_args(arguments)
    bench.begin(chosen.threads)
    try:
        provenance.check_clean(chosen.out)
        run(chosen)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def run(chosen: argparse.Namespace) -> None:
    work, texts_to, out = chosen.work, chosen.texts_to, chosen.out
    versions = bench.package_versions(PACKAGES.split())
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
        module.check(setting)
        inputs = module.inputs(setting, files)
        measurement = Measurement(dict, MODULE, inputs, dtype="float32")
        rows = module.rows(setting)
        if not chosen.again and bench.is_recorded(
            out, rows, setting=setting, measurement=measurement
        ):
            print(f"bench/{usual.model}: kept")
            continue
        begun = time.monotonic()
        for row, measured in module.measure(setting, files, work, texts_to):
            origin = measurement, setting, time.monotonic() - begun
            bench.add_record(out, row, measured, origin=origin, versions=versions)
            print(f"bench/{row}: measured", flush=True)
            begun = time.monotonic()
    bench.show(out)


if __name__ == "__main__":
    main()
