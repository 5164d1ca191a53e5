"""Writes the lesson to DIR/lesson/index.html: `python -m experiments.report.lesson
[DIR]`.

It shows the records of the folder and decodes one text by every rule of chains.
"""

import argparse
from pathlib import Path

from experiments.report import tables
from experiments.report.lesson import pages


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.report.lesson")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"no folder {folder}: measure something first")
    pages.write(folder, tables.collect(folder))
    print(f"rendered {folder / 'lesson' / 'index.html'}")


if __name__ == "__main__":
    main()
