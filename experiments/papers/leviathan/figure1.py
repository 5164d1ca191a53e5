"""Figure 1 of Leviathan et al. (2023): the iterations that write one text at T = 0.

p is the target M_p, q the drafter M_q, gamma the number of drafted tokens. The pieces
and the steps are those that `specjax demo` prints. An encoder-decoder reads the prompt
with its encoder, in the tokens of the bundled T5 family, and starts a new text.
"""

from functools import partial

from specjax import drafts, zoo
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, DraftSource, pair_files
from specjax.inputs import check, make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import trace
from specjax.measure.row import Measurement
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Info, Params, Prompt


def build(
    target: Pretrained,
    draft: DraftLike,
    *,
    prompt: str,
    gamma: int,
    tokens: int = 48,
    seed: int = 0,
) -> Measurement:
    """Returns the measurement of one trace: `tokens` tokens after the prompt, or fewer
    if the text ends.

    Raises:
        ValueError: before any compute, if the target can only draft, there are no
            tokens, the draft needs an encoder's input where the target has none, or as
            `inputs.check`.
    """
    target, draft = drafts.pair(target, draft)
    if draft.encodes and not target.encodes:
        raise ValueError(
            f"{draft.name} reads the prompt with an encoder and {target.name} has none:"
            " name two models of one kind"
        )
    tokenizer, (begun, ends) = bundled_tokenizer(target), begin(target, prompt)
    case = make_case(
        (target, draft),
        begun,
        ends=ends,
        gamma=gamma,
        tokens=tokens,
        tokenizer=tokenizer,
        seed=seed,
    )
    inputs = (*pair_files(target, draft), tokenizer.file)
    run = partial(measure, case, prompt)
    return Measurement(run, __name__, inputs, target.dtype, seed)


def make_case(
    players: tuple[Pretrained, DraftSource],
    prompt: Prompt,
    *,
    ends: tuple[int, ...],
    gamma: int,
    tokens: int,
    tokenizer: Tokenizer,
    seed: int = 0,
) -> trace.Case:
    """Returns the case to decode, greedily.

    Raises:
        ValueError: there are no tokens, or the pair cannot decode them.
    """
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1; got {tokens}")
    target, draft = players
    decoder = Decoder(target.model, draft.drafter(gamma))
    sampling, key = make_sampling(1, 0.0), root_key(seed)
    request = make_request(key, prompt, tokens, sampling, ends)
    slots = int(request.limit[0]) + gamma + 1
    params = Params(target.params, draft.params)
    check(decoder, slots, params, prompt, request)
    names = target.name, draft.name
    return trace.Case(names, decoder, slots, params, prompt, request, tokenizer)


def begin(target: Pretrained, prompt: str) -> tuple[Prompt, tuple[int, ...]]:
    """Returns the prompt in the form that the target reads, and the ids that end its
    text."""
    tokenizer = bundled_tokenizer(target)
    ids = tokenizer.encode(prompt)
    if target.encodes:
        return make_prompt([[tokenizer.start]], [ids]), tokenizer.ends
    return make_prompt([ids]), tokenizer.ends


def bundled_tokenizer(target: Pretrained) -> Tokenizer:
    """Returns the bundled tokenizer of such models."""
    return zoo.tokenizer("t5" if target.encodes else "code")


def measure(case: trace.Case, prompt: str) -> dict:
    """Returns every iteration of Algorithm 1 as text: the drafted tokens that were
    kept, and the added token.

    rejected: the draft that was tested and refused; untested: the drafts after it, and
    those that the end of the text cut off.
    """
    begun = length = int(case.prompt.length[0])
    steps = []
    for ids, info in trace.iterate(case):
        step = trace.make_step(ids[length:], info)
        behind = [*map(case.tokenizer.piece, untested_tokens(step, info))]
        steps.append(pieces(step, case.tokenizer) | {"untested": behind})
        length = len(ids)
    target, draft = case.names
    return {
        "target": target,
        "draft": draft,
        "prompt": prompt,
        "gamma": case.decoder.drafter.gamma,
        "temperature": float(case.request.sampling.temperature[0]),
        "tokens": length - begun,
        "target_calls": len(steps),
        "steps": steps,
    }


def untested_tokens(step: trace.Step, info: Info) -> list[int]:
    """Returns the drafted tokens of a step that were not tested. info: that of this row
    only.
    """
    return info.tokens[step.tested : int(info.drafted)].tolist()


def pieces(step: trace.Step, tokenizer: Tokenizer) -> dict[str, list[str]]:
    """Returns the text of each token, with a newline shown as a backslash and an n."""
    return {
        kind: [tokenizer.piece(token) for token in getattr(step, kind)]
        for kind in ("accepted", "rejected", "added")
    }
