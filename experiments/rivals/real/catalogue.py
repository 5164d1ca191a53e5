"""Which engines there are, what each reads, and what it has not."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.rivals.real import exports

FLOAT, EIGHT, DYNAMIC, FOUR = "float32", "int8", "int8_dynamic", "q4_1"


class Engine(NamedTuple):
    """kinds: who makes what it reads in each arithmetic. package: as an index names it.
    lacks: by kind or program, why there is no number."""

    package: str
    kinds: Mapping[str, Callable[[exports.Exports], Path]]
    lacks: Mapping[str, str] = {}


ENGINES = {
    "specjax": Engine(
        "specjax", {FLOAT: exports.file, EIGHT: exports.file, DYNAMIC: exports.file}
    ),
    "transformers": Engine(
        "transformers",
        {FLOAT: exports.folder},
        {EIGHT: "only by packages beside it", "drafted": "the draft has other ids"},
    ),
    "llama_cpp": Engine(
        "llama-cpp-python",
        {FLOAT: exports.gguf_float32, EIGHT: exports.gguf_int8, FOUR: exports.file},
        {"drafted": "the draft has other ids"},
    ),
    "openvino": Engine(
        "openvino-genai",
        {FLOAT: exports.openvino_float32, EIGHT: exports.openvino_int8},
        {"drafted": "the draft has other ids"},
    ),
    "onnxruntime": Engine(
        "onnxruntime-genai",
        {FLOAT: exports.onnx_float32, EIGHT: exports.onnx_int8},
        {"drafted": "the draft has other ids"},
    ),
    "ctranslate2": Engine(
        "ctranslate2",
        {FLOAT: exports.ctranslate2, EIGHT: exports.ctranslate2},
        {"lookup": "it has no speculative decoding"},
    ),
}


def called(engine: str, kind: str, program: str) -> str:
    """The name of a program in a record: float32 and plain go without saying."""
    parts = engine, *(x for x in (kind, program) if x not in (FLOAT, "plain"))
    return "_".join(parts)


def beside(engine: str, kind: str, program: str) -> str:
    """Ours that it is compared with: the same way in the same arithmetic, or in the
    smallest that we have."""
    return called("specjax", EIGHT if kind == FOUR else kind, program)
