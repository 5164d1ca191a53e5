"""The voices that a small Whisper learns from: synthesized here, or recorded
elsewhere."""
