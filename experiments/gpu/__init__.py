"""The work that waits for a chip; `run_all.sh` does all of it, stage by stage."""
