"""The process that `experiments.starts.measure` times: it opens a pair, writes one text
twice, and prints when each of these was done, in one line of JSON.

`python -m experiments.starts.child TARGET DRAFT PROMPT TOKENS`
"""

import json
import sys
import time


def main(target: str, draft: str, prompt: str, tokens: str) -> int:
    """Prints the times of the stages, in seconds since the epoch, and `xla`, the
    seconds that XLA took to compile or to read what it compiled before.
    """
    import jax

    import specjax

    times = {"imported": time.time()}
    compiling: list[float] = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiling.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    opened = specjax.load(target)
    jax.block_until_ready(opened.params)
    times["read"] = time.time()
    for name in ("first", "again"):
        written = specjax.generate_text(opened, draft, [prompt], new_tokens=int(tokens))
        times[name] = time.time()
    print(json.dumps(times | {"xla": sum(compiling), "calls": written.calls}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
