"""What the small models are asked to continue, to translate and to summarize.

Every published number of the bundled models is of these texts: a file that changes is
another task, and its rows are to be measured anew.
"""

import hashlib
import json

import pytest

from experiments import tasks

# By file: its lines, and the beginning of its sha256.
FILES = {
    "corrections.jsonl": (95, "1fb323c8f53634b5"),
    "prompts.jsonl": (128, "863ab5e44b2717df"),
    "sentences.jsonl": (320, "98a1e0d6ebc3a225"),
    "summaries.jsonl": (120, "bd7a387defba9807"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_bundled_texts_are_those_that_numbers_are_of(name):
    content = (tasks.DATA / name).read_bytes()
    count, digest = FILES[name]
    lines = [json.loads(line) for line in content.decode().splitlines()]
    assert len(lines) == count
    assert hashlib.sha256(content).hexdigest().startswith(digest)
    keys = ["prompt"] if name == "prompts.jsonl" else ["source", "target"]
    for line in lines:
        assert [key for key in keys if line[key].strip()] == keys


def test_no_file_is_forgotten():
    assert {path.name for path in tasks.DATA.iterdir()} == FILES.keys()
