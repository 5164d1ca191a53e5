"""The launching of jobs on clusters, and the cost of giving work to workers."""
