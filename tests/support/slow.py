"""Marks cases that only the slow tests run: other cases of the same test are fast, and
each of them still tests what the test is for."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def mark_slow_unless(is_fast: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Returns the parameters of a test, marked as slow where `is_fast` is false.

    Args:
      is_fast: whether a case runs among the fast tests too.
      cases: values, or tuples of the values of several arguments.
    """
    params = []
    for case in cases:
        values = case if type(case) is tuple else (case,)
        marks = () if is_fast(case) else pytest.mark.slow
        params.append(pytest.param(*values, marks=marks))
    return params


def mark_slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Returns the parameters of a test, of which only the first `count` are fast."""
    cases = list(cases)
    return mark_slow_unless(lambda case: case in cases[:count], cases)
