"""The directories that checks run in, made of the base and the run's changes."""
