"""The cost of giving rows and blocks to workers, and a count of the work that is lost
when workers are killed.

An empty task reads a gin file and lists its rows in a separate process, as a worker of
`specjax sweep` does before it measures a row. Blocks are those of `specjax decode`,
with texts that need no model. Half of their first workers kill themselves, in turns
before their texts are written and after.
"""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from specjax.cli import decode, sweep, workers
from specjax.cli.blocks import Block
from specjax.cli.decode import Setting
from specjax.measure.row import Measurement

ROW_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
GIN = "include 'gin_configs/runs/table1.gin'\nALPHA = 0.8\nGAMMA = 4\n"


def build(
    predicted: float, tasks: int, at_once: int, prompts: int, block: int
) -> Measurement:
    """Returns the measurement of one row.

    Args:
        predicted: the seconds of a task, predicted before they were measured.
        tasks: the number of empty tasks.
        at_once: the number of workers.
        prompts: the number of prompts.
        block: the number of prompts in a block.
    """
    run = partial(
        measure,
        predicted=predicted,
        tasks=tasks,
        at_once=at_once,
        prompts=prompts,
        block=block,
    )
    return Measurement(run, __name__)


def measure(
    *, predicted: float, tasks: int, at_once: int, prompts: int, block: int
) -> dict:
    """Measures tasks by one worker and by several, and counts the texts that are lost.

    Returns:
        task_s: seconds of a task by one worker.
        share_*: for a row that lasts as long, the share of a worker's time that is not
            spent on the row.
        killed: workers.
        lost, twice, changed: texts that are missing, that are there more than once, and
            that differ from those of a single process.
    """
    with tempfile.TemporaryDirectory() as folder:
        alone = seconds(Path(folder), tasks, 1) / tasks
        several = seconds(Path(folder), tasks, at_once) / tasks
        found = count_losses(
            Path(folder), at_once=at_once, prompts=prompts, block=block
        )
    shares = {f"share_{k}": alone / (alone + x) for k, x in ROW_SECONDS.items()}
    fields = {"tasks": tasks, "workers": at_once, "predicted_task_s": predicted}
    return fields | {"task_s": alone, "task_s_together": several} | shares | found


def seconds(folder: Path, tasks: int, at_once: int) -> float:
    """Returns the seconds that all tasks take together."""
    path, launcher = folder / "nothing.gin", make_launcher(folder)
    path.write_text(GIN)
    command = [sys.executable, "-m", "specjax", "run", "--list", str(path)]

    def begin(task: int):
        return workers.submit(launcher, sweep.work, command)

    begun = time.perf_counter()
    ends = [
        *workers.run_tasks(begin, range(tasks), workers=at_once, attempts=1, label=str)
    ]
    if failed := [how.error for _, how in ends if how.error]:
        raise ValueError(f"a task of nothing failed: {failed[0]}")
    return time.perf_counter() - begun


def make_launcher(folder: Path):
    """Returns the launcher of processes on this machine."""
    parser = decode.make_parser()
    chosen = parser.parse_args(["none", "--out", str(folder)])
    return workers.make_launcher(chosen, folder / "workers")


def count_losses(
    folder: Path, *, at_once: int, prompts: int, block: int
) -> dict[str, int]:
    """Decodes with workers that are killed; returns how many were killed, and what
    became of the texts.
    """
    path, out = folder / "prompts.jsonl", folder / "decoded"
    rows = [json.dumps({"prompt": f"prompt {i}"}) + "\n" for i in range(prompts)]
    path.write_text("".join(rows))
    argv = [str(path), "--out", str(out), "--block", str(block)]
    setting = decode.make_setting(decode.make_parser().parse_args(argv))
    launcher, every = make_launcher(folder), [*decode.list_blocks(setting)]
    with contextlib.redirect_stdout(io.StringIO()) as said:

        def begin(block: Block):
            return workers.submit(launcher, kill_first_worker, setting, block)

        ends = [
            *workers.run_tasks(begin, every, workers=at_once, attempts=3, label=str)
        ]
    kept = [how for _, how in ends if not how.error]
    if len(kept) == len(every):
        decode.finish(setting)
        text = (out / decode.TEXTS).read_text()
    else:
        text = "".join(p.read_text() for p in (out / "blocks").glob("*.jsonl"))
    got = [json.loads(line) for line in text.splitlines()]
    indices = [row["index"] for row in got]
    right = [row["text"] == f"text of {rows[row['index']].strip()}" for row in got]
    return {
        "blocks": len(every),
        "killed": said.getvalue().count("its worker died"),
        "lost": prompts - len(set(indices)),
        "twice": len(indices) - len(set(indices)),
        "changed": right.count(False),
    }


def kill_first_worker(setting: Setting, block: Block) -> tuple[int, str, str]:
    """Decodes a block, and kills its first worker where the block's number is even."""
    mark = setting.folder / f"begun.{block.number}"
    dies = block.number % 2 == 0 and not mark.exists()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    if dies and block.number % 4 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = decode.work(setting, block, make_texts)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def make_texts(
    setting: Setting, first: int, lines: list[tuple[int, bytes]]
) -> list[dict]:
    """Returns texts that need no model."""
    return [{"text": f"text of {raw.decode().strip()}"} for _, raw in lines]
