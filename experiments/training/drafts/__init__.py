"""The bundled drafts: the texts that their targets write, and the losses of
training."""
