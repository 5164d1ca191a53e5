"""What a model that answers is asked, for its draft to learn from the answers.

Every kind may be bundled in what learns from it: GSM8K's training half (Cobbe et al.
2021, MIT), Tatoeba's sentences (CC BY 2.0), SciTLDR's abstracts (Cachola et al. 2020,
Apache 2.0) and documentation strings; and questions that the model asks itself, written
where a conversation's template has the user speak (as Xu et al. 2024, "Magpie").
"""

import hashlib
import json
import lzma
from pathlib import Path

from experiments.training.texts import documentation

GSM8K = "prompts/gsm8k.train.jsonl.xz"
PAIRS = "ende/train"
ABSTRACTS = "summarization/scitldr_a.train.jsonl.xz"
TATOEBA = "tatoeba_anki2018"
SHORT = 30  # characters, fewer than which are no sentence to translate


def read(folder: Path) -> dict[str, list[str]]:
    """By kind, in an order that its texts alone decide. folder: it holds `GSM8K`, the
    three files of `PAIRS` and `ABSTRACTS`. Raises ValueError for one that is not there.
    """
    kinds = {"maths": maths, "translation": translation, "summary": summaries}
    try:
        asked = {name: function(folder) for name, function in kinds.items()}
    except FileNotFoundError as error:
        raise ValueError(
            f"{error.filename} is not there: name the folder that holds {GSM8K}"
        ) from None
    asked["documentation"] = documented()
    return {name: shuffled(texts) for name, texts in asked.items()}


def shuffled(texts: list[str]) -> list[str]:
    return sorted(set(texts), key=lambda it: hashlib.sha256(it.encode()).digest())


def maths(folder: Path) -> list[str]:
    return [line["prompt"] for line in _lines(folder / GSM8K)]


def translation(folder: Path) -> list[str]:
    """Of German to English."""
    german, source = (_rows(folder / f"{PAIRS}.{end}.xz") for end in ("de", "src"))
    pairs = zip(german, source, strict=True)
    kept = (text for text, of in pairs if of == TATOEBA and len(text) >= SHORT)
    return [f"Translate German to English: {text}" for text in kept]


def summaries(folder: Path) -> list[str]:
    return [f"Summarize: {line['article']}" for line in _lines(folder / ABSTRACTS)]


def documented() -> list[str]:
    """Of documentation strings: what they say in short, or what they are about."""
    asked = []
    for body, summary in documentation.pairs("train"):
        asked.append(f"Summarize: {' '.join(body.split())}")
        asked.append(f"Explain in your own words: {summary}")
    return asked


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in _rows(path)]


def _rows(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]
