"""Prepared environments: what the commands of runs need, made once for the same inputs and shown below their files."""
