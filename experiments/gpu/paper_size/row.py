"""A row of Table 4 at the paper's sizes without its checkpoints: walltime on one chip.

Leviathan et al. (2023), Sections 4.1 and A.3. The weights are random and acceptance is
simulated at the published alpha (`paper_size.stand_ins`): texts and alpha are not
measured. Everything that does not depend on them is: a target call, c, v, the rest of a
step, the ratio of a token's time to the limit of the memory, and whole texts at that
alpha. Axes: N texts, K values of gamma; every batch has one row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gpu.aot.launches import check_vocabularies
from experiments.gpu.kernels.timing import copy_speed, read_speed
from experiments.gpu.paper_size import stand_ins
from specjax import decode_config, fused
from specjax.decode_config import DecodeConfig, record_fields
from specjax.drafts.models import model_source
from specjax.inputs import make_request
from specjax.keys import root_key
from specjax.measure import costs, timing
from specjax.measure.row import Measurement
from specjax.measure.rows import error_of
from specjax.models import t5
from specjax.theory import closed_forms, predict
from specjax.types import Kernels, Prompt, Request
from specjax.verifiers import token

LABELS = {
    "weights": "random",
    "acceptance": "drawn: independent coins at the published alpha",
    "exactness": "none: with drawn acceptance the text follows no law",
}


# Of XLA: graphs of so many kernels at least are none.
NO_GRAPHS = {"xla_gpu_graph_min_graph_size": 1_000_000}
WARM_AGAIN = 2  # runs once everything is compiled, see `timing.time_in_turns`


# Of the settings, as records have them.
RECORDED = "temperature", "gamma", "new_tokens", "seed", "kernels"


class PaperSizeSetting(NamedTuple):
    """The setting of a row that measures models of the paper's sizes.

    Attributes:
        decode: the settings of decoding; their gamma, published, is one of `gammas`.
        alpha: published, at which acceptance is simulated.
        input_tokens: the number of tokens of the encoder's input.
        texts: the number of texts that are predicted and measured.
        others: the number of texts that give the rest of a step.
        loops: calls in a program that times one call.
        copied, read: bytes of the arrays whose copy and whose read, each in a loop,
            give the speeds of the memory.
    """

    decode: DecodeConfig
    alpha: float
    input_tokens: int
    gammas: tuple[int, ...] = (1, 3, 5, 7, 10)
    texts: int = 16
    others: int = 4
    rounds: int = 3
    loops: int = 64
    copied: int = 2**30
    read: int = 8 * 10**9


class Text(NamedTuple):
    """The prompt and the request of one text."""

    prompt: Prompt
    request: Request


class GammaTimes(NamedTuple):
    """The times measured with one gamma.

    Attributes:
        ms: [N], milliseconds of texts.
        calls: [N], target calls of texts.
        prefill: milliseconds before the first step.
    """

    ms: np.ndarray
    calls: np.ndarray
    prefill: float

    def step(self) -> float:
        return float((self.ms - self.prefill).sum() / self.calls.sum())


def build(
    target: t5.Config, draft: t5.Config, setting: PaperSizeSetting
) -> Measurement:
    check_vocabularies(target, draft)
    if not 0 <= setting.alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1]; got {setting.alpha}")
    gammas = list(setting.gammas)
    if sorted(set(gammas)) != gammas or not gammas or gammas[0] < 1:
        raise ValueError(f"gammas must ascend from at least 1; got {setting.gammas}")
    if setting.decode.gamma not in gammas:
        raise ValueError(
            f"gamma = {setting.decode.gamma} must be among gammas = {setting.gammas}"
        )
    decode_config.check(setting.decode)
    for name in ("input_tokens", "texts", "others", "rounds", "loops"):
        if getattr(setting, name) < 1:
            raise ValueError(f"{name} must be at least 1")
    run = partial(measure, target, draft, setting)
    return Measurement(run, __name__, (), target.dtype, setting.decode.seed)


def measure(target: t5.Config, draft: t5.Config, setting: PaperSizeSetting) -> dict:
    """Measures the pair, and returns the numbers of the row's record; the lists in
    `by_gamma` are parallel.

    c, v, exp, predicted and speedup are those of the published gamma, `best_` those of
    the gamma with the fastest prediction. Numbers are milliseconds, unless a name says
    otherwise.

    Raises:
        ValueError: before anything is allocated, if the device's memory is too small.
    """
    every = [text(target, setting, i) for i in range(setting.texts + setting.others)]
    texts, others = every[: setting.texts], every[setting.texts :]
    check_memory(target, draft, setting=setting, prompt=texts[0].prompt)
    kernels = choose(target, setting)
    copy, reading = copy_speed(setting.copied), read_speed(setting.read)
    pair = costs.Pair(
        stand_ins.pretrained("target", target),
        model_source(stand_ins.pretrained("draft", draft, seed=1)),
        slots(setting),
        kernels,
    )
    call, drafted, before = time_step_parts(pair, setting, others[0])
    decoders = {g: costs.decode(pair, g) for g in (0, setting.decode.gamma)}
    rest = time_texts(decoders, others, setting.rounds)
    columns = gamma_columns(setting, call_ms=call, draft_ms=drafted, rest_times=rest)
    best = columns["gamma"][int(np.argmax(columns["predicted"]))]
    if best not in decoders:
        decoders[best] = costs.decode(pair, best)
    whole = time_texts(decoders, texts, setting.rounds)
    read = stand_ins.step_bytes(target, texts[0].prompt, pair.slots)
    floor = {"step_bytes": read, "bandwidth_gb_s": copy / stand_ins.GB}
    floor |= {"read_gb_s": reading / stand_ins.GB, "floor_ms": 1e3 * read / copy}
    floor |= {"read_floor_ms": 1e3 * read / reading, "token_ms": rest[0].step()}
    return {
        **LABELS,
        **record_fields(setting, RECORDED),
        "kernels": kernels.record,
        "target": target._asdict(),
        "draft": draft._asdict(),
        "target_parameters": t5.num_params(target),
        "draft_parameters": t5.num_params(draft),
        "tokens": setting.texts * setting.decode.new_tokens,
        "target_ms": call[0],
        **floor,
        "floor_share": floor["floor_ms"] / floor["token_ms"],
        "prefill_ms": [rest[gamma].prefill for gamma in (0, setting.decode.gamma)],
        **before,
        "by_gamma": columns,
        "decoded": [text_numbers(setting, gamma, whole) for gamma in sorted(decoders)],
        **gamma_numbers(
            "", setting, gamma=setting.decode.gamma, columns=columns, whole=whole
        ),
        **gamma_numbers("best_", setting, gamma=best, columns=columns, whole=whole),
    }


def choose(target: t5.Config, setting: PaperSizeSetting) -> Kernels:
    """Returns the kernels that read the logits of both models, with simulated
    acceptance.
    """
    sizes = fused.Sizes(1, max(setting.gammas), target.vocab)
    chosen = fused.choose(setting.decode.kernels, token.verifier, sizes)
    drawn = stand_ins.simulate_acceptance(setting.alpha, chosen.verifier)
    return chosen._replace(verifier=drawn)


def slots(setting: PaperSizeSetting) -> int:
    """Returns the length of the buffer, the same for every gamma.

    It has room for the start token, the text and the longest draft.
    """
    return 1 + setting.decode.new_tokens + max(setting.gammas) + 1


def text(config: t5.Config, setting: PaperSizeSetting, index: int) -> Text:
    """Returns random input with its own key, for a text that does not end before
    `new_tokens`."""
    key = jax.random.fold_in(root_key(setting.decode.seed), index)
    first, last = t5.END + 1, config.pieces or config.vocab
    shape = 1, setting.input_tokens
    tokens = jax.random.randint(jax.random.fold_in(key, 0), shape, first, last)
    inputs = tokens, jnp.full(1, setting.input_tokens, jnp.int32)
    start = jnp.full((1, 1), t5.PAD, jnp.int32)
    prompt = Prompt(start, jnp.ones(1, jnp.int32), inputs)
    sampling = setting.decode.sampling(1)
    request = make_request(key[None], prompt, setting.decode.new_tokens, sampling)
    return Text(prompt, request)


def check_memory(
    target: t5.Config, draft: t5.Config, *, setting: PaperSizeSetting, prompt: Prompt
) -> None:
    """Raises ValueError if weights, caches and the arrays that are copied or read do
    not fit, by the device's report.
    """
    needed = max(2 * setting.copied, setting.read)
    for config in (target, draft):
        needed += stand_ins.weight_bytes(config)
        caches = stand_ins.cache_shapes(config, prompt, slots(setting))
        needed += 2 * stand_ins.tree_bytes(caches)  # a program's, and its result
    stand_ins.check_room(needed, jax.devices()[0].memory_stats())


def gamma_columns(
    setting: PaperSizeSetting,
    *,
    call_ms: dict,
    draft_ms: dict,
    rest_times: dict[int, GammaTimes],
) -> dict[str, list]:
    """Returns c, v, EXP and the exact prediction for every gamma, in parallel lists.

    The rest of a step, its overhead, is measured at the published gamma and assumed to
    be the same at the others. The prediction counts the prefill, and the steps of
    `new_tokens` with independent acceptances (`specjax.theory.predict`).
    """
    gammas, single, timed = setting.gammas, call_ms[0], rest_times[setting.decode.gamma]
    overhead = (
        timed.step() - draft_ms[setting.decode.gamma] - call_ms[setting.decode.gamma]
    )
    calls = predict.expected_calls(
        np.full(setting.decode.new_tokens, setting.alpha), gammas
    )
    alone = predict.Cost(0, rest_times[0].step(), 0, rest_times[0].prefill)
    c = [draft_ms[gamma] / gamma / single for gamma in gammas]  # Definition 3.7

    def predict_speedup(gamma: int, steps: float) -> float:
        # A step takes no less than its parts, whatever the clock says.
        step = draft_ms[gamma] + call_ms[gamma] + max(0.0, overhead)
        cost = predict.Cost(0, step, 0, timed.prefill)
        tokens = setting.decode.new_tokens
        return predict.speedup(tokens, steps, gamma, cost=cost, baseline=alone)

    each = zip(gammas, c, strict=True)
    return {
        "gamma": list(gammas),
        "expected_calls": calls.tolist(),
        "draft_ms": [draft_ms[gamma] for gamma in gammas],
        "call_ms": [call_ms[gamma] for gamma in gammas],
        "c": c,
        "v": [call_ms[gamma] / single for gamma in gammas],
        "exp": [closed_forms.walltime_factor(setting.alpha, *it) for it in each],
        "predicted": [predict_speedup(*it) for it in zip(gammas, calls, strict=True)],
        "overhead": overhead / single,
        "overhead_alone": alone.v / single - 1,
    }


def text_numbers(
    setting: PaperSizeSetting, gamma: int, whole: dict[int, GammaTimes]
) -> dict:
    """Returns the results of whole texts with one gamma, and the mean number of calls
    with simulated acceptance.
    """
    count, coins = setting.texts, np.full(setting.decode.new_tokens, setting.alpha)
    law = predict.calls_law(coins, gamma)
    mean, square = (law @ np.arange(law.size) ** power for power in (1.0, 2.0))
    spread = max(0.0, square - mean**2)  # 0, but for rounding, without coins
    calls = int(whole[gamma].calls.sum())
    return {
        "gamma": gamma,
        "ms": float(whole[gamma].ms.sum()),
        "step_ms": whole[gamma].step(),
        "calls": calls,
        "expected_calls": float(count * mean),
        "expected_calls_sd": float((count * spread) ** 0.5),
        "tokens_per_call": count * setting.decode.new_tokens / calls,
    }


def gamma_numbers(
    prefix: str, setting: PaperSizeSetting, *, gamma: int, columns, whole
) -> dict:
    """Returns the numbers of one gamma.

    The interval and the standard error of the speedup are over texts, so that they
    include the luck of simulated acceptance; `speedup_expected` is without luck: the
    mean number of calls, with the measured time of a step.
    """
    at = setting.gammas.index(gamma)
    values = {key: columns[key][at] for key in ("gamma", "c", "v", "exp", "predicted")}

    def time_ratio(plain_ms: np.ndarray, drafted_ms: np.ndarray) -> float:
        return float(plain_ms.sum() / drafted_ms.sum())

    plain_ms, drafted_ms = whole[0].ms, whole[gamma].ms
    ends = timing.interval(time_ratio, (plain_ms, drafted_ms))
    values |= {"speedup": time_ratio(plain_ms, drafted_ms), "speedup_ci": ends}
    values |= {"speedup_se": error_of(ends)}
    values["speedup_expected"] = expected_speedup(setting, gamma, columns, whole)
    values["residual"] = values["predicted"] / values["speedup"] - 1
    return {prefix + key: value for key, value in values.items()}


def expected_speedup(
    setting: PaperSizeSetting, gamma: int, columns: dict, whole: dict[int, GammaTimes]
) -> float:
    """Returns the expected speedup of texts that take the mean number of calls with
    simulated acceptance.
    """
    calls = columns["expected_calls"][setting.gammas.index(gamma)]
    text = whole[gamma].prefill + calls * whole[gamma].step()
    return float(whole[0].ms.mean() / text)


def time_step_parts(
    pair: costs.Pair, setting: PaperSizeSetting, text: Text
) -> tuple[dict[int, float], dict[int, float], dict[str, float]]:
    """Returns milliseconds: of a target call by gamma, including 0; of drafts by gamma;
    and of the target's prefill, on its own, with CUDA graphs and without."""
    loops, prompt, request = setting.loops, text.prompt, text.request
    begin = costs.prefill(pair, 0)
    lowered = begin.func.lower(*begin.args, prompt)
    without_graphs = lowered.compile(compiler_options=NO_GRAPHS)
    programs = {
        ("prefill", "prefill_alone_ms"): partial(begin, prompt),
        ("prefill", "prefill_without_graphs_ms"): partial(
            without_graphs, *begin.args, prompt
        ),
    }
    state = costs.halfway_state(begin(prompt), request)
    # A drafter does not read the target's cache: its own saves a compilation.
    alone = pair._replace(target=pair.draft.pretrained)
    drafting = costs.begin(alone, max(setting.gammas), prompt, request)
    for gamma in (0, *setting.gammas):
        calls = costs.target_calls(pair, gamma, loops)
        programs["call", gamma] = partial(calls, request, state)
        if gamma:
            drafts = costs.drafts(alone, gamma, loops)
            programs["draft", gamma] = partial(drafts, request, drafting)
    label, again = "parts of a step", WARM_AGAIN
    seconds = timing.time_in_turns(programs, setting.rounds, label, again=again)
    ms = {name: 1e3 * float(np.median(s)) for name, s in seconds.items()}

    def time_part(part: str, repeated: int) -> dict:
        return {
            key: took / repeated for (name, key), took in ms.items() if name == part
        }

    return time_part("call", loops), time_part("draft", loops), time_part("prefill", 1)


def time_texts(
    decoders: dict[int, Callable], texts: Sequence[Text], rounds: int
) -> dict[int, GammaTimes]:
    """Decodes every text with every decoder, in turns, and measures each one's
    prefill.
    """
    outputs, programs = {}, {}

    def decode_text(gamma: int, index: int):
        outputs[gamma, index] = decoders[gamma](*texts[index])
        return outputs[gamma, index]

    for index, (prompt, request) in enumerate(texts):
        none = request._replace(limit=request.start)  # no step at all
        for gamma, run in decoders.items():
            programs["decode", gamma, index] = partial(decode_text, gamma, index)
            programs["prefill", gamma, index] = partial(run, prompt, none)
    parts = "decode", "prefill"
    warm = [programs[part, gamma, 0] for gamma in decoders for part in parts]
    seconds = timing.time_in_turns(
        programs, rounds, "whole texts", warm=warm, again=WARM_AGAIN
    )
    timed, each = {}, range(len(texts))
    for gamma in decoders:
        ms = np.array([1e3 * np.median(seconds["decode", gamma, i]) for i in each])
        calls = np.array([int(outputs[gamma, i].counts.calls[0]) for i in each])
        prefill = 1e3 * np.median([seconds["prefill", gamma, i] for i in each])
        timed[gamma] = GammaTimes(ms, calls, float(prefill))
    return timed
