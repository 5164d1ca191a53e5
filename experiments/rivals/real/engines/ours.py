"""specjax: the loop that `specjax.generate_text` compiles, from ids to ids."""

from collections.abc import Callable

import jax

from experiments.records import compilation
from specjax import drafts, plans, sides
from specjax.inputs import bucketed, make_prompt, make_request, make_sampling
from specjax.pretrained import Pretrained
from specjax.sides import SAMPLED
from specjax.types import Params

WAYS = {"plain": None, "lookup": "copying"}
DRAFT = "copying_else:smollm2_draft,least=2"


def load(
    path: str, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    compilation.keep()
    target = drafts.target(path, kind).pretrained
    return {
        name: program(target, draft, room, gamma, tuple(ends))
        for name, draft in {**WAYS, "drafted": DRAFT}.items()
    }


def program(
    target: Pretrained, draft: str | None, room: int, gamma: int, ends: tuple[int, ...]
) -> Callable:
    """Texts of one padded width share what is compiled, however much is asked for."""
    side = None
    if draft is not None:
        side = drafts.paired(sides.of_pretrained(target), draft)[1]
    params = Params(target.params, None if side is None else side.params)
    regime = SAMPLED if side is None else side.regime
    gamma = gamma if side is not None else 0

    def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        prompt, batch = bucketed(make_prompt(prompts)), len(prompts)
        slots = prompt.tokens.shape[1] + room + gamma + 1
        settings = gamma, "token", "auto", batch, slots, "none", regime
        decode = plans.program(
            plans.Plan(target.config, plans.drafter_of(side), *settings)
        )
        sampling = make_sampling(batch, temperature=0.0)
        key = plans.keys(0, range(batch))
        request = make_request(key, prompt, new_tokens, sampling, ends)
        output = decode(params, prompt, request)
        tokens, length = jax.device_get((output.tokens, output.length))
        return [
            row[len(ids) : end].tolist()
            for row, ids, end in zip(tokens, prompts, length, strict=True)
        ]

    return run
