"""The bundled drafts: what their targets write, and the losses they learn by."""
