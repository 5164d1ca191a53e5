r"""Verification as it is written for PyTorch, timed in a separate process.

    python -m experiments.gpu.kernels.torch_bench \
        '{"batch": 1, "gamma": 5, "vocab": 32000, "dtype": "float32"}'

`hf_eager` has the steps of `_speculative_sampling` of Hugging Face transformers, of
one text, with its waits for the device; `eager` is batched and never waits; `compiled`
is `eager` under torch.compile(mode="reduce-overhead"), whose graph first copies what it
is given where that is not at a fixed address, as here. All code is our own. The row of
the table starts this file as a program and reads what it prints, so that JAX and
PyTorch do not share a device. Torch is imported here alone.
Axes: B rows, G = gamma, V vocabulary, S sets.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.gpu.kernels import inputs, oracle, timing
from experiments.gpu.kernels.bench import describe_error
from experiments.records.words import FAILED, SKIPPED
from specjax.measure.row import Measurement

NO_TORCH = "torch is not installed: pip install torch"
NO_CUDA = (
    "torch finds no CUDA device: torch_bench.TorchSetting.dry = True tries it on a CPU"
)
NEEDS_GRAPHS = "reduce-overhead is made of CUDA graphs, and torch finds no CUDA device"
CLOSE = 0.7706  # `inputs.noise_for_acceptance` of an acceptance of 0.7


class TorchSetting(NamedTuple):
    """The setting of a row that times PyTorch, as in `experiments.gpu.kernels.bench`.

    Attributes:
        seconds: that the program may take.
        dry: a trial on a CPU.
    """

    batch: int
    gamma: int
    vocab: int
    dtype: str
    rounds: int = 30
    cache: int = inputs.CACHE
    least: int = 4
    seconds: int = 540
    dry: bool = False


def build(setting: TorchSetting) -> Measurement:
    return Measurement(partial(measure, setting), __name__, (), setting.dtype, 0)


def measure(setting: TorchSetting) -> dict:
    """Returns microseconds by name, or a word that refers to the reason in `skipped` or
    in `failed`.
    """
    if importlib.util.find_spec("torch") is None:
        raise ValueError(NO_TORCH)
    command = [sys.executable, "-m", __name__, json.dumps(setting._asdict())]
    options = {"capture_output": True, "text": True, "timeout": setting.seconds}
    done = subprocess.run(command, **options)
    if done.returncode:
        raise RuntimeError(f"torch_bench ended with {done.stderr[-2000:]}")
    printed = json.loads(done.stdout.splitlines()[-1])
    times = {f"{name}_us": SKIPPED for name in printed["skipped"]}
    times |= {f"{failure['name']}_us": FAILED for failure in printed["failed"]}
    times |= {f"{line['name']}_us": line["us"] for line in printed["lines"]}
    return {**setting._asdict(), **printed, **times}


def verify_text(torch, batch, u=None):
    """Returns (n, tokens) of one text, with the same steps and the same waits of the
    host as in transformers."""
    p_logits, q_logits, ids = batch
    gamma = ids.shape[1]
    q = q_logits.float().softmax(dim=-1)
    q_x = q[:, torch.arange(gamma), ids[0]].squeeze(0)
    p = p_logits.float().softmax(dim=-1)
    p_x = p[:, torch.arange(gamma), ids[0]].squeeze(0)
    ratio = p_x / q_x
    r = torch.rand_like(ratio) if u is None else u[0]
    n = ((~(r <= ratio)).cumsum(dim=-1) < 1).sum()
    after = p[:, n, :]
    if n < gamma:  # the host waits for n here
        left = torch.clamp(after - q[:, n, :], min=0)
        left = left / left.sum()
    else:
        left = after
    extra = torch.multinomial(left, num_samples=1)
    tokens = torch.cat((ids[:, :n], extra), dim=-1) if n > 0 else extra  # and here
    return n, tokens


def verify_batch(torch, batch, u=None):
    """Returns (n [B], the token after them [B, 1]); the host never waits."""
    p_logits, q_logits, ids = batch
    gamma = ids.shape[1]
    p = torch.softmax(p_logits.float(), -1)
    q = torch.softmax(q_logits.float(), -1)
    at = ids[..., None]
    p_x, q_x = p[:, :gamma].gather(-1, at)[..., 0], q.gather(-1, at)[..., 0]
    r = torch.rand_like(p_x) if u is None else u
    n = (r * q_x < p_x).long().cumprod(dim=1).sum(dim=1)
    rows = torch.arange(p.shape[0], device=p.device)
    less = torch.where((n < gamma)[:, None], q[rows, n.clamp(max=gamma - 1)], 0.0)
    left = (p[rows, n] - less).clamp(min=0)
    race = torch.empty_like(left).exponential_()
    return n, (left / race).argmax(dim=-1, keepdim=True)


def make_sets(torch, setting: TorchSetting, device: str) -> list[tuple]:
    """Returns sets of (target logits, draft logits, drafted ids, uniforms), in which q
    is as near to p as in the sets of `bench` at an acceptance of 0.7, and drafts are
    drawn from q.
    """
    batch, gamma, vocab = setting.batch, setting.gamma, setting.vocab
    kind, shape = getattr(torch, setting.dtype), inputs.Shape(*setting[:4])
    torch.manual_seed(0)
    listed = []
    for _ in range(inputs.count_cold_sets(shape, setting.cache, setting.least)):
        p = inputs.SPREAD * torch.randn(batch, gamma + 1, vocab, device=device)
        q = p[:, :gamma] + CLOSE * torch.randn(batch, gamma, vocab, device=device)
        p, q = p.to(kind), q.to(kind)
        noise = torch.empty(batch, gamma, vocab, device=device).exponential_()
        ids = (torch.softmax(q.float(), -1) / noise).argmax(dim=-1)
        listed.append((p, q, ids, torch.rand(batch, gamma, device=device)))
    return listed


def find_error(call: Callable, batch: tuple) -> str | None:
    """Returns the error in a verdict for given uniforms, by the float64 oracle; None if
    it is right.
    """
    n, tokens = (x.cpu().numpy() for x in call(batch[:3], batch[3]))
    p, q, ids, u = (x.cpu() for x in batch)
    ids = ids.numpy()
    weights = [oracle.weights(z.double(), np.ones(len(ids))) for z in (p, q)]
    it = oracle.answer(*weights, ids, u.double().numpy())
    slots, n = np.arange(ids.shape[1] + 1), n.reshape(-1)
    padded = np.pad(ids, ((0, 0), (0, 1)))
    whole = np.where(slots < n[:, None], padded, tokens[:, -1:])
    return oracle.find_error(it, ids, n=n, tokens=whole)


def implementations(torch, setting: TorchSetting) -> tuple[dict[str, Callable], dict]:
    eager = partial(verify_batch, torch)
    calls, skipped = {"eager": eager}, {}
    if setting.batch == 1:
        calls["hf_eager"] = partial(verify_text, torch)
    else:
        skipped["hf_eager"] = "it verifies one text"
    if torch.cuda.is_available():
        options = {"mode": "reduce-overhead", "dynamic": False}
        calls["compiled"] = torch.compile(lambda *given: eager(*given), **options)
    else:
        skipped["compiled"] = NEEDS_GRAPHS
    return calls, skipped


def time_call(torch, call: Callable, batches: list[tuple], rounds: int) -> dict:
    """Returns the microseconds of a call: S sets are run one after another, then waited
    for."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    seconds = []
    for _ in range(rounds + 1):
        wait()
        begun = time.perf_counter()
        for batch in batches:
            call(batch[:3])
        wait()
        seconds.append((time.perf_counter() - begun) / len(batches))
    return timing.spread(np.array(seconds[1:]))  # the first warms up


def run_all(setting: TorchSetting) -> dict:
    """Returns the output of the program: lines of the implementations that ran, and for
    each other one why it did not or cannot run here.

    It ends the program where there is no device.
    """
    import torch

    if not torch.cuda.is_available() and not setting.dry:
        sys.exit(NO_CUDA)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batches, lines, failed = make_sets(torch, setting, device), [], []
    calls, skipped = implementations(torch, setting)
    with torch.inference_mode():
        for name, call in calls.items():
            try:
                if fault := find_error(call, batches[0]):
                    raise ValueError(f"not timed, as its output is wrong: {fault}")
                times = time_call(torch, call, batches, setting.rounds)
            except Exception as error:
                failed.append({"name": name, "error": describe_error(error)})
            else:
                lines.append({"name": name, **times})
    fields = {"lines": lines, "skipped": skipped, "failed": failed}
    return fields | {"torch": torch.__version__, "sets": len(batches), "on": device}


if __name__ == "__main__":
    print(json.dumps(run_all(TorchSetting(**json.loads(sys.argv[1])))))
