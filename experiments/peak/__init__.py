"""The arithmetic of native products, over what the processor can do in registers."""
