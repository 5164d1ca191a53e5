"""Kernels that a step of speculative decoding launches on a GPU, counted without one.

The programs are compiled ahead of time for a device that need not be there, from shapes
alone: no weight is made and nothing runs (`gpu.aot`, whose `hlo` says what is
counted). A small draft is bounded by launches and not by its bytes, so that c of
Leviathan et al. (2023), Definition 3.7, is decided by them on a GPU.
Axes: B rows, G = gamma, L slots.
"""

import re
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.gpu.aot import compilers, graphs, hlo
from experiments.gpu.aot.compilers import DEVICES, Compiled
from specjax import drafts, fused, generate, probs, sides, verifiers
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import costs
from specjax.measure.row import Measurement
from specjax.models import gpt, t5
from specjax.sides import Side
from specjax.step import Decoder, build_step, commit, measure, score, whole
from specjax.types import Params, Prompt, Request, State

LAYER = re.compile(r"/layers_\d+/")


class LaunchSetting(NamedTuple):
    """device: one of `compilers.DEVICES`. slots: of the caches. input_tokens: what an
    encoder reads. temperature: of every row; it changes no program. rule: what
    verifies; of one that is not `token` whole steps alone are counted."""

    gamma: int = 5
    batch: int = 1
    slots: int = 128
    input_tokens: int = 64
    temperature: float = 1.0
    device: str = "h200"
    rule: str = "token"


class Given(NamedTuple):
    """What the programs of a pair are compiled for. state: behind the prompt."""

    decoder: Decoder
    params: Params
    prompt: Prompt
    request: Request
    state: State


def build(
    target: t5.Config | gpt.Config | Side,
    draft: t5.Config | gpt.Config | Side | str,
    setting: LaunchSetting,
) -> Measurement:
    """The measurement of one row: a pair by its sizes, or bundled models; a draft may
    be a name, as `specjax.drafts` tells it.

    Raises ValueError for a pair of two vocabularies, or a gamma below 2.
    """
    if isinstance(draft, str):
        draft = drafts.named(draft, target)
    both = as_shapes(target), as_shapes(draft)
    check_vocabularies(target, draft)
    if setting.gamma < 2:
        raise ValueError(
            f"gamma must be at least 2, for a second drafted token; got {setting.gamma}"
        )
    device = compilers.TARGETS / f"{setting.device}.txtpb"
    files = *both[0].files, *both[1].files, device
    run = partial(count, *both, setting)
    return Measurement(run, __name__, files, target.dtype)


def check_vocabularies(target: Any, draft: Any) -> None:
    """Raises ValueError for two that have not as many ids, by their `vocab`."""
    if target.vocab != draft.vocab:
        raise ValueError(
            f"the target has a vocabulary of {target.vocab}, the draft one of"
            f" {draft.vocab}: name a pair with one tokenizer"
        )


def as_shapes(source: t5.Config | gpt.Config | Side) -> Side:
    """With parameters as shapes: of a config in its own dtype, of a side as held."""
    if isinstance(source, Side):
        return source._replace(params=jax.eval_shape(lambda: source.params))
    model = (t5 if isinstance(source, t5.Config) else gpt).build(source)
    held = partial(jax.ShapeDtypeStruct, dtype=jnp.dtype(source.dtype))
    params = jax.tree.map(lambda leaf: held(leaf.shape), model.shapes)
    return sides.of_model("", model, params)


def layers(player: Side) -> int:
    decoder = player.params.get("decoder", player.params)
    return sum("layers_" in name for name in decoder)


def count(target: Side, draft: Side, setting: LaunchSetting) -> dict:
    """Kernels by program, and those of one layer; bytes of weights and of buffers.

    draft_step: one further drafted token. draft_first: the catch-up and the first.
    target_step: a call of gamma + 1 tokens and its law. prefill: all that precedes the
    first step. verify: acceptance, the token
    after it, commit, and what a run counts of it. spec_step: a whole step that drafts
    gamma, compiled as one. `_fused`: with what `specjax.fused` chooses for the device
    and the shape. host_: see `hosted`. Raises ValueError, naming the command that
    installs it, where no compiler is.
    """
    compilers.check(setting.device)
    if setting.rule != "token":
        step = stepping(given(target, draft, setting, "reference"), setting)
        counted = {"spec_step": total(step, setting), "temp_bytes": step.temp_bytes}
        return {**setting._asdict(), **counted, **hosted(step, setting)}
    both = [given(target, draft, setting, it) for it in ("reference", "auto")]
    first, verify, step = (
        [of(it, setting) for it in both] for of in (drafting, verifying, stepping)
    )
    scored, pair = scoring(both[0], setting), {"target": target, "draft": draft}
    loop, sizes = drafted(first[0]), {name: layers(it) for name, it in pair.items()}
    before = prefilling(both[0], setting)
    leaves = {name: jax.tree.leaves(it.params) for name, it in pair.items()}
    programs = *first, *verify, *step, scored, before
    return {
        **setting._asdict(),
        "draft_step": hlo.iteration(loop),
        "draft_first": len(first[0].program.kernels),
        "draft_per_layer": per_layer(loop.body, sizes["draft"]),
        "draft_by_cause": by_cause(loop.body),
        "target_step": total(scored, setting),
        "target_per_layer": per_layer(scored.program, sizes["target"]),
        "prefill": total(before, setting),
        "verify": total(verify[0], setting),
        "spec_step": total(step[0], setting),
        "draft_step_fused": hlo.iteration(drafted(first[1])),
        "verify_fused": total(verify[1], setting),
        "spec_step_fused": total(step[1], setting),
        **hosted(step[1], setting),
        "layers": sizes,
        "weight_bytes": {
            name: sum(leaf.size * leaf.dtype.itemsize for leaf in each)
            for name, each in leaves.items()
        },
        "temp_bytes": {
            "prefill": before.temp_bytes,
            "draft": first[0].temp_bytes,
            "spec_step": step[0].temp_bytes,
        },
        "compile_seconds": round(sum(compiled.seconds for compiled in programs), 1),
    }


def given(target: Side, draft: Side, setting: LaunchSetting, asked: str) -> Given:
    sizes = fused.Sizes(setting.batch, setting.gamma, target.vocab)
    rule = verifiers.named(setting.rule)
    chosen = fused.choose(asked, rule, sizes, DEVICES[setting.device])
    pair = costs.Pair(target, draft, setting.slots, chosen)
    return begun(
        pair, setting.gamma, setting.batch, setting.input_tokens, setting.temperature
    )


def begun(
    pair: costs.Pair, gamma: int, batch: int, read: int, temperature: float = 1.0
) -> Given:
    """A batch behind its start tokens, as shapes. read: tokens that an encoder read."""
    decoder, params = pair.decoder(gamma), pair.params(gamma)

    def begin(params: Params):
        whole = None
        if pair.target.encodes:
            tokens = jnp.zeros((batch, read), jnp.int32)
            whole = tokens, jnp.full(batch, read, jnp.int32)
        prompt = make_prompt([[0]] * batch)._replace(inputs=whole)
        sampling = make_sampling(batch, temperature)
        request = make_request(root_key(0), prompt, 1, sampling)
        state = generate.prefill(decoder, params, prompt, pair.slots)
        return prompt, request, state

    return Given(decoder, params, *jax.eval_shape(begin, params))


def prefilling(inputs: Given, setting: LaunchSetting) -> Compiled:
    """All that precedes the first step: encoders, and what the prompt leaves."""

    def run(params: Params, prompt: Prompt):
        return generate.prefill(inputs.decoder, params, prompt, setting.slots)

    arguments = inputs.params, inputs.prompt
    return compilers.compile(run, arguments, setting.device)


def drafting(inputs: Given, setting: LaunchSetting) -> Compiled:
    """A draft of gamma tokens, as a step has it; its loop makes each one after the
    first."""

    def run(cache, params, request, state):
        state = whole(state._replace(draft_cache=cache), setting.gamma)
        return inputs.decoder.drafter.draft(request.key, params, request, state)

    cache, rest = inputs.state.draft_cache, inputs.state._replace(draft_cache=None)
    arguments = cache, inputs.params.draft, inputs.request, rest
    return compilers.compile(run, arguments, setting.device, donate=(0,))


def scoring(inputs: Given, setting: LaunchSetting) -> Compiled:
    def run(cache, params, request, state, tokens):
        state = state._replace(target_cache=cache)
        return score(inputs.decoder.target, params, request, state, tokens)

    cache, rest = inputs.state.target_cache, inputs.state._replace(target_cache=None)
    tokens = jax.ShapeDtypeStruct((setting.batch, setting.gamma), jnp.int32)
    arguments = cache, inputs.params.target, inputs.request, rest, tokens
    return compilers.compile(run, arguments, setting.device, donate=(0,))


def verifying(inputs: Given, setting: LaunchSetting) -> Compiled:
    """From the two laws to the tokens in the buffer and the sums of a run: what is left
    of a step."""
    request, decoder = inputs.request, inputs.decoder
    read = decoder.verifier.law or probs.standardize

    def laws(params, request, state):
        draft = decoder.drafter.draft(request.key, params.draft, request, state)[0]
        side = decoder.target, params.target
        return score(*side, request, state, draft.tokens, read)[0], draft

    def run(tokens, totals, law, draft, request, state):
        state = state._replace(tokens=tokens)
        at = request.key, state.length, setting.gamma, decoder.target.vocab
        verdict = decoder.verifier.verify(law, draft, decoder.verifier.noise(*at))
        tokens, length = commit(request, state, verdict)
        info = measure(request, state, draft, verdict, length)
        return tokens, length, totals + generate.count(info)

    shapes = jax.eval_shape(laws, inputs.params, request, inputs.state)
    rest = inputs.state._replace(tokens=None, target_cache=None, draft_cache=None)
    arguments = inputs.state.tokens, sums(inputs), *shapes, request, rest
    return compilers.compile(run, arguments, setting.device, donate=(0, 1))


def stepping(inputs: Given, setting: LaunchSetting) -> Compiled:
    """A step as the loop of `generate` makes it, which keeps sums of what it did."""
    step = build_step(*inputs.decoder)

    def run(state, totals, params, request):
        state, info = step(params, request, state)
        return state, totals + generate.count(info)

    arguments = inputs.state, sums(inputs), inputs.params, inputs.request
    return compilers.compile(run, arguments, setting.device, donate=(0, 1))


def sums(inputs: Given) -> jax.ShapeDtypeStruct:
    """What a run counts, as its shape."""
    rows = len(generate.Counts._fields), *inputs.state.length.shape
    return jax.ShapeDtypeStruct(rows, jnp.int32)


def drafted(compiled: Compiled) -> hlo.Loop:
    """The loop over drafted tokens: the one that launches most."""
    return max(hlo.loops(compiled.program), key=hlo.iteration)


def total(compiled: Compiled, setting: LaunchSetting) -> int:
    """Kernels of a run: a loop whose end the program decides runs gamma - 1 times, as
    that over drafted tokens does."""
    return sum(1 for _ in hlo.repeated(compiled.program, setting.gamma - 1))


def hosted(step: Compiled, setting: LaunchSetting) -> dict[str, int]:
    """What the host does for a step: how often it waits for the device, once of it to
    ask whether all texts have ended; CUDA graphs that it launches, kernels that lie in
    them, and those that it launches one by one."""
    unknown = setting.gamma - 1  # as of `total`
    told = graphs.launched(step.thunks, step.program, unknown)
    told += graphs.Launched(waits=1)
    return {f"host_{name}": count for name, count in told._asdict().items()}


def per_layer(sequence: hlo.Sequence, layers: int) -> float:
    inside = [k for k in hlo.everything(sequence) if LAYER.search(k.source)]
    return len(inside) / layers


def by_cause(sequence: hlo.Sequence) -> dict[str, int]:
    """Kernels by the part of the model that their last operation belongs to."""
    return dict(Counter(map(cause, hlo.everything(sequence))).most_common())


def cause(kernel: hlo.Kernel) -> str:
    if "dynamic_update_slice" in kernel.name:
        cached = "/write_cache/" in kernel.source
        return "write the cache" if cached else "record the draft"
    if not (inside := LAYER.search(kernel.source)):
        return "readout, sampling and the rest"
    return kernel.source[inside.end() :].partition("/")[0].partition(".")[0]
