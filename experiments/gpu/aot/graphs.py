"""The launches of a program by a GPU's host, read from XLA's list of thunks.

A thunk is a launch, a CUDA graph of several launches (a command buffer), or a loop. The
host waits for the device where it must read whether a loop continues, or which branch
is taken; it does not wait for a loop with a known number of iterations, nor inside a
graph.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from experiments.gpu.aot import hlo

THUNK = re.compile(r"^(\s*)\d+: k(\w+)\s+\[[^\]]*\]\s*(\S*)")
BODY = re.compile(r"^\s*body:\s*$")
GRAPH, LOOP, BRANCHES = "CommandBuffer", "While", "Conditional"
AROUND = (GRAPH, LOOP, BRANCHES, "Sequential")  # what launches nothing of its own


class Thunk(NamedTuple):
    """An element of XLA's list.

    Attributes:
        kind, name: as in XLA.
        parts: the thunks inside; of a loop those of its body.
        condition: the condition of a loop.
    """

    kind: str
    name: str
    parts: tuple["Thunk", ...] = ()
    condition: tuple["Thunk", ...] = ()


class HostWork(NamedTuple):
    """The work of the host in one run of a program.

    Attributes:
        waits: how often it waits for the device.
        graphs: graphs that it launches.
        inside: kernels in those graphs.
        alone: kernels that it launches one by one.
    """

    waits: int = 0
    graphs: int = 0
    inside: int = 0
    alone: int = 0

    def __add__(self, other: "HostWork") -> "HostWork":
        return HostWork(*map(sum, zip(self, other, strict=True)))

    def times(self, count: int) -> "HostWork":
        return HostWork(*(count * each for each in self))


def read(text: str) -> tuple[Thunk, ...]:
    """Returns the thunks of a sequence, read from XLA's text dump."""
    lines = text.splitlines()
    return _sequence([line for line in lines if THUNK.match(line) or BODY.match(line)])


def all_launches(thunks: tuple[Thunk, ...]) -> Iterator[tuple[Thunk, bool]]:
    """Yields all launches, those in loops once, and whether each is in a graph."""
    for thunk in thunks:
        within = all_launches((*thunk.condition, *thunk.parts))
        yield from ((it, inside or thunk.kind == GRAPH) for it, inside in within)
        if thunk.kind not in AROUND:
            yield thunk, False


def loops_inside(thunks: tuple[Thunk, ...], inside: bool = False) -> set[str]:
    """Returns the names of the loops that are in a graph.

    Args:
        inside: whether these thunks are in one.
    """
    found = set()
    for thunk in thunks:
        if thunk.kind == LOOP and inside:
            found.add(thunk.name)
        within = inside or thunk.kind == GRAPH
        found |= loops_inside((*thunk.condition, *thunk.parts), within)
    return found


def host_work(
    thunks: tuple[Thunk, ...], program: hlo.Sequence, unknown: int
) -> HostWork:
    """Returns the work of the host in a run of `program`, which has these thunks.

    Args:
        unknown: iterations of a loop whose end the device decides.

    Raises:
        ValueError: the two have different numbers of loops.
    """
    trips = [loop.trips for loop in hlo.loops(program)]
    if len(trips) != count(thunks, LOOP):
        raise ValueError("these thunks are of another program: the loops differ")
    return _host_work(thunks, iter(trips), unknown)


def _sequence(lines: list[str]) -> tuple[Thunk, ...]:
    thunks = []
    while lines:
        head, *lines = lines
        depth, (kind, name) = _depth(head), THUNK.match(head).group(2, 3)
        end = next((i for i, x in enumerate(lines) if _depth(x) <= depth), len(lines))
        within, lines = lines[:end], lines[end:]
        own = (i for i, x in enumerate(within) if _depth(x) == depth + 2)
        at = next((i for i in own if BODY.match(within[i])), None)
        if at is None:
            thunks.append(Thunk(kind, name, _sequence(within)))
        else:
            condition, body = within[:at], within[at + 1 :]
            thunks.append(Thunk(kind, name, _sequence(body), _sequence(condition)))
    return tuple(thunks)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def count(thunks: tuple[Thunk, ...], kind: str) -> int:
    """Returns how many thunks of a kind there are, at any depth."""
    parts = (count((*it.condition, *it.parts), kind) for it in thunks)
    return sum(it.kind == kind for it in thunks) + sum(parts)


def _host_work(
    thunks: tuple[Thunk, ...], trips: Iterator[int | None], unknown: int
) -> HostWork:
    total = HostWork()
    for thunk in thunks:
        if thunk.kind == LOOP:
            known = next(trips)
            count = unknown if known is None else known
            # One that ends where the device says so asks once more than it runs.
            asked = _host_work(thunk.condition, trips, unknown) + HostWork(waits=1)
            body = _host_work(thunk.parts, trips, unknown)
            total += body.times(count)
            total += asked.times(count + 1) if known is None else HostWork()
        elif thunk.kind == GRAPH:
            within = _host_work(thunk.parts, trips, unknown)
            total += HostWork(graphs=1, inside=within.inside + within.alone)
        else:
            total += _host_work(thunk.parts, trips, unknown)
            total += HostWork(
                waits=thunk.kind == BRANCHES, alone=thunk.kind not in AROUND
            )
    return total
