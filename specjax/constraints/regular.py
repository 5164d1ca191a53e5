"""Regular expressions as automata over bytes.

outlines-core writes the automaton (its `Index` over a vocabulary of single bytes, by
Rust's regex-automata); here it is cut to the states from which a text can end, and
minimized. Axes: S states, 256 bytes.
"""

import re
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specjax.runtime.console import shorten

NO_STATE = -1
# After a text's last byte, for the library: its automata drop the alternatives that
# rank below one that has matched, as a search for the first match does. As no text has
# this byte, all alternatives live until the whole text is there.
AFTER = 0
MOST_STATES = 50_000
ROUNDS = 256
MISSING = (
    "a {} needs the libraries outlines-core and llguidance: pip install"
    " 'specjax[constraints]'"
)


class ByteAutomaton(NamedTuple):
    """A deterministic automaton over bytes; state 0 is the first.

    Attributes:
      step: the state after each byte, [S, 256] int32, `NO_STATE` where no text of the
        language goes on with it.
      accepts: whether a text may end in a state, [S] bool.
    """

    step: np.ndarray
    accepts: np.ndarray


def compile_bytes(
    regex: str, *, what: str = "regex", space_before: bool = False
) -> ByteAutomaton:
    """Returns an automaton for the texts that a regular expression matches, the
    smallest one unless that takes long.

    No text has the byte 0.

    Args:
      regex: in the syntax of Rust's regex crate; it is matched by whole texts.
      what: the name of what is compiled, for messages.
      space_before: whether one more space may stand before a text.

    Raises:
      ValueError: the library is missing, or cannot read the expression; no text
        matches; there are too many states.
    """
    library = outlines_core(what)
    words = {bytes([byte]): [byte] for byte in range(256)}
    space = " ?" if space_before else ""
    try:
        if closes_unopened(regex):  # the group below would be closed by it
            library.Index(regex, library.Vocabulary(256, words))
        index = library.Index(
            rf"{space}(?:{regex})\x{AFTER:02x}", library.Vocabulary(256, words)
        )
    except ValueError as error:
        raise ValueError(explain(regex, str(error), what)) from None
    step, accepts = read_index(index)
    if len(step) > MOST_STATES:
        raise ValueError(
            f"{what} is too large, {len(step):,} states of at most {MOST_STATES:,}:"
            " bound its repetitions by less, or take + or * for them"
        )
    return minimize(trim(ByteAutomaton(step, accepts)))


def closes_unopened(regex: str) -> bool:
    """Returns whether a group seems to close that was not opened.

    Brackets within classes and behind backslashes are not counted. Those in comments of
    the verbose mode are, so that the library has to decide."""
    groups = classes = 0
    for each in re.findall(r"\\.|\[\^?\]?|[]()]", regex, re.DOTALL):
        if each[0] == "[":
            classes += 1  # one may stand in another
        elif each == "]":
            classes = max(classes - 1, 0)
        elif each in "()" and not classes:
            groups += 1 if each == "(" else -1
        if groups < 0:
            return True
    return False


def outlines_core(what: str) -> ModuleType:
    """Returns the library. Raises ValueError where it is missing."""
    try:
        import outlines_core
    except ImportError:
        raise ValueError(MISSING.format(what)) from None
    return outlines_core


def explain(regex: str, error: str, what: str) -> str:
    """Returns in one line why the library refuses an expression."""
    shown = shorten(repr(regex))
    if "anchored" in error or "no transitions from state" in error:
        return (
            f"{what} {shown} matches no whole text: leave ^, $ and \\b out, because it"
            " is matched from the first byte to the last"
        )
    return (
        f"{what} {shown} cannot be read: close each bracket, and write no look-around"
        " and no back-reference"
    )


def read_index(index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tables `step` and `accepts` of an index of the library, renumbered so
    that state 0 is the first."""
    edges, first = index.get_transitions(), index.get_initial_state()
    number = {state: i for i, state in enumerate([first, *(edges.keys() - {first})])}
    step = np.full((len(number), 256), NO_STATE, np.int32)
    for state, after in edges.items():
        for byte, following in after.items():
            if byte < 256 and following in number:
                step[number[state], byte] = number[following]
    whole = np.zeros(len(number) + 1, bool)  # the last is of NO_STATE
    whole[[number[state] for state in index.get_final_states()]] = True
    accepts = whole[step[:, AFTER]]  # AFTER may be a byte of a class too, and no end
    step[:, AFTER] = NO_STATE
    return step, accepts


def trim(automaton: ByteAutomaton) -> ByteAutomaton:
    """Returns the automaton of the same texts with only the states that are reached
    from the first, and from which a text can end; at least the first."""
    step, accepts = automaton
    lives = find_live(step, accepts)
    step = np.where(lives[step] & (step != NO_STATE), step, NO_STATE)
    reached = np.zeros(len(step), bool)
    waiting = np.array([0])
    while waiting.size:
        reached[waiting] = True
        after = np.unique(step[waiting])
        waiting = after[(after != NO_STATE) & ~reached[after]]
    return select_states(ByteAutomaton(step, accepts), np.flatnonzero(reached))


def find_live(step: np.ndarray, accepts: np.ndarray) -> np.ndarray:
    """Returns [S] bool, the states from which some steps lead to a state that accepts.

    step: states [S, C], `NO_STATE` where there is none."""
    lives = accepts.copy()
    while True:
        more = lives | (lives[step] & (step != NO_STATE)).any(axis=1)
        if (more == lives).all():
            return lives
        lives = more


def select_states(automaton: ByteAutomaton, kept: np.ndarray) -> ByteAutomaton:
    """Returns the automaton with these states alone, in this order."""
    number = np.full(len(automaton.step) + 1, NO_STATE, np.int32)  # and of NO_STATE
    number[kept] = np.arange(len(kept))
    return ByteAutomaton(number[automaton.step[kept]], automaton.accepts[kept])


def minimize(automaton: ByteAutomaton) -> ByteAutomaton:
    """Returns the automaton of the same texts with the fewest states (Moore, 1956).

    States are told apart until those that are left alike have the same next states. It
    takes as many rounds as the longest bounded repetition has bytes: after ROUNDS the
    automaton is returned as it is.
    """
    alike = np.unique(automaton.step, axis=1)  # bytes with the same column are one
    group = automaton.accepts.astype(np.int32)
    count = 0
    for _ in range(ROUNDS):
        after = np.where(alike == NO_STATE, NO_STATE, group[alike])
        rows = np.ascontiguousarray(np.column_stack([group, after]))
        each = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))
        _, first, group = np.unique(each, return_index=True, return_inverse=True)
        group = group.reshape(-1).astype(np.int32)
        if len(first) == count:
            break
        count = len(first)
    else:
        return automaton
    order = np.argsort(first, kind="stable")  # of the groups, that of state 0 first
    number = np.empty(count, np.int32)
    number[order] = np.arange(count)
    group, first = number[group], first[order]
    step = automaton.step[first]
    return ByteAutomaton(
        np.where(step == NO_STATE, NO_STATE, group[step]).astype(np.int32),
        automaton.accepts[first],
    )
