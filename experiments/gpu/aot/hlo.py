"""The launches of a compiled program, read from the text of its optimized HLO.

Every instruction that a GPU runs separately counts: a fusion, a custom call (also of a
library, or of Pallas), a copy, and everything else outside of fusions. Instructions
that only name buffers do not count: parameters, constants, tuples and their elements,
bitcasts, and the second half of an asynchronous pair. A loop's body and condition are
separate sequences, because they run once an iteration, the condition only where the
device decides the number of iterations; a called computation and the branches of a
conditional belong to their caller. On a GPU this is the number of launches in XLA's
thunk sequence (`aot.inspect` reports both), except that a sort of many numbers is
several launches.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
FREE |= {"opt-barrier", "partition-id", "replica-id", "while", "call", "conditional"}
CALLS = ("body", "condition")  # of a loop
MOVING = {"copy", "transpose", "bitcast", "parameter", "reshape"}

HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\((.*)$")
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
CALLED = re.compile(r"\b(?:calls|to_apply)=%?([\w.\-]+)")
BRANCHES = re.compile(
    r"\b(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))"
)
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Kernel(NamedTuple):
    """A launch of a kernel.

    Attributes:
        target: the target of a custom call, else "".
        bytes: the bytes of its results.
        moves: whether it only copies or transposes.
        source: the operation of the traced program.
    """

    name: str
    opcode: str
    target: str
    bytes: int
    moves: bool
    source: str


class Sequence(NamedTuple):
    """Launches that are executed once, in order, and the loops among them."""

    kernels: tuple[Kernel, ...]
    loops: tuple["Loop", ...] = ()


class Loop(NamedTuple):
    """A loop.

    Attributes:
        trips: the number of iterations, None where the program decides by the
            condition.
    """

    name: str
    body: Sequence
    condition: Sequence
    trips: int | None


class Instruction(NamedTuple):
    root: str | None
    name: str
    shape: str
    opcode: str
    rest: str


def read(text: str) -> Sequence:
    """Returns the launches of a module. Raises ValueError if it has no entry
    computation.
    """
    return _sequence(*computations(text))


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Returns the instructions of every computation of a module, and the name of its
    entry.
    """
    found, entry = {}, None
    for line in text.splitlines():
        if head := HEAD.match(line):
            inside = found.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif match := LINE.match(line):
            inside.append(Instruction(*match.groups()))
    if entry is None:
        raise ValueError("no ENTRY computation: give the text of an HLO module")
    return found, entry


def iteration(loop: Loop) -> int:
    """Returns the number of kernels in one iteration, without those of inner loops."""
    return sum(len(part.kernels) for part in parts(loop))


def parts(loop: Loop) -> tuple[Sequence, ...]:
    """Returns the sequences that an iteration runs."""
    return (loop.body, loop.condition) if loop.trips is None else (loop.body,)


def loops(sequence: Sequence) -> Iterator[Loop]:
    for loop in sequence.loops:
        yield loop
        yield from loops(loop.body)


def all_kernels(sequence: Sequence) -> Iterator[Kernel]:
    yield from sequence.kernels
    for loop in sequence.loops:
        yield from all_kernels(loop.condition)
        yield from all_kernels(loop.body)


def repeat_kernels(sequence: Sequence, unknown: int) -> Iterator[Kernel]:
    """Yields every kernel as often as it is executed.

    Args:
        unknown: iterations of a loop whose end the program decides.
    """
    yield from sequence.kernels
    for loop in sequence.loops:
        trips = unknown if loop.trips is None else loop.trips
        for part in parts(loop):
            for _ in range(trips):
                yield from repeat_kernels(part, unknown)


def large_moves(sequence: Sequence, least: int) -> list[Kernel]:
    """Returns copies and transposes of `least` bytes or more, also those in loops."""
    return [k for k in all_kernels(sequence) if k.moves and k.bytes >= least]


def array_bytes(shape: str) -> int:
    """Returns the bytes of all arrays in a shape; tokens and other opaque values count
    0."""
    total = 0
    for kind, sizes in ARRAY.findall(shape):
        bits = 8 if kind == "pred" else int((re.findall(r"\d+", kind) or ["0"])[0])
        total += (bits * math.prod(map(int, filter(None, sizes.split(",")))) + 7) // 8
    return total


def _sequence(computations: dict[str, list[Instruction]], name: str) -> Sequence:
    kernels, inner = [], []
    for op in computations[name]:
        if op.opcode == "while":
            called = (re.search(rf"\b{x}=%?([\w.\-]+)", op.rest)[1] for x in CALLS)
            body, condition = (_sequence(computations, part) for part in called)
            known = TRIPS.search(op.rest)
            trips = int(known[1]) if known else None
            inner.append(Loop(op.name, body, condition, trips))
        elif op.opcode in ("call", "conditional"):
            called = CALLED.findall(op.rest) if op.opcode == "call" else []
            for several, single in BRANCHES.findall(op.rest):
                called += (several or single).split(",")
            for part in called:
                part = _sequence(computations, part.strip().lstrip("%"))
                kernels += part.kernels
                inner += part.loops
        elif op.opcode not in FREE and not op.opcode.endswith(("-done", "-update")):
            kernels.append(_kernel(computations, op))
    return Sequence(tuple(kernels), tuple(inner))


def _kernel(computations: dict[str, list[Instruction]], op: Instruction) -> Kernel:
    described, moves = op, op.opcode in MOVING
    if op.opcode == "fusion" and (called := CALLED.search(op.rest)):
        within = computations[called[1]]
        moves = {inner.opcode for inner in within} <= MOVING
        # From JAX 0.11 on a custom call is fused with the slices that it reads.
        described = next((x for x in within if x.opcode == "custom-call"), op)
    target = re.search(r'custom_call_target="([^"]*)"', described.rest)
    source = re.search(r'op_name="([^"]*)"', described.rest)
    target, source = (match[1] if match else "" for match in (target, source))
    return Kernel(op.name, op.opcode, target, array_bytes(op.shape), moves, source)
