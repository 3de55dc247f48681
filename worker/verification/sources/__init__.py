"""Source files as they were before the run, or broken on purpose."""
