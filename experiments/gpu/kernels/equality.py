"""Compares kernels with the reference and with float64, on very many random rows.

Every row is decided by the reference, by every kernel and by numpy in float64. A token
that differs where no uniform is within 1e-5 of the value that it is compared with is a
fault, and there must be none; other differences are counted. Then a chi-square test
checks the emitted tokens over a small vocabulary. Results are recorded whatever they
are: a fault is a result too, and there is no number of all kernels if one of them
fails. Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gpu.kernels import oracle, programs
from experiments.gpu.kernels.bench import describe_error
from experiments.gpu.kernels.inputs import Inputs, Shape, answer, make_inputs
from experiments.gpu.kernels.programs import NONE, ONEPASS, REF
from experiments.records.words import FAILED
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON
from pallas_kernels.plan import Tiles
from specjax.keys import root_key
from specjax.measure.row import Measurement
from specjax.runtime import progress

HEATS = 1.0, 0.0, 0.5, 2.0, 1.0, 0.7
COUNTED = "differing_outside", "differing_inside", "from_reference_outside"
LEAST = 5.0  # expected count of a cell of the test
REFERENCE = "reference"
TOO_FEW = "too few trials"


class EqualityRows(NamedTuple):
    """The setting of a comparison of kernels with the reference and with float64.

    Attributes:
        rows: in total, in batches of `batch`.
        vocab: not a multiple of the blocks, so that the last one overlaps.
        trials: the number of trials of the chi-square test, over `small` ids.
        tiles: that split `vocab` into several blocks.
        dry: a trial on a CPU, interpreted.
    """

    rows: int = 2**20
    batch: int = 4096
    gamma: int = 3
    vocab: int = 520
    trials: int = 2**18
    small: int = 256
    tiles: tuple = (256, 1, False)
    dry: bool = False
    seed: int = 0


def build_row(setting: EqualityRows) -> Measurement:
    """Returns the measurement. Raises ValueError for rows that do not fill whole
    batches.
    """
    for name in ("rows", "trials"):
        if getattr(setting, name) % setting.batch or getattr(setting, name) < 1:
            raise ValueError(
                f"{name} must be a multiple of batch = {setting.batch}, at least one;"
                f" got {getattr(setting, name)}"
            )
    if min(setting.vocab, setting.small) < oracle.BLOCK:
        raise ValueError(f"vocab and small must be at least {oracle.BLOCK}")
    run = partial(measure, setting)
    return Measurement(run, __name__, (), "float32", setting.seed)


def calls(setting: EqualityRows) -> dict[str, Callable]:
    """Returns, by "implementation/carried", functions (Inputs) -> (n, tokens),
    including the reference.
    """
    place = programs.find_device(setting.dry, "equality.EqualityRows")
    shape = Shape(setting.batch, setting.gamma, setting.vocab)
    plain = {REFERENCE: (REF, NONE), "onepass/none": (ONEPASS, NONE)}
    by_name = {
        key: programs.program(name, carried, shape=shape, place=place).call
        for key, (name, carried) in plain.items()
    }
    for name in (MOSAIC_GPU, TRITON):
        for carried in programs.CARRIED:
            tiles = Tiles(*setting.tiles)
            fused = programs.program(
                name, carried, shape=shape, place=place, tiles=tiles
            )
            by_name[f"{name}/{carried}"] = fused.call
    return by_name


@partial(jax.jit, static_argnums=1)
def random_batch(key, setting: EqualityRows) -> Inputs:
    """Returns random rows: temperatures from 0 to 2, and q near p."""
    batch, gamma, vocab = setting.batch, setting.gamma, setting.vocab
    keys = jax.random.split(key, 5)
    z = 3 * jax.random.normal(keys[0], (batch, gamma + 1, vocab))
    near = z[:, :gamma] + jax.random.normal(keys[1], (batch, gamma, vocab))
    heat = jnp.resize(jnp.float32(HEATS), batch)
    return make_inputs(z, near, temperature=heat, keys=keys[2:])


def measure(
    setting: EqualityRows, implementations: dict[str, Callable] | None = None
) -> dict:
    """Returns the counts of each implementation.

    Args:
        implementations: those to compare, `calls` by default.
    """
    implementations = calls(setting) if implementations is None else implementations
    runs = {name: jax.jit(call) for name, call in implementations.items()}
    keys = jax.random.split(root_key(setting.seed), setting.rows // setting.batch)
    counts = {name: np.zeros(3, int) for name in runs}
    inside, failed = 0, {}
    for key in progress.track(keys, "equality"):
        batch = random_batch(key, setting)
        it, wanted, close = expected_answer(batch)
        inside += int(close.sum())
        reference = np.asarray(runs[REFERENCE](batch)[1])
        for name in (name for name in runs if name not in failed):
            try:
                n, tokens = jax.device_get(runs[name](batch))
            except Exception as error:
                failed[name] = describe_error(error)
                continue
            differ = (n != it.n) | (tokens != wanted).any(1)
            other = (tokens != reference).any(1)
            parts = differ & ~close, differ & close, other & ~close
            counts[name] += [part.sum() for part in parts]
    lines = []
    for name, run in runs.items():
        if name in failed:
            lines.append({"name": name, "error": failed[name]})
            continue
        own = dict(zip(COUNTED, counts[name].tolist(), strict=True))
        lines.append({"name": name, **own, "chi_square_p": chi_square(run, setting)})

    def values_of_quantity(quantity: str) -> list:
        return [it[quantity] for it in lines if it.get(quantity) is not None]

    law = min(values_of_quantity("chi_square_p"), default=TOO_FEW)
    return {
        **setting._asdict() | {"tiles": list(setting.tiles)},
        "inside_margin": inside,
        "by_implementation": lines,
        "differing_outside": FAILED if failed else max(values_of_quantity(COUNTED[0])),
        "differing_inside": FAILED if failed else max(values_of_quantity(COUNTED[1])),
        "chi_square_p": FAILED if failed else law,
        "failed_implementations": len(failed),
    }


def expected_answer(batch: Inputs) -> tuple[oracle.Answer, np.ndarray, np.ndarray]:
    """Returns the answer of float64, its tokens [B, G + 1], and the rows that rounding
    decides.
    """
    it, (ids, sample) = answer(batch), jax.device_get((batch.tokens, batch.sample))
    extra, close = oracle.draw(it, np.float64(sample))
    slots, n = np.arange(ids.shape[1] + 1), it.n[:, None]
    padded = np.pad(ids, ((0, 0), (0, 1)))
    tokens = np.where(slots < n, padded, np.where(slots == n, extra[:, None], 0))
    return it, tokens, close | it.near


def chi_square(run: Callable, setting: EqualityRows) -> float | None:
    """Returns the p-value of the first emitted token, which follows p_1 (Appendix A.1);
    None for too few trials.
    """
    batch, gamma, small = setting.batch, setting.gamma, setting.small
    z = np.random.default_rng(setting.seed).normal(size=(2, small))
    p_logits, q_logits = jnp.float32(1.5 * z[0]), jnp.float32(1.5 * z[0] + z[1])
    p = jnp.broadcast_to(p_logits, (batch, gamma + 1, small))
    q = jnp.broadcast_to(q_logits, (batch, gamma, small))
    keys = jax.random.split(root_key(setting.seed + 1), setting.trials // batch)
    seen = np.zeros(small)
    for key in keys:
        sample = make_inputs(
            p, q, temperature=jnp.ones(batch), keys=jax.random.split(key, 3)
        )
        seen += np.bincount(np.asarray(run(sample)[1])[:, 0], minlength=small)
    law = oracle.weights(np.asarray(p_logits)[None], np.ones(1))[0]
    return p_value(seen, law * setting.trials)


def p_value(seen: np.ndarray, wanted: np.ndarray) -> float | None:
    """Returns the p-value of Pearson's test, in which ids with a small expected count
    form one cell; None for a single cell.
    """
    rare = wanted < LEAST
    cells = [(seen[~rare], wanted[~rare])]
    if wanted[rare].sum() >= LEAST:
        cells.append((seen[rare].sum(keepdims=True), wanted[rare].sum(keepdims=True)))
    observed, law = (np.concatenate(parts) for parts in zip(*cells, strict=True))
    if law.size < 2:
        return None
    statistic = ((observed - law) ** 2 / law).sum()
    return float(jax.scipy.stats.chi2.sf(statistic, law.size - 1))
