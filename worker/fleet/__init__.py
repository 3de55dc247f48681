"""Coordination of workers: leases, the janitor, presence, and the announcement of tools."""
