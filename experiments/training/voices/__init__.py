"""The voices that a small Whisper learns from: synthesised here, or recorded
elsewhere.
"""
