"""faster-whisper, which is CTranslate2's Whisper with its own features and windows."""

from collections.abc import Callable

from faster_whisper import WhisperModel


def load(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    options = dict(device="cpu", cpu_threads=threads, num_workers=1)
    model = WhisperModel(path, compute_type=kind, **options)
    same = dict(language="en", beam_size=1, temperature=0.0, without_timestamps=True)

    def run(file: str) -> tuple[str, list[int]]:
        found, _ = model.transcribe(file, condition_on_previous_text=False, **same)
        segments = [*found]  # which is what decodes
        text = "".join(segment.text for segment in segments).strip()
        return text, [i for segment in segments for i in segment.tokens]

    return {"plain": run}
