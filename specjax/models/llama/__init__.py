"""Decoders of Llama's kind: Llama, Mistral, Qwen and Gemma, by a table of styles."""

from specjax.models.llama.sizes import STYLES, Config, Rotation, Stretch, Style

__all__ = ["STYLES", "Config", "Rotation", "Stretch", "Style"]
