"""Whisper's special tokens at the end of 20 others, and 31 timestamps: 61 ids."""

from specjax.speech.tokens import Tokens

TEXT, VOCAB = 20, 61
LANGUAGES = ("en", "de")
NAMES = ("endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe")
NAMES += ("startoflm", "startofprev", "nospeech", "notimestamps")
IDS = {f"<|{name}|>": TEXT + i for i, name in enumerate(NAMES)}
SPOKEN = dict(tasks={"transcribe": 25, "translate": 24}, languages={"en": 22, "de": 23})
PLACES = dict(previous=27, no_speech=28, no_timestamps=29, first_time=30)
TOKENS = Tokens(end=20, start=21, **PLACES, **SPOKEN)
PROMPT = [21, 22, 25]
EARLIER = [27, 3, 31, 4]  # what was said before, with a time in it
