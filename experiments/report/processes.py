"""A pool of processes, for pieces of work that use one core each."""

import contextlib
import io
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from specjax.runtime import console

COUNT = 2


def run(work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Returns the result of each piece of work by its name; separate processes each
    take the next one.
    """
    if not work:
        return {}
    found = {}
    fresh = multiprocessing.get_context("spawn")  # a fork of JAX's threads may hang
    with ProcessPoolExecutor(COUNT, mp_context=fresh) as pool:
        results = zip(work, pool.map(call_silently, work.values()), strict=True)
        for number, (name, result) in enumerate(results, 1):
            label = f"computing [{number}/{len(work)}] {name}"
            console.begin_line(label)
            console.end_line(label, "done")
            found[name] = result
    return found


def call_silently(work: Callable[[], Any]) -> Any:
    """Returns the result of a piece of work, without what it prints, because lines of
    two processes would be mixed.
    """
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return work()
