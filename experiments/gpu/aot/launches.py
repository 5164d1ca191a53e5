"""Counts the kernels that a step of speculative decoding launches on a GPU, without
one.

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
from specjax import drafts, fused, generate, probs, verifiers
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig, record_fields
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftLike, DraftSource, pair_files
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import costs
from specjax.measure.row import Measurement
from specjax.models import families, gpt, t5
from specjax.step import (
    Decoder,
    build_step,
    commit,
    measure,
    score,
    with_full_budget,
)
from specjax.types import Params, Prompt, Request, State

LAYER = re.compile(r"/layers_\d+/")


RECORDED = "gamma", "temperature", "rule"  # of the settings


class LaunchSetting(NamedTuple):
    """The setting of a row that counts the launches of a step.

    Attributes:
        decode: the settings of decoding; with a rule other than `token` only whole
            steps are counted.
        slots: the number of slots of the caches.
        input_tokens: the number of tokens of an encoder's input.
        device: one of `compilers.DEVICES`.
    """

    decode: DecodeConfig = DecodeConfig(gamma=5, temperature=1.0)
    batch: int = 1
    slots: int = 128
    input_tokens: int = 64
    device: str = "h200"


class ProgramInputs(NamedTuple):
    """The arguments that a pair's programs are compiled for; `state` is the state after
    the prompt.
    """

    decoder: Decoder
    params: Params
    prompt: Prompt
    request: Request
    state: State


def build(
    target: t5.Config | gpt.Config | Pretrained,
    draft: t5.Config | gpt.Config | DraftLike,
    setting: LaunchSetting,
) -> Measurement:
    """Returns the measurement of one row: of a pair of sizes, or of bundled models; a
    draft may be a name, as in `specjax.drafts`.

    Raises:
        ValueError: the vocabularies differ, or gamma is below 2.
    """
    if isinstance(draft, str):
        draft = drafts.load_draft(draft, target)
    if not isinstance(draft, DraftSource):
        draft = model_source(with_shapes(draft))
    shapes = jax.eval_shape(lambda: draft.params)
    large, small = with_shapes(target), draft._replace(params=shapes)
    check_vocabularies(target, draft)
    if setting.decode.gamma < 2:
        raise ValueError(
            "gamma must be at least 2, for a second drafted token; got"
            f" {setting.decode.gamma}"
        )
    device = compilers.TARGETS / f"{setting.device}.txtpb"
    files = *pair_files(large, small), device
    run = partial(count, large, small, setting)
    return Measurement(run, __name__, files, target.dtype)


def check_vocabularies(target: Any, draft: Any) -> None:
    """Raises ValueError for two configurations with different numbers of ids
    (`vocab`)."""
    if target.vocab != draft.vocab:
        raise ValueError(
            f"the target has a vocabulary of {target.vocab}, the draft one of"
            f" {draft.vocab}: name a pair with one tokenizer"
        )


def with_shapes(source: t5.Config | gpt.Config | Pretrained) -> Pretrained:
    """Returns a model whose parameters are shapes: for a configuration in its own
    dtype, for a model in the dtypes that it has."""
    if isinstance(source, Pretrained):
        return source._replace(params=jax.eval_shape(lambda: source.params))
    model = families.build(source)
    held = partial(jax.ShapeDtypeStruct, dtype=jnp.dtype(source.dtype))
    params = jax.tree.map(lambda leaf: held(leaf.shape), model.shapes)
    return Pretrained("", None, model, params)


def layers(player: Pretrained | DraftSource) -> int:
    decoder = player.params.get("decoder", player.params)
    return sum("layers_" in name for name in decoder)


def count(target: Pretrained, draft: DraftSource, setting: LaunchSetting) -> dict:
    """Returns the kernels by program, and those of one layer; also the bytes of weights
    and of buffers.

    Returns:
        draft_step: one further drafted token.
        draft_first: the catch-up and the first drafted token.
        target_step: a call on gamma + 1 tokens and its law.
        prefill: everything before the first step.
        verify: acceptance, the token after it, commit, and the run's counts of it.
        spec_step: a whole step that drafts gamma, compiled as one program.
        *_fused: with the kernels that `specjax.fused` chooses for the device and the
            shape.
        host_*: see `host_numbers`.

    Raises:
        ValueError: there is no compiler; the message has the command that installs it.
    """
    compilers.check(setting.device)
    if setting.decode.rule != "token":
        step = compile_step(
            program_inputs(target, draft, setting, "reference"), setting
        )
        counted = {"spec_step": total(step, setting), "temp_bytes": step.temp_bytes}
        host = host_numbers(step, setting)
        return {**record_fields(setting, RECORDED), **counted, **host}
    both = [program_inputs(target, draft, setting, it) for it in ("reference", "auto")]
    first, verify, step = (
        [of(it, setting) for it in both]
        for of in (compile_draft, compile_verification, compile_step)
    )
    scored, pair = (
        compile_target_call(both[0], setting),
        {"target": target, "draft": draft},
    )
    loop, sizes = draft_loop(first[0]), {name: layers(it) for name, it in pair.items()}
    before = compile_prefill(both[0], setting)
    leaves = {name: jax.tree.leaves(it.params) for name, it in pair.items()}
    programs = *first, *verify, *step, scored, before
    return {
        **record_fields(setting, RECORDED),
        "draft_step": hlo.iteration(loop),
        "draft_first": len(first[0].program.kernels),
        "draft_per_layer": per_layer(loop.body, sizes["draft"]),
        "draft_by_cause": count_by_cause(loop.body),
        "target_step": total(scored, setting),
        "target_per_layer": per_layer(scored.program, sizes["target"]),
        "prefill": total(before, setting),
        "verify": total(verify[0], setting),
        "spec_step": total(step[0], setting),
        "draft_step_fused": hlo.iteration(draft_loop(first[1])),
        "verify_fused": total(verify[1], setting),
        "spec_step_fused": total(step[1], setting),
        **host_numbers(step[1], setting),
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


def program_inputs(
    target: Pretrained, draft: DraftSource, setting: LaunchSetting, asked: str
) -> ProgramInputs:
    sizes = fused.Sizes(setting.batch, setting.decode.gamma, target.vocab)
    rule = verifiers.find(setting.decode.rule)
    chosen = fused.choose(asked, rule, sizes, device=DEVICES[setting.device])
    pair = costs.Pair(target, draft, setting.slots, chosen)
    return initial_inputs(
        pair,
        setting.decode.gamma,
        batch=setting.batch,
        read=setting.input_tokens,
        temperature=setting.decode.temperature,
    )


def initial_inputs(
    pair: costs.Pair, gamma: int, *, batch: int, read: int, temperature: float = 1.0
) -> ProgramInputs:
    """Returns the shapes of a batch, and of its state right after the start tokens.

    Args:
        read: tokens that an encoder reads.
    """
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

    return ProgramInputs(decoder, params, *jax.eval_shape(begin, params))


def compile_prefill(inputs: ProgramInputs, setting: LaunchSetting) -> Compiled:
    """Compiles everything that precedes the first step: encoders, and the state after
    the prompt.
    """

    def run(params: Params, prompt: Prompt):
        return generate.prefill(inputs.decoder, params, prompt, setting.slots)

    arguments = inputs.params, inputs.prompt
    return compilers.compile(run, arguments, device=setting.device)


def compile_draft(inputs: ProgramInputs, setting: LaunchSetting) -> Compiled:
    """Compiles a draft of gamma tokens, as in a step; a loop makes each token after the
    first.
    """

    def run(cache, params, request, state):
        gamma = setting.decode.gamma
        state = with_full_budget(state._replace(draft_cache=cache), gamma)
        return inputs.decoder.drafter.draft(request.key, params, request, state)

    cache, rest = inputs.state.draft_cache, inputs.state._replace(draft_cache=None)
    arguments = cache, inputs.params.draft, inputs.request, rest
    return compilers.compile(run, arguments, device=setting.device, donate=(0,))


def compile_target_call(inputs: ProgramInputs, setting: LaunchSetting) -> Compiled:
    def run(cache, params, request, state, tokens):
        state = state._replace(target_cache=cache)
        return score(inputs.decoder.target, params, request, state, tokens)[:2]

    cache, rest = inputs.state.target_cache, inputs.state._replace(target_cache=None)
    tokens = jax.ShapeDtypeStruct((setting.batch, setting.decode.gamma), jnp.int32)
    arguments = cache, inputs.params.target, inputs.request, rest, tokens
    return compilers.compile(run, arguments, device=setting.device, donate=(0,))


def compile_verification(inputs: ProgramInputs, setting: LaunchSetting) -> Compiled:
    """Compiles the rest of a step: from the two laws to the tokens in the buffer and
    the sums over a run.
    """
    request, decoder = inputs.request, inputs.decoder
    read = decoder.verifier.law or probs.standardize

    def laws(params, request, state):
        draft = decoder.drafter.draft(request.key, params.draft, request, state)[0]
        law, *_ = score(
            decoder.target, params.target, request, state, draft.tokens, read=read
        )
        return law, draft

    def run(buffers, law, draft, request, state):
        tokens, totals = buffers
        state = state._replace(tokens=tokens)
        noise = decoder.verifier.noise(
            request.key, state.length, setting.decode.gamma, decoder.target.vocab
        )
        verdict = decoder.verifier.verify(law, draft, noise)
        tokens, length = commit(request, state, verdict)
        info = measure(request, state, draft, verdict, length)
        return tokens, length, totals + generate.count(info)

    law, draft = jax.eval_shape(laws, inputs.params, request, inputs.state)
    rest = inputs.state._replace(tokens=None, target_cache=None, draft_cache=None)
    buffers = inputs.state.tokens, count_shapes(inputs)
    arguments = buffers, law, draft, request, rest
    return compilers.compile(run, arguments, device=setting.device, donate=(0,))


def compile_step(inputs: ProgramInputs, setting: LaunchSetting) -> Compiled:
    """Compiles a step as in the loop of `generate`, which keeps sums of its counts."""
    step = build_step(*inputs.decoder)

    def run(state, totals, params, request):
        state, info = step(params, request, state)
        return state, totals + generate.count(info)

    arguments = inputs.state, count_shapes(inputs), inputs.params, inputs.request
    return compilers.compile(run, arguments, device=setting.device, donate=(0, 1))


def count_shapes(inputs: ProgramInputs) -> jax.ShapeDtypeStruct:
    """Returns the shape of a run's counts."""
    rows = len(generate.Counts._fields), *inputs.state.length.shape
    return jax.ShapeDtypeStruct(rows, jnp.int32)


def draft_loop(compiled: Compiled) -> hlo.Loop:
    """Returns the loop over drafted tokens: the one with the most launches."""
    return max(hlo.loops(compiled.program), key=hlo.iteration)


def total(compiled: Compiled, setting: LaunchSetting) -> int:
    """Returns the number of kernels in a run; a loop whose end the program decides is
    counted gamma - 1 times, like the loop over drafted tokens.
    """
    return sum(
        1 for _ in hlo.repeat_kernels(compiled.program, setting.decode.gamma - 1)
    )


def host_numbers(step: Compiled, setting: LaunchSetting) -> dict[str, int]:
    """Returns the numbers of the host's work in a step.

    The numbers are the waits of the host for the device, one of them to learn whether
    all texts have ended; the CUDA graphs that it launches, the kernels in them, and the
    kernels that it launches one by one.
    """
    unknown = setting.decode.gamma - 1  # as of `total`
    work = graphs.host_work(step.thunks, step.program, unknown)
    work += graphs.HostWork(waits=1)
    return {f"host_{name}": count for name, count in work._asdict().items()}


def per_layer(sequence: hlo.Sequence, layers: int) -> float:
    inside = [k for k in hlo.all_kernels(sequence) if LAYER.search(k.source)]
    return len(inside) / layers


def count_by_cause(sequence: hlo.Sequence) -> dict[str, int]:
    """Returns the kernels by the part of the model that their last operation belongs
    to.
    """
    return dict(Counter(map(kernel_cause, hlo.all_kernels(sequence))).most_common())


def kernel_cause(kernel: hlo.Kernel) -> str:
    if "dynamic_update_slice" in kernel.name:
        cached = "/write_cache/" in kernel.source
        return "write the cache" if cached else "record the draft"
    if not (inside := LAYER.search(kernel.source)):
        return "readout, sampling and the rest"
    return kernel.source[inside.end() :].partition("/")[0].partition(".")[0]
