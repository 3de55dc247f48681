"""The numbers the README quotes: `python -m tests.benchmarks [NAME…] [--runs N] [--json FILE]`.

Real processes (Redis, workers, the API) against a model mock of our own. One file a number; a new number is a file
here and a line in ``__main__``. A number that is missed is printed as missed; it is never left out.
"""
