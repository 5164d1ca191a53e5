"""Texts of a small bundled pair, decoded by one process or by several on one mesh.

Run as a module it prints them as JSON: --distributed or "", and a mesh.
"""

import json
import sys

from specjax import drafts, pretrained
from specjax.drafts.placement import place_pair
from specjax.measure.texts import Protocol, speculate
from specjax.prompts import Prompts
from specjax.runtime import hosts, mesh
from tests.support.settings import make

STARTS = [[1, 5], [1, 9, 7], [1], [1, 300, 4, 2]]


def main(distributed: str, layout: str) -> None:
    with hosts.join(distributed or None), mesh.using(layout):
        target, draft = drafts.pair(pretrained.load("code_small"), "bigram")
        sizes = dict(gamma=3, new_tokens=8, batch=4)
        protocol = make(Protocol, task="starts", temperature=1.0, **sizes)
        calls = speculate(place_pair(target, draft), Prompts(STARTS), 4, protocol)
        found = [row.tolist() for row in calls.texts], calls.accepted.tolist()
        if hosts.is_first():
            json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
