"""What changes the fingerprint of a measurement, and what leaves it as it was.

Every tree is a few files; `measure` of experiments/one.py is what its config names.
"""

from pathlib import Path

import pytest

from experiments.records import fingerprint, loaded, records
from experiments.records.definitions import Place
from specjax.bench import jsonl

ROOT = Path(__file__).resolve().parents[3]
ONE = """
import jax.numpy as jnp
from specjax import rates
from specjax.rates import Rate as Chosen

LIMITS = {"low": 1}
LIMITS |= {"high": 2}


def build(limit=3):
    return measure, LIMITS, limit


def measure(x):
    return jnp.sum(rates.double(x)) + Chosen(x).twice()


def unreached():
    return 1
"""
RATES = """
import jax

jax.config.update("jax_enable_x64", True)
FACTOR = 2


def keep(f):
    return f


@keep
def double(x, by=FACTOR):
    from specjax import deep

    return by * x + deep.even(x)


class Rate:
    x: int

    def __init__(self, x):
        self.x = x

    def twice(self):
        return double(self.x)
"""
DEEP = """
def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    less, none = n - 1, 0
    if n < none:
        raise ValueError("below 0")
    return n != none and even(less)
"""
FILES = {
    "experiments/one.py": ONE,
    "specjax/rates.py": RATES,
    "specjax/deep.py": DEEP,
    "specjax/__init__.py": "",
}
CONFIG = """from __gin__ import dynamic_registration
from experiments import one as rows

# Parameters for rows.build:
rows.build.limit = 3

"""
ORIGIN = {"module": "experiments.one", "config": CONFIG, "reaches": [], "inputs": {}}
PLAIN = ORIGIN | {"config": ""}  # all that the module calls


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """(files, their origin) -> their fingerprint, each in a tree of its own."""

    def of(files, origin=ORIGIN):
        root = tmp_path_factory.mktemp("tree")
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert not origin["module"] or fingerprint.reached([origin["module"]], root)
        return fingerprint.of(origin, root)

    return of


@pytest.fixture(scope="module")
def unchanged(of):
    return of(FILES)


def edited(*edits, files=FILES):
    """The files with (file, old, new) of each edit put in."""
    files = dict(files)
    for name, old, new in edits:
        assert old in files[name], (name, old)
        files[name] = files[name].replace(old, new)
    return files


row, rates, deep = "experiments/one.py", "specjax/rates.py", "specjax/deep.py"
MOVED = edited(
    (row, "from specjax import rates\n", "from specjax.sums import twofold\n"),
    (row, "from specjax.rates import Rate as Chosen", "import specjax.rates"),
    (row, "Chosen(x)", "specjax.rates.Rate(x)"),
    (row, "rates.double", "twofold"),
    (rates, "@keep\ndef double(x, by=FACTOR):", "def none(x):"),
    (rates, "double(self.x)", "sums.twofold(self.x)"),
    (rates, "import jax\n", "import jax\nfrom . import sums\n"),
)
MOVED["specjax/sums.py"] = """
from specjax import rates as other
from specjax.deep import even as is_even

@other.keep
def twofold(x, by=other.FACTOR):
    return by * x + is_even(x)
"""
SPLIT = edited(
    (row, "from specjax import rates\n", "from specjax import rates, tall\n"),
    (row, "Chosen(x)", "tall.Rate(x)"),
    (row, "from specjax.rates import Rate as Chosen\n", ""),
)
SPLIT[rates], kind = RATES.split("class Rate")
SPLIT["specjax/tall.py"] = "from specjax.rates import double\n\n\nclass Rate" + kind
THROUGH = edited(
    (row, "from specjax import rates", "from specjax import face as rates")
)
THROUGH["specjax/face/__init__.py"] = "from ..rates import double\n"
SAME = {
    "comment": edited((rates, "    return by", "    # why\n    return  by")),
    "docstring": edited((deep, "(n):\n", '(n):\n    """Whether."""\n')),
    "docstring of a module": edited((rates, "\nimport jax", '"""R."""\nimport jax')),
    "annotation": edited((rates, "x: int", "x: float"), (deep, "(n)", "(n: int)")),
    "unreached definition": edited((row, "return 1", "return 2")),
    "unreached module": FILES | {"specjax/new.py": "x = 1"},
    "moved definition": MOVED,
    "split module": SPLIT,
    "re-exported": THROUGH,
    "renamed definition": edited((rates, "FACTOR", "TIMES")),
    "renamed class": edited(
        (rates, "class Rate", "class R"), (row, "import Rate", "import R")
    ),
    "renamed circle": edited(
        (deep, "odd", "two"), (deep, "even", "pair"), (rates, "deep.even", "deep.pair")
    ),
    "renamed alias": edited((row, "jnp", "numpy"), (row, "Chosen", "Kind")),
    "outside name by another way": edited(
        (row, "import jax.numpy as jnp", "from jax import numpy as jnp")
    ),
    "reordered": FILES | {deep: "\n\n\n".join(reversed(DEEP.split("\n\n\n")))},
    "renamed variable": edited((deep, "less", "below")),
    "what an error says": edited((deep, '"below 0"', 'f"{n} is below 0"')),
    "main": edited(
        (row, "LIMITS = ", "if __name__ == '__main__':\n    x()\nLIMITS = ")
    ),
}
OTHER = {
    "constant": edited((rates, "FACTOR = 2", "FACTOR = 3")),
    "part of a constant": edited((row, '"high": 2', '"high": 3')),
    "default": edited((rates, "by=FACTOR", "by=2")),
    "operator": edited((rates, "by * x", "by / x")),
    "decorator": edited((rates, "@keep\n", "")),
    "what a decorator does": edited((rates, "return f", "return 2 * f")),
    "indirect": edited((deep, "n - 1, 0", "n - 1, 1")),
    "another variable": edited((deep, "even(less)", "even(none)")),
    "argument": edited((deep, "even(n):", "even(m):")),
    "another error": edited((deep, "ValueError", "TypeError")),
    "method": edited((rates, "double(self.x)", "-double(self.x)")),
    "field": edited((rates, "x: int", "y: int")),
    "effect": edited((rates, "True", "False")),
    "effect of a package": FILES | {"specjax/__init__.py": "print(1)\n"},
    "outside name": edited((row, "jnp.sum", "jnp.mean")),
    "one definition for another": edited((row, "rates.double", "rates.keep")),
}


@pytest.mark.parametrize("name", SAME)
def test_what_computes_nothing_counts_for_nothing(of, unchanged, name):
    assert SAME[name] != FILES
    assert of(SAME[name]) == unchanged


@pytest.mark.parametrize("name", OTHER)
def test_what_is_reached_counts(of, unchanged, name):
    assert of(OTHER[name]) != unchanged


def test_the_measuring_module_may_be_moved(of, unchanged):
    files = dict(FILES)
    files["experiments/rows/two.py"] = files.pop(row)
    config = CONFIG.replace("experiments import one", "experiments.rows import two")
    moved = {"module": "experiments.rows.two"}
    assert of(files, ORIGIN | moved | {"config": config}) == unchanged
    whole = of(FILES, PLAIN)  # no config: all of the module
    assert whole == of(files, PLAIN | moved)
    assert whole != of(edited((row, "return 1", "return 2")), PLAIN)


def test_a_module_as_a_value_counts_with_all_of_it(of):
    text = "from specjax import gpt, t5\ndef measure(k):\n    return KINDS[k].build()"
    text += '\nKINDS = {"gpt": gpt, "t5": t5}\n'
    model = "def build():\n    return helped()\n\n\ndef helped():\n    return %d\n"
    files = {row: text, "specjax/gpt.py": model % 1, "specjax/t5.py": model % 2}
    first = of(files, PLAIN)
    moved = files | {"specjax/help.py": "def help():\n    return 1\n"}
    moved["specjax/gpt.py"] = (
        "from specjax.help import help\n\n\ndef build():\n    return help()\n"
    )
    assert of(moved, PLAIN) == first
    changes = ("helped():\n    return 1", "helped():\n    return 3"), ("build", "make")
    for old, new in changes:
        assert of(edited(("specjax/gpt.py", old, new), files=files), PLAIN) != first
    swapped = edited((row, '"gpt": gpt, "t5": t5', '"gpt": t5, "t5": gpt'), files=files)
    assert of(swapped, PLAIN) != first


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        # Hidden in the list alone; in all of a function; not by a field's own name.
        ("def measure(xs):\n    return [rates for rates in xs], rates.FACTOR", True),
        ("def measure(xs):\n    rates = xs\n    return rates.FACTOR", False),
        ("class One:\n    rates = rates.FACTOR", True),
    ],
)
def test_a_name_counts_where_nothing_hides_it(of, body, counts):
    files = FILES | {row: f"from specjax import rates\n\n\n{body}\n"}
    change = edited((rates, "FACTOR = 2", "FACTOR = 3"), files=files)
    assert (of(change, PLAIN) != of(files, PLAIN)) == counts


def test_what_is_chosen_by_name_is_said(of):
    files = FILES | {"specjax/verifiers/__init__.py": "def named(name):\n    ...\n"}
    files[row] = "from specjax import verifiers\nRULE = verifiers.named('token')\n"
    files["specjax/verifiers/token.py"] = "verifier = 1\nelse_ = 1\n"
    origin = PLAIN | {"reaches": ["specjax.verifiers.token:verifier"]}
    first = of(files, origin)
    assert of(files, origin | {"reaches": []}) != first
    other = edited(("specjax/verifiers/token.py", "r = 1", "r = 2"), files=files)
    assert of(other, origin) != first
    table = files | {"specjax/verifiers/__init__.py": "named = {}.get\nNAMES = 1\n"}
    table["specjax/verifiers/token.py"] = "verifier = 1\nelse_ = 2\n"
    assert of(table, origin) == first


def test_inputs_count_by_name_and_content(of):
    path = (
        'from pathlib import Path\nDATA = Path(__file__).with_name("a") / "x.jsonl"\n'
    )
    origin = PLAIN | {"inputs": {"a/x.jsonl": "1"}}
    first = of({row: path}, origin)
    elsewhere = path.replace('with_name("a")', "parent")
    assert of({row: elsewhere}, origin | {"inputs": {"b/x.jsonl": "1"}}) == first
    assert of({row: path}, origin | {"inputs": {"a/x.jsonl": "2"}}) != first
    assert of({row: path}, origin | {"inputs": {"a/y.jsonl": "1"}}) != first


def test_comments_of_compiled_sources_count_for_nothing(tmp_path):
    path, digests = tmp_path / "thin.cc", []
    for text in ("int x = 1;", "// why\nint x = 1;  // so\n", "int x = 2;"):
        path.write_text(text)
        digests.append(fingerprint.digest(path))
    assert digests[0] == digests[1] != digests[2]


def test_what_no_reader_can_tell_is_refused(of):
    with pytest.raises(ValueError, match=r"experiments.*specjax\.rates"):
        of(edited((row, "import rates", "import rates\nfrom specjax.rates import *")))
    with pytest.raises(ValueError, match=r"specjax\.rates has no triple"):
        of(edited((row, "rates.double", "rates.triple")))


def test_every_record_reaches_what_is_there():
    """Its module, and all that its config calls; and it says which rule it chose, and
    which models it loaded."""
    for path in sorted((ROOT / "results").glob("*.jsonl")):
        for record in {record["row"]: record for record in jsonl.read(path)}.values():
            origin = record["provenance"]
            names = [*fingerprint.entries(origin), origin["module"]]
            assert len(fingerprint.reached(names)) > 10, record["row"]
            begun = fingerprint.reached(fingerprint.entries(origin))
            rules = [x for x in origin["reaches"] if x.startswith("specjax.verifiers")]
            chosen = Place("specjax.verifiers", "named") in begun
            assert chosen == bool(rules), record["row"]
            if not records.stale(record):
                weights = [ROOT / name for name in origin["inputs"] if "zoo/" in name]
                loads = loaded.reaches(weights)
                assert {*loads} <= {*origin["reaches"]}, record["row"]
