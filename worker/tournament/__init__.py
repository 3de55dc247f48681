"""Runs that do a task several times, as child delegations, and take the best result."""
