"""The best transform of a draft's law, overall and at each position: the argmax, or a
draw at some temperature.

alpha = E sum_x min(p, q') for a token drawn from q', where q is truncated and has
another temperature than p; this is lossless as long as Algorithm 1 compares with q'.
For the argmax it is E p(argmax q). A choice at every position from q alone is lossless
too: q' then depends on the prefix alone. All expectations are exact, at every token of
texts that the target wrote. Axes: M positions, A arms (transforms), N texts.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.questions.verdict import Question, bootstrap, judge, sum_by_text
from specjax import fused, probs
from specjax.measure import scoring
from specjax.measure.pairs import Pair, target_text
from specjax.measure.texts import Protocol, prompt_units
from specjax.prompts import Prompts
from specjax.types import Law, Sampling
from specjax.verifiers import lenient

QUESTION = Question(
    "Which temperature, top-k and top-p of the draft keep most, when does its argmax"
    " keep more than a draw, and what does it give to choose by q at every place?",
    "choosing place by place gains less than 1 % over the best of all fixed transforms",
    "the argmax keeps more than a draw at some places: of p = (.9, .1) and q = (.5, .5)"
    " .9 against .6",
)
HEATS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
CUTS = {
    "all": {},
    "top-k 5": {"top_k": 5},
    "top-k 20": {"top_k": 20},
    "top-p 0.8": {"top_p": 0.8},
    "top-p 0.95": {"top_p": 0.95},
}
ARGMAX = "argmax"
ARMS = [f"T_q = {heat:g}, {cut}" for heat, cut in itertools.product(HEATS, CUTS)]
ARMS = [*ARMS, ARGMAX]
BINS = 10


def arm_chances(p_law: Law, q_law: Law, drawn: Array) -> tuple[Array, Array]:
    """Returns the probability [B, T, A] that a token drafted by each of ARMS is kept,
    and max q [B, T].
    """
    del drawn
    p, logits = probs.dense(p_law), q_law.logits
    batch, vocab = p.shape[0], p.shape[-1]
    settings = [
        (heat, cut.get("top_k", vocab), cut.get("top_p", 1.0))
        for heat, cut in itertools.product(HEATS, CUTS.values())
    ]
    heats, top_k, top_p = (jnp.asarray(x) for x in zip(*settings, strict=True))

    def acceptance(setting: tuple) -> Array:
        each = (jnp.full(batch, x) for x in setting)
        q = probs.dense(probs.standardize(logits, Sampling(*each)))
        return jnp.minimum(p, q).sum(-1)

    drawn = jax.lax.map(acceptance, (heats, top_k, top_p))
    first = jnp.argmax(logits, axis=-1)
    certain = jnp.take_along_axis(p, first[..., None], axis=-1)
    most = 1 / probs.dense(lenient.relative_weights(q_law)).sum(-1)
    return jnp.concatenate([jnp.moveaxis(drawn, 0, -1), certain], -1), most


def choose_arms(sure: np.ndarray, kept: np.ndarray, other: np.ndarray) -> dict:
    """Returns the arm that each way of choosing takes at every position [M].

    The ways are the best arm of all; the argmax where max q is above a threshold, else
    one arm; and the best arm of each of BINS bins of max q.

    Args:
        sure: [M], max q.
        kept: [M, A].
        other: [M], the positions that the choice is fitted to.
    """
    edges = np.quantile(sure[other], np.linspace(0, 1, BINS + 1)[1:-1])
    place = np.searchsorted(edges, sure, side="right")
    sums = np.zeros((BINS, kept.shape[1]))
    np.add.at(sums, place[other], kept[other])
    below = np.cumsum(np.pad(sums, ((1, 0), (0, 0))), 0)
    both = below + (sums[:, -1].sum() - below[:, -1:])  # the argmax from a bin on
    least, arm = np.unravel_index(both.argmax(), both.shape)
    last = kept.shape[1] - 1
    return {
        "fixed": np.full(len(sure), sums.sum(0).argmax()),
        "switch": np.where(place < least, arm, last),
        "binned": sums.argmax(1)[place],
    }


def measure(pair: Pair, prompts: Prompts, protocol: Protocol, kept: dict) -> dict:
    """Returns alpha of every transform, and the gain of choosing at every position,
    fitted to the texts of one half of the prompts and measured on the other.

    Raises:
        ValueError: the temperature is neither 0 nor one of HEATS.
    """
    heat = protocol.decode.temperature
    if heat not in (0, *HEATS):
        raise ValueError(f"temperature must be 0 or one of {HEATS}; got {heat}")
    chosen = fused.for_protocol(*pair, protocol)
    text = target_text(pair[0], prompts, protocol, chosen, kept)
    chance, sure, sequence = scoring.positions(
        pair,
        text,
        protocol.decode.temperature,
        arm_chances,
        **protocol.decode.truncation(),
    )
    chance = chance.astype(np.float64)
    alike = ARMS.index(f"T_q = {heat:g}, all") if heat else -1
    ways = {"alike": chance[:, alike], "argmax": chance[:, -1]}
    ways |= {"ceiling": np.maximum(chance.max(1), chance[:, -1]), "fixed": None}
    unit, picked = prompt_units(sequence, len(prompts.tokens)), {}
    for half in (0, 1):  # no prompt is in both
        here = unit % 2 == half
        for name, arm in choose_arms(sure, chance, ~here).items():
            it = picked.setdefault(name, np.zeros(len(sure), int))
            it[here] = arm[here]
    rows = np.arange(len(sure))
    ways |= {name: chance[rows, arm] for name, arm in picked.items()}
    names = [*ways]
    each = np.stack([*ways.values(), np.ones(len(sure))], -1)
    totals, at = sum_by_text(each, unit), {name: i for i, name in enumerate(names)}
    numbers = {"tokens": len(sure), "sequences": int(sequence.max()) + 1}
    for name, i in at.items():
        value, error = bootstrap(lambda sums, i=i: sums[i] / sums[-1], totals)
        numbers |= {f"alpha_{name}": value, f"alpha_{name}_se": error}
    for name in ("switch", "binned", "ceiling"):
        ends = at[name], at["fixed"]
        gain = bootstrap(lambda sums, x=ends: sums[x[0]] / sums[x[1]] - 1, totals)
        numbers |= {f"gain_{name}": gain[0], f"gain_{name}_se": gain[1]}
    numbers["argmax_ahead"] = float((chance[:, -1] > chance[:, alike]).mean())
    mean = chance.mean(0)
    grid = mean[:-1].reshape(len(HEATS), len(CUTS))
    shown = [
        {"T_q": heat} | dict(zip(CUTS, map(float, row), strict=True))
        for heat, row in zip(HEATS, grid, strict=True)
    ]
    shown.append({"T_q": ARGMAX} | dict.fromkeys(CUTS, float(mean[-1])))
    gains = {
        "the switch gains": "gain_switch",
        "the best of each bin gains": "gain_binned",
    }
    verdict = [
        judge(k, numbers[v], error=numbers[f"{v}_se"], bound=0.01, count=len(gains))
        for k, v in gains.items()
    ]
    best = ARMS[int(mean.argmax())]
    return numbers | {"best": best, "verdict": verdict, "points": shown}
