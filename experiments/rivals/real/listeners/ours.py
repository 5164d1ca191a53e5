"""`specjax.speech.transcribe`, as `specjax transcribe` calls it."""

from collections.abc import Callable

from experiments.records import compilation
from specjax.speech.pair import opened
from specjax.speech.transcripts import transcribe


def load(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    """drafts: more programs by name, each with the draft of a name."""
    compilation.keep()

    def program(draft: str | None) -> Callable:
        pair = opened(path, draft, kind)
        options = dict(language="en", timestamps=False, condition=False, batch=1)

        def run(file: str) -> tuple[str, list[int]]:
            done = transcribe(pair, None, [file], temperatures=(0.0,), **options)
            (transcript,) = done.transcripts
            ids = [i for segment in transcript.segments for i in segment.tokens]
            return transcript.text, [int(i) for i in ids]

        return run

    named = {"plain": None} | drafts
    return {name: program(draft) for name, draft in named.items()}
