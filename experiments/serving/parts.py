"""The cost of a server's parts, and the tokens that a step gives, each measured alone.

Measured are c and v of Leviathan et al. (2023), Definition 3.7 and Section 3.3, of
programs of several batches; the time of a step beyond draft and target call, as a
server launches it; and the time to admit a request. The prompts are others than those
that are served. Axes: B rows, G = gamma.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import generate, inputs
from specjax.decode_config import DecodeConfig
from specjax.inputs import make_request
from specjax.keys import root_key
from specjax.measure import costs, timing
from specjax.measure.texts import take
from specjax.prompts import Prompts
from specjax.text import serving
from specjax.text.serving import Arrival, Server
from specjax.types import Prompt, Request

LOOPS = 16  # calls in a program that times one call


class LoadSetting(NamedTuple):
    """The setting of a server and of the requests that it serves.

    Attributes:
        decode: the settings of decoding; each of `gammas` takes the place of its gamma,
            and each request has its own new_tokens.
        gammas: ascending from 0, the baseline.
        batches: rows of the programs that are timed, ascending.
        rows: the rows of the batch that serves, one of `batches`.
        requests: the number of requests that are served, each of `least` to `most` new
            tokens.
        longest: the most tokens of a prompt; longer prompts are left out, and all are
            padded to the longest.
        others: prompts, the first of the task, on which acceptance is measured and
            which are not served.
        load: the load of the run whose requests arrive over time, as a share of the
            rate that the batch is predicted to answer without a draft.
        rounds: the number of rounds of the timings, and of the serving.
    """

    decode: DecodeConfig = DecodeConfig()
    gammas: tuple[int, ...] = (0, 1, 3)
    batches: tuple[int, ...] = (1, 4, 8, 16, 32)
    rows: int = 8
    requests: int = 200
    least: int = 8
    most: int = 96
    longest: int = 32
    others: int = 24
    load: float = 0.7
    rounds: int = 3


def make_requests(
    prompts: Prompts, *, index: np.ndarray, tokens: np.ndarray, setting: LoadSetting
) -> tuple[Prompt, Request]:
    """Returns the requests [B] for `tokens` [B] new tokens after the prompts at `index`
    [B].
    """
    prompt = inputs.pad_to_bucket(take(prompts, index))
    keys = jax.vmap(partial(jax.random.fold_in, root_key(setting.decode.seed)))(index)
    sampling = setting.decode.sampling(len(index))
    request = make_request(keys, prompt, 0, sampling)
    limit = np.asarray(prompt.length) + np.asarray(tokens, np.int32)
    return prompt, request._replace(limit=limit)


def server(pair: costs.Pair, gamma: int, rows: int) -> Server:
    return serving.build(pair.decoder(gamma), pair.slots, rows)


def one_by_one(batch: tuple[Prompt, Request]) -> Iterator[Arrival]:
    """Yields each row of a batch as a separate request."""
    for i in range(len(batch[0].length)):
        yield Arrival(*jax.tree.map(lambda x, i=i: x[i : i + 1], batch))


def time_parts(
    pair: costs.Pair,
    prompts: Prompts,
    *,
    setting: LoadSetting,
    servers: dict[int, Server],
) -> dict[tuple[str, int, int], float]:
    """Returns the median seconds of each part, by (part, batch, gamma).

    "target" is a call on gamma + 1 tokens, "draft" gamma drafted tokens, "step" a step
    as it is served. The batch that serves, whose programs `servers` has by gamma, also
    has "admit", the admission of one request, "begin", the start of a whole batch, and
    "loop", a step within its loop.
    """
    tokens = np.full(setting.rows, setting.most)
    texts, median = (
        make_requests(
            prompts, index=np.arange(setting.rows), tokens=tokens, setting=setting
        ),
        {},
    )
    one = next(one_by_one(texts))
    single = {x: (costs.begin(pair, x, *one[:2]), one.request) for x in setting.gammas}
    for batch in setting.batches:  # one after the other: caches take their room
        programs = _programs(pair, setting, servers=servers, batch=batch, single=single)
        if batch == setting.rows:
            programs |= _request_programs(pair, setting, servers=servers, texts=texts)
        found = timing.time_in_turns(programs, setting.rounds, f"steps of {batch} rows")
        median |= {name: float(np.median(each)) for name, each in found.items()}
        if batch == setting.rows:
            calls = {x: programs["whole", batch, x]().counts.calls for x in servers}
    looped = {"target", "draft", "step", "admit"}
    median = {k: x / LOOPS if k[0] in looped else x for k, x in median.items()}
    for gamma in setting.gammas:
        place = setting.rows, gamma
        rest = median.pop(("whole", *place)) - median["begin", *place]
        median["loop", *place] = rest / int(np.max(calls[gamma]))
    return median


def _programs(
    pair: costs.Pair,
    setting: LoadSetting,
    *,
    servers: dict[int, Server],
    batch: int,
    single: dict[int, tuple],
) -> dict[tuple[str, int, int], Callable]:
    """Returns the programs that time the parts of a step of `batch` rows.

    Args:
        single: by gamma the state and request of a row, in the middle of its text.
    """
    programs = {}
    for gamma in setting.gammas:
        place, params = (batch, gamma), pair.params(gamma)
        state, request = jax.tree.map(partial(_repeat, batch), single[gamma])
        target = costs.target_calls(pair, gamma, LOOPS)
        programs["target", *place] = partial(target, request, state)
        if gamma:
            draft = costs.drafts(pair, gamma, LOOPS)
            programs["draft", *place] = partial(draft, request, state)
        served = batch == setting.rows
        own = servers[gamma] if served else server(pair, gamma, batch)
        programs["step", *place] = _steps(own, params, request, state)
    return programs


def _request_programs(
    pair: costs.Pair,
    setting: LoadSetting,
    *,
    servers: dict[int, Server],
    texts: tuple[Prompt, Request],
) -> dict[tuple[str, int, int], Callable]:
    """Returns programs that admit requests, and programs that decode whole batches."""
    programs, one = {}, next(one_by_one(texts))
    empty = texts[1]._replace(limit=texts[1].start)
    for gamma in setting.gammas:
        place, params = (setting.rows, gamma), pair.params(gamma)
        programs["admit", *place] = _admissions(servers[gamma], params, one)
        whole = generate.build(pair.decoder(gamma), pair.slots)
        programs["begin", *place] = partial(whole, params, texts[0], empty)
        programs["whole", *place] = partial(whole, params, *texts)
    return programs


def _repeat(rows: int, row: jax.Array) -> jax.Array:
    """Repeats a row, [1, ...] -> [B, ...]; the content of rows does not affect the cost
    of a step.
    """
    return jnp.repeat(row, rows, axis=0)


def _steps(server: Server, params, request: Request, state) -> Callable[[], None]:
    """Returns a program of LOOPS steps; after each step the host checks which rows have
    ended.

    Rows that have ended cost as much as the others.
    """
    last = [jax.tree.map(jnp.copy, state)]  # the step takes its buffers

    def run() -> None:
        for _ in range(LOOPS):
            last[0], _, ended = server.step(params, request, last[0])
            np.asarray(ended)

    return run


def _admissions(server: Server, params, one: Arrival) -> Callable[[], None]:
    batch = [server.begin(params, one.prompt, one.request)]

    def run() -> None:
        for i in range(LOOPS):
            server.check(params, one.prompt, one.request)
            row = np.int32(i % server.rows)
            batch[0] = server.admit(
                params, *batch[0], row=row, prompt=one.prompt, new_request=one.request
            )
            jax.block_until_ready(batch[0])

    return run


def emitted_tokens(
    pair: costs.Pair,
    *,
    gamma: int,
    prompts: Prompts,
    setting: LoadSetting,
    server: Server,
) -> list[np.ndarray]:
    """Returns the tokens that each step emitted, for texts other than those that were
    timed.

    The last step of a text is left out, because a limit may have cut it.
    """
    params, texts = pair.params(gamma), []
    for first in range(0, setting.others, setting.rows):
        index = np.arange(first, first + setting.rows)
        tokens = np.full(setting.rows, setting.most)
        each = [
            *one_by_one(
                make_requests(prompts, index=index, tokens=tokens, setting=setting)
            )
        ]
        state, request = server.begin(params, *each[0][:2])
        for row, (prompt, own, _) in enumerate(each):
            state, request = server.admit(
                params,
                state,
                request,
                row=np.int32(row),
                prompt=prompt,
                new_request=own,
            )
        steps, ended = [], np.zeros(setting.rows, bool)
        while not ended.all():
            state, info, ended = server.step(params, request, state)
            steps.append(np.array(info.emitted))
            ended = np.asarray(ended)
        for row in np.array(steps).T:
            texts.append(row[: max(1, np.count_nonzero(row) - 1)])
    return texts
