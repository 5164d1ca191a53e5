"""The hash of what a definition says, and of what all that it refers to says.

A definition is hashed with the hashes of those that it refers to in the places of their
names. Definitions that refer to each other in a circle are hashed together, each with
the circle numbered in the order in which one meets it from there. So neither names nor
files nor the order in them count.
"""

import hashlib
from collections.abc import Iterable, Mapping

from experiments.records.definitions import Place, Tree


def reach(tree: Tree, entries: Iterable[Place]) -> set[Place]:
    """All definitions that some lead to, and the effects of the modules they are in."""
    reached, waiting, modules = set(), list(entries), set()
    while waiting:
        place = waiting.pop()
        if place in reached:
            continue
        reached.add(place)
        waiting += tree.places(place)
        if place.module not in modules:
            modules.add(place.module)
            waiting += tree.effects(place.module)
    return reached


def learn(tree: Tree, places: Iterable[Place], known: dict[Place, str]) -> None:
    """Adds the hash of each definition, and of all that they refer to, to `known`."""
    for circle in circles(tree, places, known):
        known |= {place: hashed(tree, place, circle, known) for place in circle}


def hashed(tree: Tree, first: Place, circle: set[Place], known: dict) -> str:
    """One definition of a circle, or one on its own; known: all that it refers to."""
    order, whole = [first], hashlib.sha256()
    for place in order:  # it grows
        for word in tree.words(place):
            if isinstance(word, Place) and word in circle:
                if word not in order:
                    order.append(word)
                word = f"#{order.index(word)}"
            elif isinstance(word, Place):
                word = known[word]
            whole.update(f"{len(word)} {word}\n".encode())
        whole.update(b"\n")
    return whole.hexdigest()


def circles(
    tree: Tree, places: Iterable[Place], known: Mapping[Place, str]
) -> list[set[Place]]:
    """Definitions that lead to each other, each circle after those that it leads to;
    without those that are known, with all that they lead to.

    Tarjan (1972), without recursion: chains are long.
    """
    index: dict[Place, int] = {}
    low: dict[Place, int] = {}
    stack: list[Place] = []
    done: list[set[Place]] = []
    closed: set[Place] = set()
    for start in places:
        path = (
            []
            if start in index or start in known
            else [(start, iter(tree.places(start)))]
        )
        while path:
            place, rest = path[-1]
            if place not in index:
                index[place] = low[place] = len(index)
                stack.append(place)
            for to in rest:
                if to in known:
                    continue
                if to not in index:
                    path.append((to, iter(tree.places(to))))
                    break
                if to not in closed:
                    low[place] = min(low[place], low[to])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[place])
                if low[place] == index[place]:
                    at = stack.index(place)
                    done.append(set(stack[at:]))
                    closed |= done[-1]
                    del stack[at:]
    return done
