"""Speech to text by a pair of Whispers: files in, transcripts out.

`transcripts` is the whole way in one call, `transcribe` the command; what is around a
model, sound and tokens and windows, is in `specjax.speech`.
"""
