"""Where the time of a token goes on a CPU, and how near to its peak products are."""
