"""Trains a draft for Whisper base on the target's own transcripts: an hour on a CPU.

    specjax fetch whisper-base
    python -m experiments.training.voices.read_aloud --texts FILE --out runs/read_aloud
    python -m experiments.training.zoo_whisper --texts FILE
      --said runs/read_aloud FOLDER --recordings FOLDER

A FOLDER holds recordings in English, as `voices.recorded` reads them. Transcripts of
those of --said replace the target's. The stages, each resumable and skipped when done,
are the target's texts for other recordings and for synthesised speech, with times and
without, greedy and sampled, and its law at every token; the ids of the draft, chosen by
these laws and by their frequency in --texts; the draft, which begins as the first and
the last layer of its target's decoder, as in Distil-Whisper (Gandhi et al. 2023,
https://arxiv.org/abs/2311.00430), and uses its target's encoder. The results in
`runs/whisper_base` are copied into the package with their recipe and curves. Axes: N
windows, B of them, F frames, M bands, S states of the encoder, E features.
"""

import argparse
from pathlib import Path

import numpy as np

from experiments.training import pipeline
from experiments.training.drafts import reduced_vocab
from experiments.training.voices import recorded
from experiments.training.voices.recorded import Sound
from specjax.decode_config import DecodeConfig
from specjax.runtime import progress
from specjax.speech import decoding, logmel
from specjax.speech import tokens as special
from specjax.speech.pair import Listeners, load_pair
from specjax.training import loop, written
from specjax.training.written import Texts, Written

TARGET, DRAFT = "whisper-base", "whisper_base_draft"


def main() -> None:
    folders = dict(type=Path, nargs="+", default=[])
    counts_of = "batches", "synthesised"
    flags = {
        "--recordings": folders,
        "--said": folders,
        "--texts": dict(type=Path),
        **{f"--{name}": dict(type=int) for name in counts_of},
        **pipeline.EXPORT,
    }
    options, recipe = pipeline.parse_flags(
        __doc__, "whisper_base", "runs/whisper_base", flags
    )
    plan = recipe["heard"]
    given = {name: getattr(options, name) for name in counts_of}
    plan |= {name: count for name, count in given.items() if count is not None}
    pair = load_pair(TARGET, None)
    batches = write_batches(pair, sounds(pair, options, plan), options.runs, plan)
    apart, path = plan["held_out"], options.export / f"{DRAFT}.safetensors"
    more = None if options.texts is None else counts(pair, options.texts)
    reduced_vocab.train(
        pair.target,
        held_out=batches[:apart],
        parts={"heard": batches[apart:]},
        runs=options.runs,
        path=path,
        recipe=recipe,
        more=more,
    )


def sounds(pair: Listeners, options: argparse.Namespace, plan: dict) -> list[Sound]:
    """Returns all windows of sound, shuffled."""
    most = pair.target.config.frames * logmel.HOP
    found = list(recorded.synthesised_windows(plan["synthesised"], plan["seconds"]))
    for place in options.recordings:
        found += recorded.windows(place, most)
    for place in options.said:
        found += recorded.transcribed_windows(place, most)
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def counts(pair: Listeners, texts: Path) -> np.ndarray:
    """Returns how often each id [V] occurs in the lines of a file."""
    counted = np.zeros(pair.target.config.vocab)
    for line in texts.read_text("utf-8").splitlines():
        np.add.at(counted, pair.write(line), 1)
    return counted


def write_batches(
    pair: Listeners, found: list[Sound], runs: Path, plan: dict
) -> list[Written]:
    """Returns the target's texts, batch by batch, each stored in a file.

    The first batches are held out, each window once; the others repeat the remaining
    windows. Even rows are greedy, and two of four have times.
    """
    apart, size = plan["held_out"] * plan["batch"], plan["batch"]
    rest, target = len(found) - apart, loop.digest(pair.target.params)
    if rest < 1:
        raise ValueError(
            f"{len(found)} windows of speech, of which {apart} are held out: name more"
            " --recordings"
        )
    alone = DecodeConfig(gamma=0)
    decode = [decoding.build(pair, alone, timestamps=x) for x in (True, False)]

    def place(row: int) -> int:
        if row < apart:
            return row
        turn, at = divmod(row - apart, rest)
        return apart + int(np.random.default_rng(turn).permutation(rest)[at])

    def batch(number: int) -> Written:
        rows = range(number * size, (number + 1) * size)
        chosen = [found[place(row)] for row in rows]
        names = [sound.name for sound in chosen]
        made = {"target": target, "sounds": names, "longest": plan["longest"]}
        return written.keep(
            runs / "heard" / f"{number:04}.npz",
            pair.target,
            texts=lambda: transcript_texts(pair, decode, chosen, plan["longest"]),
            about=made,
            batch=size,
        )

    return [batch(i) for i in progress.track(range(plan["batches"]), "batches")]


def transcript_texts(
    pair: Listeners, decode: list, chosen: list[Sound], longest: int
) -> Texts:
    """Returns the target's transcripts, cut to `longest` tokens, after their
    prompts."""
    config, count = pair.target.config, len(chosen)
    frames = np.stack(
        [logmel.features(sound.read(), config.bands, config.frames) for sound in chosen]
    )
    tokens = np.full((count, longest), pair.tokens.end, np.uint16)
    length, begun = np.zeros((2, count), np.int32)
    for part, timed in enumerate((True, False)):
        rows = np.flatnonzero(np.arange(count) // 2 % 2 == part)
        head = special.prompt(pair.tokens, timestamps=timed)
        known = [row for row in rows if chosen[row].said]
        texts = {row: human_transcript(pair, chosen[row], timed) for row in known}
        own = np.array([row for row in rows if row not in texts], int)
        if own.size:
            heats = np.float32(own % 2)
            wrote = decode[part](frames[own], [head] * own.size, heats).tokens
            texts |= dict(zip(own, wrote, strict=True))
        for row, text in texts.items():
            ended = [pair.tokens.end] * (len(text) < decoding.LONGEST)
            ids = (head + text + ended)[:longest]
            tokens[row, : len(ids)] = ids
            length[row], begun[row] = len(ids), len(head)
    states = np.asarray(decoding.encoder(config)(pair.target.params, frames))
    return Texts(tokens, length, begun, states, np.zeros(count, np.int32))


def human_transcript(pair: Listeners, sound: Sound, timed: bool) -> list[int]:
    """Returns a human transcript of a window as ids, from the start token to the end
    token."""
    text = pair.write(sound.said)
    first = pair.tokens.first_time
    end = first + round(len(sound.read()) / logmel.RATE / special.STEP)
    return [first, *text, end] if timed else text


if __name__ == "__main__":
    pipeline.command(main)
