"""The time that masks cost a step of speculative decoding."""
