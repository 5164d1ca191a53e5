"""Every claim with its verdict: `claims(records)`, in the order of claims.json.

claims.json has what each paper claims, in our words; TESTS has who judges it.
"""

import json
from pathlib import Path
from typing import NamedTuple

from experiments.records.table import Records
from experiments.report.claims import alpha, lesson, wagner, walltime
from experiments.report.claims.verdicts import Outcome

STATED = Path(__file__).with_name("claims.json")


class Claim(NamedTuple):
    """`where` and `statement` are the paper's; `outcome` is ours."""

    key: str
    paper: str
    name: str
    where: str
    statement: str
    outcome: Outcome


TESTS = {
    "closed_forms": alpha.closed_forms,
    "capacity": alpha.capacity,
    "sharpness": alpha.sharpness,
    "argmax_speed": walltime.argmax_speed,
    "trivial_alpha": alpha.trivial_alpha,
    "small_cost": walltime.small_cost,
    "serial_runs": alpha.serial_runs,
    "equation_1": alpha.equation_1,
    "theorem": walltime.theorem,
    "predictor": walltime.predictor,
    "some_gamma": walltime.some_gamma,
    "minimum": walltime.minimum,
    "trivial_speed": walltime.trivial_speed,
    "identical": alpha.identical,
    "memory": alpha.memory,
    "figure_1": alpha.figure_1,
    "acceleration": walltime.acceleration,
    "chen_speed": lesson.chen_speed,
    "chen_law": lesson.chen_law,
    "chen_filters": lesson.chen_filters,
    "chen_tokens": lesson.chen_tokens,
    "chen_models": lesson.chen_models,
    "wagner_exact_time": wagner.exact_time,
    "wagner_exact_output": wagner.exact_output,
    "wagner_sigmoid_time": wagner.sigmoid_time,
    "wagner_sigmoid_loss": wagner.sigmoid_loss,
    "wagner_same_share": wagner.same_share,
    "wagner_memory": wagner.memory,
    "wagner_scales": wagner.scales,
    "wagner_half_precision": wagner.half_precision,
    "wagner_bandwidth": wagner.bandwidth,
    "wagner_speech": wagner.speech,
    "lesson_limit": lesson.lesson_limit,
    "lesson_harmless": lesson.lesson_harmless,
    "lesson_length": lesson.lesson_length,
    "lesson_tokens": lesson.lesson_tokens,
    "lesson_law": lesson.lesson_law,
    "lesson_words": lesson.lesson_words,
    "lesson_results": lesson.lesson_results,
}


def claims(records: Records) -> list[Claim]:
    """Every claim of claims.json, judged by the test of its key."""
    papers = json.loads(STATED.read_text("utf-8"))
    return [
        Claim(key, paper, *words, TESTS[key](records))
        for paper, stated in papers.items()
        for key, words in stated.items()
    ]
