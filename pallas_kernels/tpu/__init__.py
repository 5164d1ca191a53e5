"""Verification on TPUs: one launch, by Mosaic TPU."""
