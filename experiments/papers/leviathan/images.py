"""Images of digits, another modality as Section 6 of Leviathan et al. (2023) suggests.

The pixels are tokens in raster order (`experiments.tasks.digits`), so that the pair is
decoded as one of text is. p is the target M_p, q the drafter M_q, gamma the number of
drafted tokens.
"""

from functools import partial

import jax
import numpy as np

from experiments.papers.leviathan.figure1 import untested_tokens
from experiments.tasks import digits
from specjax import drafts, generate
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, pair_files, record_names
from specjax.inputs import check, make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import trace
from specjax.measure.pairs import Pair
from specjax.measure.row import Measurement
from specjax.step import Decoder
from specjax.types import Params


def build(
    target: Pretrained,
    draft: DraftLike,
    *,
    gamma: int,
    temperature: float,
    seed: int = 0,
) -> Measurement:
    """Returns the measurement of one image of each digit, call by call.

    Raises:
        ValueError: before any compute, if the target knows other ids than those of
            images, or as `inputs.check`.
    """
    pair = drafts.pair(target, draft)
    known = digits.SHADES + digits.CLASSES
    if target.vocab != known:
        raise ValueError(
            f"{target.name} has {target.vocab} ids, and images of digits have {known}:"
            " name a model that writes them, such as digits_target"
        )
    run = partial(measure, pair, gamma=gamma, temperature=temperature, seed=seed)
    return Measurement(run, __name__, pair_files(*pair), target.dtype, seed)


def measure(pair: Pair, *, gamma: int, temperature: float, seed: int) -> dict:
    """Returns the calls of each image, with the shades that each call accepted,
    rejected, added, and left untested, and sums over all images.
    """
    target, draft = pair
    decoder = Decoder(target.model, draft.drafter(gamma))
    params = Params(target.params, draft.params)
    prompt = make_prompt([digits.prompt(digit) for digit in range(digits.CLASSES)])
    sampling = make_sampling(digits.CLASSES, temperature)
    request = make_request(root_key(seed), prompt, digits.PIXELS, sampling)
    slots = 1 + digits.PIXELS + gamma + 1
    check(decoder, slots, params, prompt, request)
    images: list[list[dict]] = [[] for _ in range(digits.CLASSES)]
    begins = np.asarray(prompt.length)
    stream = generate.build_stream(decoder, slots)
    for state, info in stream(params, prompt, request):
        tokens, ends = np.array(state.tokens), np.array(state.length)
        for row, steps in enumerate(images):
            if begins[row] < ends[row]:
                own = jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], info)
                step = trace.make_step(tokens[row, begins[row] : ends[row]], own)
                kept = {kind: getattr(step, kind) for kind in KINDS}
                steps.append(kept | {"untested": untested_tokens(step, own)})
        begins = ends
    written = digits.CLASSES * digits.PIXELS
    calls = sum(map(len, images))
    return {
        **record_names(*pair),
        "gamma": gamma,
        "temperature": temperature,
        "tokens": written,
        "target_calls": calls,
        "tokens_per_call": written / calls,
        "side": digits.SIDE,
        "shades": digits.SHADES,
        "images": [{"digit": i, "steps": steps} for i, steps in enumerate(images)],
    }


KINDS = "accepted", "rejected", "added"
