"""What is guaranteed of texts: the word of their rule, where every part was certified.

The rules, drafts and policies of this package are certified by its tests. Those of
one's own, `module:name`, are once `specjax certify` has passed them, until their file
changes. A file of JSON in the user's cache folder says which were; where it cannot be
written none is.
"""

import hashlib
import importlib
import json
import os
from pathlib import Path

from specjax import verifiers
from specjax.runtime.cache_folder import cache_folder
from specjax.runtime.plugins import is_own

EXACT = "exact law", "pathwise"
UNKNOWN = "not certified"


def of(rule: str, draft: str | None = None, policy: str | None = None) -> str:
    """Returns what a rule, a draft and a policy of these names guarantee together.

    A rule that says in what it is lossy is believed. Of one that says that it is exact
    each part of one's own must have been certified; those that were not are named.
    """
    guarantee = verifiers.named(rule).guarantee
    named = [name for name in (rule, draft, policy) if name and is_own(name)]
    unknown = [name for name in named if not is_certified(name)]
    if guarantee not in EXACT or not unknown:
        return guarantee
    return f"{UNKNOWN}: {', '.join(unknown)}"


def is_unknown(guarantee: str) -> bool:
    """Whether it says that a part was not certified."""
    return guarantee.startswith(UNKNOWN)


def is_certified(name: str) -> bool:
    """Whether a part of one's own passed as it is now."""
    return name in read() and read()[name] == digest(name)


def keep(name: str, passed: bool) -> None:
    """Remembers whether a part of one's own passed; names of this package are left
    out."""
    if not is_own(name):
        return
    kept = read() | {name: digest(name)}
    if not passed:
        del kept[name]
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        beside.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
        beside.replace(file)
    except OSError:
        pass  # then nothing is certified


def path() -> Path:
    return cache_folder() / "certified.json"


def read() -> dict[str, str]:
    """Returns by name the content that passed; nothing of a file that is damaged."""
    try:
        kept = json.loads(path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def digest(name: str) -> str:
    """Returns what the file of "module:name" holds, as a number."""
    file = importlib.import_module(name.partition(":")[0]).__file__
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
