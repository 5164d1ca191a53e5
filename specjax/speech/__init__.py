"""What is around a Whisper model: sound in, tokens ruled and read, text with times out.

Nothing here knows a model: features go to it and tokens come from it as arguments.
"""
