"""Linux features that Python's modules lack: process trees, pipes of children, control groups, facts of the system."""
