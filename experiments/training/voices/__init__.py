"""Voices for a small Whisper to learn from: synthesised here, or recorded elsewhere."""
