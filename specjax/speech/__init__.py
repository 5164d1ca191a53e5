"""Speech recognition around a Whisper model: audio, rules of tokens, and
transcripts."""
