"""The training loop, resumable, for the bundled models and for fine-tuning.

A run is a folder: `checkpoint.msgpack` (weights, optimiser, step; replaced atomically;
a folder `checkpoint` where they are on a mesh, see `specjax.training.states`),
`curve.jsonl` (a line for each evaluation). After a kill at any moment, the same call
continues from the last checkpoint and ends with the same weights as a run that was
never killed, because the batch of a step depends on the seed and the step alone. On a
mesh of devices (`runtime.mesh`) rows are split over `data`, and parameters with their
optimiser state over `model`; a run may continue on another mesh.

A run whose loss or weights are no longer finite stops and names the step. The
checkpoint never has such weights: it holds the last finite state that was saved.

The length of a run may be decided until its rate begins to fall. At that moment the
checkpoint is stored as `plateau.msgpack`: copied to `checkpoint.msgpack`, it lets a
finished run continue for longer.
"""

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from specjax.checkpoints import Config, sharding
from specjax.keys import root_key
from specjax.runtime import console, locks, mesh, progress, writing
from specjax.training import states
from specjax.training.states import TrainState
from specjax.training.storage import replace

Totals = Mapping[str, tuple[Any, Any]]  # by name, a sum over tokens and their number
Report = Callable[[Mapping[str, Any]], None]  # reads a line of a curve
AT_MOST = "at_most"  # of a line of the curve, the names that are upper bounds
SAVE_SECONDS = 300.0  # a slow machine saves more often than by steps
SAVING = {"checkpoint_every", "evaluate_every"}  # of a recipe, what may change
TEXT = "text"  # of `Task.sizes`, the digest of what is learnt from; older runs lack it
# How a rate falls to zero, (rate, steps) -> schedule; older runs do not say theirs, and
# have the first.
FALLS: dict[str, Callable[[float, int], optax.Schedule]] = {
    "linear": lambda rate, steps: optax.linear_schedule(rate, 0.0, steps),
    "cosine": lambda rate, steps: optax.cosine_decay_schedule(rate, max(steps, 1)),
}


class Recipe(NamedTuple):
    """The recipe of a run; its rate falls to zero over the last `decay` steps.

    Attributes:
        schedule: how it falls: linear, or cosine, along half a period.
        optimizer: adamw; scaled, which is Adam with steps relative to each parameter's
            own size; or adafactor (Shazeer & Stern 2018), which has relative steps too,
            and stores no moments of matrices.
    """

    steps: int
    decay: int
    batch: int = 8
    length: int = 256
    rate: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.1
    seed: int = 0
    checkpoint_every: int = 100
    evaluate_every: int = 250
    optimizer: str = "adamw"
    schedule: str = "linear"


class Task(NamedTuple):
    """The model and the data of a run.

    Attributes:
        sizes: JSON, which identifies the run.
        init: key -> parameters.
        loss: (params, batch) -> scalar, also the held-out measure.
        config: the configuration of the model, whose parameters a mesh splits.
        batch: the seed (recipe.seed, step) -> a batch.
        held_out: batches for evaluation, by the names of the curve.
        measure: (params, batch) -> by name a sum over tokens and their number, of
            held-out batches; None is the loss alone. Those in `shown` stand beside the
            bar.
        shown: names of the curve, such as "held_out alpha_1".
        weight: of a held-out batch, how many tokens its loss is a mean over; None is
            the same for all.
        at_most: the beginning of the names in `measure` that are upper bounds, such as
            "alpha"; "" if none is.
    """

    sizes: dict
    init: Callable[[Array], Any]
    loss: Callable[[Any, Any], Array]
    config: Config | None
    batch: Callable[[tuple[int, ...]], Any]
    held_out: Mapping[str, Sequence[Any]]
    measure: Callable[[Any, Any], "Totals"] | None = None
    shown: tuple[str, ...] = ()
    weight: Callable[[Any], Any] | None = None
    at_most: str = ""


def learning_rate(recipe: Recipe) -> optax.Schedule:
    """Returns a learning rate that warms up, stays, then falls to zero over the last
    `decay` steps, as the recipe's schedule says.
    """
    fall = recipe.steps - recipe.decay
    up = optax.linear_schedule(0.0, recipe.rate, recipe.warmup)
    flat = optax.constant_schedule(recipe.rate)
    down = FALLS[recipe.schedule](recipe.rate, recipe.decay)
    return optax.join_schedules([up, flat, down], [recipe.warmup, fall])


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    rate, weight_decay = learning_rate(recipe), recipe.weight_decay
    rules = {
        "adamw": optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=weight_decay),
        "scaled": optax.chain(
            optax.scale_by_adam(b1=0.9, b2=0.98),
            optax.scale_by_param_block_rms(),
            optax.scale_by_learning_rate(rate),
        ),
        "adafactor": optax.adafactor(rate, weight_decay_rate=weight_decay or None),
    }
    return optax.chain(optax.clip_by_global_norm(1.0), rules[recipe.optimizer])


def train(
    folder: Path,
    task: Task,
    recipe: Recipe,
    *,
    devices: str = "",
    report: Report | None = None,
) -> Any:
    """Trains to `recipe.steps`, or continues from the state in the folder.

    devices: a mesh, as `runtime.mesh.parse` reads it; "" is one device. report: called
    with every new line of the curve. Returns the parameters, on the host where there
    were several. Raises ValueError if the folder holds a run of another recipe, for a
    mesh that does not divide it, or where the loss or the weights are no longer finite.
    At SIGTERM, as before a machine is taken away, the step is finished and kept, and
    the process ended by `console.termination_code`.
    """
    with mesh.using(devices), locks.lock_folder(folder):
        check_mesh(folder.name, task, recipe)
        params = train_on_mesh(folder, task, recipe, report)
    return jax.device_get(params) if devices else jax.tree.map(jnp.asarray, params)


def train_on_mesh(
    folder: Path, task: Task, recipe: Recipe, report: Report | None = None
) -> Any:
    """Trains as `train` does, on the mesh in use."""
    folder.mkdir(parents=True, exist_ok=True)
    rule, measure = optimizer(recipe), jax.jit(measured(task))
    held_out = {k: [*map(rows_of, fixed)] for k, fixed in task.held_out.items()}
    checkpoint, curve = folder / "checkpoint", folder / "curve.jsonl"
    state = resume(folder, task, rule, recipe)
    if curve.exists():  # what is beyond the checkpoint is measured again
        lines = filter(None, curve.read_text().splitlines())
        kept = [line for line in lines if json.loads(line)["step"] <= state.step]
        replace(curve, "".join(line + "\n" for line in kept).encode())

    step_fn = build_step(task.loss, rule, state)
    begun, losses, saved = time.monotonic(), [], time.monotonic()
    point: dict[str, Any] = {}
    bar = progress.Bar(folder.name, recipe.steps, "steps", done=state.step, kept=True)
    ending = []
    with bar, console.handle_sigterm(lambda *_: ending.append(True)):
        for step in range(state.step, recipe.steps):
            rows = mesh.rows(task.batch((recipe.seed, step)))
            params, moments, value = step_fn(state.params, state.optimizer, rows)
            state = TrainState(params, moments, step + 1)
            losses.append(float(value))
            check_finite(folder, step, "the loss", losses[-1])
            seen = [show(name, point) for name in task.shown if point]
            loss = f"loss {np.mean(losses[-50:]):.3f}"
            bar.label = " ".join([folder.name, loss, *seen])
            bar.update(state.step)
            last = state.step == recipe.steps
            if state.step % recipe.evaluate_every == 0 or last:
                recent = round(float(np.mean(losses[-recipe.evaluate_every :])), 4)
                point = {"step": state.step, "loss": recent}
                for name, fixed in held_out.items():
                    each = [measure(state.params, rows) for rows in fixed]
                    for what, mean in token_means(each).items():
                        called = f"{name} {what}".strip()
                        point[called] = round(mean, 4)
                        check_finite(folder, step, called, mean)
                        if task.at_most and what.startswith(task.at_most):
                            point.setdefault(AT_MOST, []).append(called)
                point["seconds"] = round(time.monotonic() - begun, 1)
                with writing.name_path(curve), curve.open("a") as file:
                    file.write(json.dumps(point, allow_nan=False) + "\n")
                if report is not None:
                    report(point)
            due = state.step % recipe.checkpoint_every == 0 or last or ending
            falls = recipe.decay and state.step == recipe.steps - recipe.decay
            if due or falls or time.monotonic() - saved > SAVE_SECONDS:
                check_finite(folder, step, "the weights", not_finite(state.params))
                states.save(checkpoint, state)
                saved = time.monotonic()
            if falls:
                states.save(folder / "plateau", state)
            if ending and not last:
                again = "start the same command again to continue"
                with bar.paused():
                    print(f"stopped at step {state.step}; {again}")
                sys.exit(console.termination_code())
    return state.params


def measured(task: Task) -> Callable[[Any, Any], Totals]:
    """Returns the function that measures held-out batches; the loss is one of its
    numbers."""

    def totals(params: Any, rows: Any) -> Totals:
        more = {} if task.measure is None else task.measure(params, rows)
        weight = 1.0 if task.weight is None else task.weight(rows)
        return {"": (task.loss(params, rows) * weight, weight), **more}

    return totals


def token_means(batches: Sequence[Totals]) -> dict[str, float]:
    """Returns the mean of each number over the tokens of all batches; {} without
    batches."""
    found = {}
    for name in batches[0] if batches else ():
        whole, tokens = np.sum([np.array(each[name], float) for each in batches], 0)
        found[name] = float(whole / max(tokens, 1))
    return found


def show(name: str, point: Mapping[str, Any]) -> str:
    """Returns a number of a line of the curve as text, with "at most" where it is an
    upper bound."""
    return f"{bound_name(name, point)} {point[name]:.3f}"


def bound_name(name: str, point: Mapping[str, Any]) -> str:
    """Returns the name of a number of a line of the curve, followed by "at most" where
    it is an upper bound."""
    return f"{name} at most" if name in point.get(AT_MOST, ()) else name


@jax.jit
def not_finite(params: Any) -> Array:
    """Returns the magnitude of a weight that is not finite, or 0 if all weights are
    finite."""
    wrong = [
        jnp.where(jnp.isfinite(x), 0.0, jnp.abs(x)).max()
        for x in jax.tree.leaves(params)
    ]
    return jnp.stack([x.astype(jnp.float32) for x in wrong]).max()


def check_finite(folder: Path, step: int, what: str, value: Any) -> None:
    """Raises ValueError for a number of the last step (from 0) that is not finite.

    Raises:
      ValueError: it is not finite. The line names the step, and the finite state that
        is kept.
    """
    if math.isfinite(value):
        return
    there = states.last(folder / "checkpoint")
    kept = f"{folder} holds step {there.step}, which is finite" if there else ""
    raise ValueError(
        f"{what} is {float(value)} after step {step + 1}, so training stops;"
        f" {kept or 'nothing was kept yet'}: train in another folder with a lower rate"
    )


def resume(
    folder: Path, task: Task, rule: optax.GradientTransformation, recipe: Recipe
) -> TrainState:
    """Returns the state that a folder holds, or the initial one. Raises ValueError as
    `train` does.
    """
    there = states.last(folder / "checkpoint")
    done = there.step if there else 0
    check_same(folder / "recipe.json", task.sizes, recipe, done)
    params = task.init(root_key(recipe.seed))
    state = place(TrainState(params, rule.init(params), 0), task, rule)
    return there.read(state) if there else state


def check_mesh(name: str, task: Task, recipe: Recipe) -> None:
    """Raises ValueError for a run whose sizes the mesh in use cannot divide."""
    mesh.check_rows(recipe.batch)
    if mesh.layout.value is not None and mesh.layout.value.model > 1:
        shapes = jax.eval_shape(task.init, root_key(0))
        if task.config is None or not sharding.params_fit(shapes, task.config):
            raise ValueError(f"{name} trains no whole model: leave model out of --mesh")
        sharding.check_sizes(name, task.config, devices=mesh.layout.value.model)


def place(
    state: TrainState, task: Task, rule: optax.GradientTransformation
) -> TrainState:
    """Returns the state on the mesh in use, if there is one.

    The optimiser's values of a parameter are split like the parameter if they have its
    shape, and whole otherwise.
    """
    if mesh.layout.value is None:
        return state
    whole = PartitionSpec()
    if mesh.layout.value.model == 1:
        both = mesh.put((state.params, state.optimizer), whole)
        return TrainState(both[0], both[1], state.step)
    assert task.config is not None  # as `check_mesh` requires
    where = sharding.shardings(task.config)

    def put_like_param(leaf: Array, param: Array, at: NamedSharding) -> Array:
        alike = leaf.shape == param.shape
        return jax.device_put(leaf, at) if alike else mesh.put(leaf, whole)

    moments = optax.tree_map_params(
        rule,
        put_like_param,
        state.optimizer,
        state.params,
        where,
        transform_non_params=lambda leaf: mesh.put(leaf, whole),
    )
    return TrainState(jax.device_put(state.params, where), moments, state.step)


def rows_of(rows: Any) -> Any:
    """Returns rows on the mesh in use; rows that it cannot divide are replicated on
    every device.
    """
    chosen = mesh.layout.value or mesh.Layout()
    return mesh.rows(rows) if len(jax.tree.leaves(rows)[0]) % chosen.data == 0 else rows


def build_step(
    loss: Callable, rule: optax.GradientTransformation, state: TrainState
) -> Callable:
    """Returns a training step, whose result has the placement of the state that it is
    given."""

    def step(params: Any, moments: Any, rows: Any) -> tuple[Any, Any, Array]:
        value, gradient = jax.value_and_grad(loss)(params, rows)
        updates, moments = rule.update(gradient, moments, params)
        return optax.apply_updates(params, updates), moments, value

    where = None
    if mesh.layout.value is not None:
        where = *jax.tree.map(lambda leaf: leaf.sharding, state[:2]), None
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=where)


def check_same(path: Path, sizes: dict, recipe: Recipe, step: int) -> None:
    """Raises ValueError if a folder holds another run: other sizes or another recipe.

    The frequency of saving may differ, and so may the length if at `step` the rate has
    not begun to fall in either plan.
    """
    lasting = {k: v for k, v in recipe._asdict().items() if k not in SAVING}
    if path.exists():
        there, here = json.loads(path.read_text()), sizes | lasting
        there = there["config"] | there["recipe"]
        if TEXT in here:
            there.setdefault(TEXT, here[TEXT])
        there.setdefault("schedule", next(iter(FALLS)))
        if step <= min(it["steps"] - it["decay"] for it in (there, here)):
            there |= {key: here[key] for key in ("steps", "decay")}
        unlike = [
            f"{name} is {there.get(name)} there and {here.get(name)} here"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        if unlike:
            raise ValueError(
                f"{path.parent} holds a run of another recipe ({'; '.join(unlike)}):"
                " name another folder or delete this one"
            )
    replace(path, json.dumps({"config": sizes, "recipe": lasting}, indent=1).encode())


def digest(params: Any) -> str:
    """Returns the sha256 of names, shapes and weights, which does not depend on where
    they were read from.
    """
    whole = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        whole.update(f"{jax.tree_util.keystr(path)} {leaf.shape}".encode())
        whole.update(np.ascontiguousarray(leaf).data)
    return whole.hexdigest()
