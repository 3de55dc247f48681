"""Evaluations: each task several times, and what its results state about the configuration that did them."""
