"""Records of every folder of which the claims can be tested, and all of them hold."""

from experiments import catalogue
from experiments.report import details, laws
from experiments.report.claims import subjects
from specjax.theory import closed_forms

GAMMA = [0, 1, 2, 3, 5, 8]
ALPHA = {("unigram", 0): 0.2, ("unigram", 1): 0.1, ("bigram", 0): 0.4}
ALPHA |= {("bigram", 1): 0.3, ("small", 0): 0.7, ("small", 1): 0.6}
ALPHA |= {("base", 0): 0.8, ("base", 1): 0.7, ("large", 0): 0.9, ("large", 1): 0.8}


def record(folder, row, measured):
    device = {"platform": "cpu", "kind": "cpu", "count": 1, "host_cores": 2}
    origin = {"commit": "0123456789abcdef", "dirty": False, "dtype": "float32"}
    origin |= {"date": "2026-01-02T03:04:05+00:00", "versions": {"jax": "0.1"}}
    origin |= {"module": "experiments.papers.leviathan.closed_forms", "inputs": {}}
    origin |= {"goldens": 1, "seed": 0, "seconds": 1.0, "config": "", "typed": []}
    origin |= {"device": device}
    kind = "law" if folder in laws.FOLDERS else "count"
    same = {"scale": "laptop", "kind": kind, "published": None, "provenance": origin}
    return {"row": row, "table": folder, "measured": measured, **same}


def around(x):
    return [0.99 * x, 1.01 * x]


def of_words(function, other, name):
    """What a row of kinds says of three kinds of words."""
    shares = {"function word": function, "other word": other, "name": name}
    cells = []
    for label, x in shares.items():
        same = {name: [x, *around(x)] for name in ("alpha", "expected", "more")}
        told = {"label": label, "share": 0.3, "kept": [x], "count": 9, "texts": 3}
        cells.append(told | same)
    groups = {name: [] for name in details.KINDS}
    return {"groups": groups | {"kind": cells}}


def walltime(draft, heat, batch):
    """A record of folder table2 with v = 1 and no overhead, where Theorem 3.8 holds."""
    alpha, c = ALPHA[draft, heat], 0.01
    speed = [closed_forms.walltime_factor(alpha, g, c) for g in GAMMA]
    tokens = [closed_forms.expected_tokens(alpha, g) for g in GAMMA]
    at = max(range(len(GAMMA)), key=speed.__getitem__)
    measured = {"target": "large", "draft": draft, "temperature": float(heat)}
    measured |= {"batch": batch, "texts": 30, "tokens": 2880, "alpha": alpha}
    measured |= {"alpha_se": 0.001, "gamma": GAMMA, "c": [None, *[c] * 5]}
    measured |= {"v": [1.0] * 6, "overhead": [0.0] * 6, "target_ms": 1.0}
    measured |= {"c_ci": [None, *[around(c)] * 5], "v_ci": [around(1.0)] * 6}
    measured |= {"step_ms": [1.0] * 6, "prefill_ms": [0.0] * 6, "residual": [0.0] * 6}
    measured |= {"predicted_tokens_per_call": tokens, "best_residual": 0.0}
    measured |= {"steps": [2880 / t for t in tokens], "steps_se": [0.0] * 6}
    measured |= {"predicted_steps": measured["steps"], "overhead_se": [0.01] * 6}
    predicted = [None, *speed[1:]]
    measured |= {"predicted_ci": [None, *[around(s) for s in speed[1:]]]}
    measured |= {"tokens_per_call": tokens, "exp": speed, "predicted": predicted}
    measured |= {"speedup": speed}
    measured |= {"speedup_ci": [around(s) for s in speed]}
    measured |= {"best_gamma": GAMMA[at], "best_c": c, "best_v": 1.0}
    measured |= {"best_overhead": 0.0, "best_exp": speed[at]}
    measured |= {"best_tokens_per_call": tokens[at], "best_speedup": speed[at]}
    measured |= {"best_predicted": speed[at], "best_speedup_ci": around(speed[at])}
    measured |= {"same_greedy_texts": 30} if heat == 0 else {}
    return record("table2", f"{draft}_t{heat}_b{batch}", measured)


def acceptance(family, draft, heat):
    alpha = ALPHA[draft, heat]
    tokens = closed_forms.expected_tokens(alpha, 3)
    estimate = {"value": alpha, "se": 0.001}
    estimates = dict.fromkeys(("rao_blackwell", "counts", "implied_alpha"), estimate)
    estimates |= {"chen_r": {"value": tokens / 4, "se": 0.001}}
    measured = {"alpha": alpha, "alpha_se": 0.001, "tokens_per_call": tokens}
    measured |= {"target": "large"}
    measured |= {"protocol": {"gamma": 3}, "sequences": 128, "tokens": 1000}
    measured |= {"decoded_tokens": 1000, "target_calls": 1000 / tokens}
    measured |= {"exactness": "exact law", "draft_regime": "sampled law"}
    measured |= {"same_greedy_texts": 128} if heat == 0 else {}
    measured |= {"estimates": estimates}
    return record("table3", f"{family}_{draft}_t{heat}", measured)


def by_chens_protocol():
    """`measured` of a row where r tells the speed: a call on K + 1 tokens costs one."""
    r, K, c = 0.8, 4, 0.125
    speed = closed_forms.chen_speedup(r, K, c, 1.0)
    it = {"target": "code_target", "draft": "code_small", "K": K}
    it |= {"task": "a/humaneval.jsonl", "temperature": 0.8, "r": r, "r_se": 0.001}
    it |= {"tokens_per_call": r * (K + 1)}
    it |= {"t_draft_ms": c, "t_target_ms": 1.0, "t_score_ms": 1.0, "metric": "pass1"}
    it |= {"pass1_alone": 0.5, "pass1_speculative": 0.5}
    it |= {"theoretical_speed": speed, "speed": speed}
    return it | {"speed_interval": around(speed)}


def verification():
    """`measured` of rows of Wagner's folders where all that they claim holds."""
    it = {"target": "large", "draft": "small", "rounds": 16, "methods": ["exact"]}
    times = {"baseline": 90.0, "exact": 70.0, "sigmoid_1e4": 20.0}
    for method, us in times.items():
        it |= {f"us_{method}": us, f"us_{method}_sd": 1.0, f"calls_{method}": 50}
        it |= {f"acceptance_{method}": 0.5, f"acceptance_se_{method}": 0.001}
        it |= {f"rouge1_{method}": 0.3, f"rouge1_se_{method}": 0.001}
        it |= {f"peak_kib_{method}": us}
    it |= {"rouge1_always": 0.1, "rouge1_se_always": 0.001, "guarantees": {"exact": ""}}
    for scale in ("1e3", "1e4"):
        it |= {f"step_reduction_sigmoid_{scale}": 60.0, f"us_sigmoid_{scale}_sd": 1.0}
    for name, kept in (("1e5", 0.5), ("1e5_half", 0.0)):
        it |= {f"acceptance_sigmoid_{name}": kept}
        it |= {f"acceptance_se_sigmoid_{name}": 0.001}
    return it


def everything():
    """Records of every folder, by folder and row."""
    several = [acceptance(*place) for place in subjects.places()]
    pairs = [("small", 1), ("small", 8), ("bigram", 1)]
    several += [walltime(draft, heat, b) for heat in (0, 1) for draft, b in pairs]
    rows = {("table1", line.row): {} for line in catalogue.named("table1").lines}
    rows["figure1", "gamma_7"] = {"gamma": 7, "tokens": 48, "target_calls": 16}
    counts = {"draft": "small", "gamma": 3, "batch": 1, "operations_factor": 1.5}
    counts |= {"bytes_factor": 0.5, "bytes_factor_expected": 0.4}
    rows["operations", "small_g3"] = counts | {"alpha": 0.6, "alpha_se": 0.01}
    law = {"exact": 2, "total": 2, "worst_float64": 2e-16, "cases": [{"rule": "token"}]}
    rows["certificate", "token"] = law
    laws = {"tv_token_cut": 1e-16, "tv_lesson": 1e-16, "rules": []}
    rows["conformance", "rules"] = laws
    rows["chen_data", "humaneval_code"] = by_chens_protocol()
    rows["kinds", "docs_t1"] = of_words(0.9, 0.7, 0.4)
    best = {"alpha": [0.5, 0.7, 0.8, 0.9], "best_gamma": [2, 3, 5, 10]}
    rows["figure3", "c_0.01"] = best
    rows |= {(f"wagner_{it}", "docs_small"): verification() for it in ("text", "scale")}
    several += [record(*place, measured) for place, measured in rows.items()]
    records = {}
    for each in several:
        records.setdefault(each["table"], {})[each["row"]] = each
    for line in catalogue.named("table1").lines:
        records["table1"][line.row]["measured"][line.quantity] = line.published
    for line in (line for table in catalogue.tables() for line in table.lines):
        if line.row in records.get(line.folder, {}) and "@" not in line.quantity:
            measured = records[line.folder][line.row]["measured"]
            measured.setdefault(line.quantity, 1.0)
    return records
