"""Writes the golden texts that are named, or all: `python -m tests.golden [NAME
...]`."""

import json
import sys

from tests.golden.cases import CASES
from tests.golden.runs import run
from tests.golden.test_golden import FOLDER


def main() -> None:
    names = tuple(sys.argv[1:] or CASES)
    for name in names:
        found = run(name, names).items()
        lines = [f" {json.dumps(key)}: {json.dumps(x)}" for key, x in found]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        path = FOLDER / f"{name}.json"
        moved = path.exists() and path.read_text() != text
        path.write_text(text)
        print(f"{name}: {'MOVED' if moved else 'written'}", flush=True)


if __name__ == "__main__":
    main()
