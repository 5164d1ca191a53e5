"""Rules that keep a prefix of a draft; one file each, of `specjax.types.Verifier`."""
