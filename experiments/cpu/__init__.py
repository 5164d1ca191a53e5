"""Where the time of a call goes on a CPU."""
