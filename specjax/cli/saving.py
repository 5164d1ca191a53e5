"""Where `specjax measure` puts its records, whole ones and those that are not yet."""

import json
import os
import sys
from pathlib import Path

from specjax.measure import jsonl


class Saving:
    """A file to append to, and one beside it for what is not whole yet. path: None
    saves nothing."""

    def __init__(self, path: Path | None):
        self.path = path
        self.kept = False

    @property
    def partial(self) -> Path:
        """Of this process alone, so that no run replaces what another left."""
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")

    def prepare(self) -> None:
        """Raises ValueError, before any compute, for a path that cannot be written."""
        if self.path is not None:
            jsonl.prepare(self.path)

    def keep(self, record: dict) -> None:
        """Puts what is measured so far beside the file, in the place of what this
        process put there."""
        if self.path is None:
            return
        fresh = self.partial.with_name(f"{self.partial.name}.new")
        try:
            fresh.unlink(missing_ok=True)
            jsonl.append(fresh, record)
            fresh.replace(self.partial)
            self.kept = True
        except (OSError, ValueError) as error:
            reason = f"{jsonl.short(self.partial)}: {error}"
            print(f"could not keep the rounds so far in {reason}", file=sys.stderr)

    def append(self, record: dict) -> bool:
        """Appends a whole record, or prints it where that fails and returns False."""
        if self.path is None:
            return True
        try:
            jsonl.append(self.path, record)
        except (OSError, ValueError) as error:
            print(json.dumps(record, sort_keys=True), flush=True)
            shown = jsonl.short(self.path)
            print(f"could not write {shown} ({error}): the record", file=sys.stderr)
            print("is printed above; save that line", file=sys.stderr)
            return False
        if self.kept:
            self.partial.unlink(missing_ok=True)
        return True

    def left(self) -> str:
        """Where that is what was measured, for who stops it."""
        if self.path is None:
            return "nothing was saved, as no file was named with --out"
        if self.kept:
            return f"what was measured is in {self.partial}"
        return "no round was done, so that there is nothing to save"
