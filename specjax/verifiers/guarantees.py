"""The guarantee that a run reports: its rule's, if every custom part is certified.

The rules, drafts and policies of this package are certified by its tests. A custom one,
`module:name`, is certified once `specjax certify` has passed it, until its file
changes. A JSON file in the user's cache folder lists the certified parts; where that
file cannot be written, no custom part counts as certified.
"""

import hashlib
import importlib
import json
import os
from pathlib import Path

from specjax import verifiers
from specjax.runtime.cache_folder import cache_folder
from specjax.runtime.plugins import is_custom

EXACT = "exact law", "pathwise"
UNKNOWN = "not certified"


def combine(rule: str, draft: str | None = None, policy: str | None = None) -> str:
    """Returns the guarantee of a rule, a draft and a policy together.

    The guarantee of a lossy rule is returned as it is. The guarantee of an exact rule
    holds only if each custom part is certified; otherwise the result names the parts
    that are not.
    """
    guarantee = verifiers.find(rule).guarantee
    named = (name for name in (rule, draft, policy) if name)
    custom = [part for name in named for part in custom_parts(name)]
    unknown = [name for name in custom if not is_certified(name)]
    if guarantee not in EXACT or not unknown:
        return guarantee
    return f"{UNKNOWN}: {', '.join(unknown)}"


def custom_parts(name: str) -> list[str]:
    """Returns the custom parts that a name contains, as "copying, else my_draft:build"
    does."""
    if is_custom(name):
        return [name]
    return [word for word in name.replace(",", " ").split() if is_custom(word)]


def is_unknown(guarantee: str) -> bool:
    """Returns whether a guarantee says that some part is not certified."""
    return guarantee.startswith(UNKNOWN)


def is_certified(name: str) -> bool:
    """Returns whether a custom part was certified with the content that its file has
    now."""
    return name in read() and read()[name] == digest(name)


def record(name: str, passed: bool) -> None:
    """Stores whether a custom part passed its certificate; ignores names of this
    package."""
    if not is_custom(name):
        return
    certified = read() | {name: digest(name)}
    if not passed:
        del certified[name]
    file = file_path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        temporary.write_text(
            json.dumps(certified, indent=1, sort_keys=True) + "\n", "utf-8"
        )
        temporary.replace(file)
    except OSError:
        pass  # the folder cannot be written: nothing is certified then


def file_path() -> Path:
    """Returns the path of the list of certified parts."""
    return cache_folder() / "certified.json"


def read() -> dict[str, str]:
    """Returns the digest of each certified part by name; empty for a damaged file."""
    try:
        certified = json.loads(file_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return certified if isinstance(certified, dict) else {}


def digest(name: str) -> str:
    """Returns the SHA-256 of the file that defines "module:name"."""
    file = importlib.import_module(name.partition(":")[0]).__file__
    return hashlib.sha256(Path(str(file)).read_bytes()).hexdigest()
