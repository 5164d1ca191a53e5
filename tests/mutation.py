"""Lists faults that the tests must reject, and runs them: `python -m tests.mutation`.

Writes results/mutants.md. Five lists: wrong verdicts, by the certificate; wrong noise,
by the test of its independence; wrong names of noise, by the record of keys; wrong
keys, drafts and batches, by sampled texts; wrong heads, by laws that are known.
"""

from collections.abc import Callable
from pathlib import Path

from tests.support import head_mutants, mutants, sampled_mutants
from tests.support.key_mistakes import MISTAKES
from tests.support.mutants import Mutant

PATH = Path(__file__).resolve().parents[1] / "results" / "mutants.md"
NEVER = 1e-6  # p-value of a sampled test, or of one of noise, that must fail
HEAD = """# Mutants: what the tests must reject

This page lists broken versions of the code that the tests must reject. Each is near to
what is right, most are mistakes that somebody has made, and a test fails if one of them
passes. `python -m tests.mutation` writes this page again.

## Wrong verdicts, caught by the certificate

Total variation is that of three tokens from the target's law, enumerated; 0 is a mutant
that only another check sees, "void" one whose verdict is not constant on the cells of
its noise, so that nothing can be enumerated. The checks are in
`specjax/exactness/certify.py`.

| rule | what is wrong | total variation | checks that fail |
| --- | --- | --- | --- |
"""
NOISE = f"""
## Wrong noise, caught by the test of its independence

`specjax.exactness.certify.noise_p_value`, below {NEVER:g} for each.

| rule | what is wrong |
| --- | --- |
"""
NAMES = """
## Wrong names of noise, caught by the record of keys

`specjax.exactness.draws` finds for each a key that serves two draws, or that no draw is
seen.

| what is wrong |
| --- |
"""
SAMPLED = f"""
## Wrong keys, drafts and batches, caught by sampled texts

A G-test of the real loop's texts, below {NEVER:g} for each.

| rule | what is wrong |
| --- | --- |
"""
HEADS = """
## Wrong heads, caught by laws that are known

Heads that copy the hidden states of a small target draft by laws that are known
(`tests/support/recurrent.py`). Each mistake gives some drafted token a law that is off
by 0.004 or more, where right heads are within 0.0002 (`tests/drafters/test_heads.py`).

| what is wrong | Medusa | blockwise | EAGLE-1 and 2 | EAGLE-3 |
| --- | --- | --- | --- | --- |
"""
SEEN, CANNOT_BE = "rejected", "not possible"


def certificate_line(mutant: Mutant) -> str:
    """Returns the line of a mutant in the page."""
    certificate = mutants.certify_mutant(mutant.name, mutant.rule, mutant.fixture)
    tv = "0" if certificate.tv < 1e-6 else f"{certificate.tv:.3f}"
    tv = "void" if "cells" in certificate.broken else tv
    name = mutant.name.replace("|", r"\|")
    return f"| {mutant.rule} | {name} | {tv} | {', '.join(certificate.broken)} |\n"


def describe(mistake: Callable) -> str:
    """Returns a mistake's docstring as a cell of a table."""
    told = " ".join(mistake.__doc__.split()).rstrip(".")
    return f"{told[0].lower()}{told[1:]} |\n"


def noise_line(noise: Callable) -> str:
    return f"| token | {describe(noise)}"


def name_lines() -> str:
    return "".join([NAMES, *(f"| {describe(each)}" for each in MISTAKES)])


def head_lines() -> str:
    """Returns a line for each mistake, with the kinds of heads that it is made in."""
    kinds: dict[str, set[str]] = {}
    for kind, name, *_ in head_mutants.MUTANTS:
        kinds.setdefault(name, set()).add(kind.removesuffix("_reduced"))
    lines = []
    for name, found in kinds.items():
        cells = [SEEN if x in found else CANNOT_BE for x in head_mutants.ALL]
        lines.append(f"| {' | '.join([name, *cells])} |\n")
    return "".join([HEADS, *lines])


def page() -> str:
    parts = [HEAD, *map(certificate_line, mutants.MUTANTS)]
    parts += [NOISE, *map(noise_line, mutants.NOISES), name_lines(), SAMPLED]
    sampled = [f"| {it.verifier} | {it.wrong} |\n" for it in sampled_mutants.MUTANTS]
    return "".join([*parts, *sampled, head_lines()])


if __name__ == "__main__":
    PATH.write_text(page(), "utf-8")
    print(f"wrote {PATH}")
