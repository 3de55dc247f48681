"""A storm: delegations of two tenants with effects that can be counted, and faults of all kinds beside them.

``stage`` is what the storm falls on, ``faults`` what happens to it, ``waves`` the delegations and how each is judged,
``vitals`` what processes and Redis hold. `python -m tests.system.storm --minutes 10` (`make chaos`) runs one.
"""
