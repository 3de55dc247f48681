"""The checks of a request: run by the worker, on files made of the base and the run's changes, outside of its reach."""
