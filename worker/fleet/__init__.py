"""What a worker does among others: leases, the janitor, presence, and the announcement of its tools."""
