"""Measurements that need an accelerator; `run_all.sh` runs all of them, stage by
stage."""
