"""The list of engines, and the same weights in the format of each, written once by its
own converter.

A GGUF file is the model: its weights, decoded to float32. The other formats are
converted from that, and kept in a folder until it is emptied.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.rivals.bench import ROOT
from experiments.rivals.children import Refused
from specjax.measure import provenance

FLOAT, EIGHT, DYNAMIC, FOUR = "float32", "int8", "int8_dynamic", "q4_1"
OPTIMUM = "optimum-cli"
NEEDS = f"{OPTIMUM} of optimum-intel, in .venv-openvino of the checkout or on PATH"


class Exports(NamedTuple):
    """The places of exported weights.

    Attributes:
        file: the GGUF file.
        work: the folder of the formats made from it.
    """

    file: Path
    work: Path


def format_folder(work: Path, name: str, weights: Path) -> Path:
    """Returns the folder for the formats that are made from these weights, and from no
    other weights of the same name.
    """
    return work / f"{name}-{provenance.digest(weights)[:16]}"


def original_file(exports: Exports) -> Path:
    return exports.file


def write_huggingface(exports: Exports) -> Path:
    """Returns the folder of Hugging Face in float32, which other converters read."""

    def convert(path: Path) -> None:
        import transformers

        from specjax import checkpoints, pretrained

        checkpoints.save(path, pretrained.load(exports.file))
        where = dict(gguf_file=exports.file.name)
        names = transformers.AutoTokenizer.from_pretrained(exports.file.parent, **where)
        names.save_pretrained(path)

    return make_once(exports.work / "huggingface", convert)


def write_gguf(exports: Exports, kind: str) -> Path:
    """Returns the file with its matrices as F32, or as Q8_0, blocks of 32 with a scale;
    everything else is unchanged.
    """

    def convert(path: Path) -> None:
        import gguf

        types, kinds = gguf.GGMLQuantizationType, gguf.GGUFValueType
        source = gguf.GGUFReader(exports.file)
        family = source.fields["general.architecture"].contents()
        writer = gguf.GGUFWriter(path, family)
        left = "general.architecture", "general.file_type"
        for name, field in source.fields.items():
            if name.startswith("GGUF.") or name in left:
                continue
            item = field.types[-1] if field.types[0] == kinds.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], item)
        most = {"F32": "ALL_F32", "Q8_0": "MOSTLY_Q8_0"}
        writer.add_file_type(gguf.LlamaFileType[most[kind]])
        for tensor in source.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            stored = types[kind] if values.ndim > 1 else types.F32
            packed = gguf.quants.quantize(values.astype("float32"), stored)
            writer.add_tensor(tensor.name, packed, raw_dtype=stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return make_once(exports.work / f"{kind.lower()}.gguf", convert)


def write_onnx(exports: Exports, kind: str) -> Path:
    if importlib.util.find_spec("onnxruntime_genai") is None:
        raise Refused("onnxruntime-genai is not installed")
    source = write_huggingface(exports)
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-e", "cpu"]

    def convert(path: Path) -> None:
        kept = ["-c", str(path / "cache"), "-p", kind]
        run([*builder, "-m", str(source), "-o", str(path), *kept])

    return make_once(exports.work / f"onnx_{kind}", convert)


def write_ctranslate2(exports: Exports) -> Path:
    """Returns the float32 export; its eight-bit form is made while it is loaded."""
    if importlib.util.find_spec("ctranslate2") is None:
        raise Refused("ctranslate2 is not installed")
    source = write_huggingface(exports)
    code = "from ctranslate2.converters.transformers import main; main()"

    def convert(path: Path) -> None:
        where = ["--model", str(source), "--output_dir", str(path)]
        run([sys.executable, "-c", code, *where])

    return make_once(exports.work / "ctranslate2", convert)


def write_openvino(exports: Exports, kind: str) -> Path:
    """Returns the folder that optimum-intel converts, which requires an older
    transformers than everything else here.
    """
    path = exports.work / f"openvino_{kind}"
    own = ROOT / ".venv-openvino/bin" / OPTIMUM
    command = str(own) if own.exists() else shutil.which(OPTIMUM)
    if command is None and not path.exists():
        raise Refused(f"no {NEEDS}")
    source = write_huggingface(exports)
    task = ["--task", "text-generation-with-past", "--weight-format", kind]

    def convert(path: Path) -> None:
        run([command, "export", "openvino", "-m", str(source), *task, str(path)])

    return make_once(path, convert)


def write_whisper_huggingface(place: Path, work: Path) -> Path:
    """Returns a Whisper as a folder of Hugging Face, with its
    generation_config.json."""

    def make(path: Path) -> None:
        from specjax import checkpoints, pretrained
        from specjax.speech.pair import load_pair

        model = pretrained.load(place)
        checkpoints.save(path, model)
        shutil.copy(place / "tokenizer.json", path)
        pair = load_pair(model, None)
        said = generation_config(pair.tokens, pair.limits, pair.target.config.positions)
        (path / "generation_config.json").write_text(json.dumps(said))

    return make_once(work / "huggingface", make)


def generation_config(tokens, limits, longest: int) -> dict:
    """Returns the special ids and the limits of speech, under the names that
    transformers uses."""
    return {
        "decoder_start_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.end,
        "bos_token_id": tokens.end,
        "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous,
        "is_multilingual": bool(tokens.languages),
        "lang_to_id": {f"<|{x}|>": i for x, i in tokens.languages.items()},
        "task_to_id": dict(tokens.tasks),
        "suppress_tokens": list(limits.suppressed),
        "begin_suppress_tokens": list(limits.at_first),
        "max_length": longest,
    }


def write_whisper_ctranslate2(place: Path, work: Path) -> Path:
    """Returns a Whisper in CTranslate2's own format.

    It has the same files, and the list of words that CTranslate2 requires but does not
    use for ids.
    """

    def make(path: Path) -> None:
        path.mkdir()
        for file in ("model.bin", "config.json", "tokenizer.json"):
            (path / file).symlink_to((place / file).resolve())
        fields = json.loads((place / "tokenizer.json").read_text("utf-8"))
        ids = dict(fields["model"]["vocab"])
        ids |= {x["content"]: x["id"] for x in fields["added_tokens"]}
        words = [f"<|{i}|>" for i in range(1 + max(ids.values()))]
        for word, i in ids.items():
            words[i] = word
        (path / "vocabulary.json").write_text(json.dumps(words))

    return make_once(work / "ctranslate2", make)


def make_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Creates a file or folder once; it is either complete or absent."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"part_{path.name}")
    shutil.rmtree(part, ignore_errors=True)  # of a converter that was stopped
    try:
        make(part)
    except ImportError as error:
        raise Refused(str(error)) from None
    part.rename(path)
    return path


def run(command: list[str]) -> None:
    """Runs a converter. Raises `Refused` with the last line of its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        name = Path(command[0]).name
        raise Refused(f"{name}: {said[-1] if said else done.returncode}")


class Engine(NamedTuple):
    """An engine: the module of its programs, and the formats of weights that it reads.

    Attributes:
        module: the module of this package.
        kinds: by arithmetic, the function that makes its input.
        lacks: by kind or program, the reason why there is no number.
    """

    module: str
    kinds: Mapping[str, Callable[[Exports], Path]]
    lacks: Mapping[str, str] = {}


OTHER_IDS = {"drafted": "the draft has other ids"}
ENGINES = {
    "specjax": Engine(
        "ours", {FLOAT: original_file, EIGHT: original_file, DYNAMIC: original_file}
    ),
    "transformers": Engine(
        "huggingface",
        {FLOAT: write_huggingface},
        OTHER_IDS | {EIGHT: "only by packages beside it"},
    ),
    "llama_cpp": Engine(
        "llama_cpp",
        {
            FLOAT: partial(write_gguf, kind="F32"),
            EIGHT: partial(write_gguf, kind="Q8_0"),
            FOUR: original_file,
        },
        OTHER_IDS,
    ),
    "openvino": Engine(
        "openvino",
        {
            FLOAT: partial(write_openvino, kind="fp32"),
            EIGHT: partial(write_openvino, kind="int8"),
        },
        OTHER_IDS,
    ),
    "onnxruntime": Engine(
        "onnxruntime",
        {
            FLOAT: partial(write_onnx, kind="fp32"),
            EIGHT: partial(write_onnx, kind="int8"),
        },
        OTHER_IDS,
    ),
    "ctranslate2": Engine(
        "ctranslate2",
        {FLOAT: write_ctranslate2, EIGHT: write_ctranslate2},
        {"lookup": "it has no speculative decoding"},
    ),
}
WHISPER = {
    "huggingface": write_whisper_huggingface,
    "ctranslate2": write_whisper_ctranslate2,
}


def program_name(engine: str, kind: str, program: str) -> str:
    """Returns the name of a program in a record; float32 and plain decoding are not
    part of it.
    """
    parts = engine, *(x for x in (kind, program) if x not in (FLOAT, "plain"))
    return "_".join(parts)


def our_program(engine: str, kind: str, program: str) -> str:
    """Returns the name of the specjax program that an engine's program is compared
    with. It decodes in the same way and in the same arithmetic, except that four bits
    are compared with our eight.
    """
    return program_name("specjax", EIGHT if kind == FOUR else kind, program)
