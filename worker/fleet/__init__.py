"""Coordination of workers: leases, the janitor, presence, announcements, and gates before a model's endpoint."""
