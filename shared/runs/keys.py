"""Names in Redis; ``shared/docs/redis-keys.md`` explains each of them.

Keys of one delegation share a hash tag, so that they live in one slot of a cluster.
"""

from __future__ import annotations

EVENTS = "deputize:events"
"""Channel of every durable event; with ``:<id>`` appended, of all events of one delegation."""
CANCEL = "deputize:cancel"
"""Channel of cancellation requests: ids."""
MESSAGES = "deputize:messages"
"""Channel of messages to running delegations: ids of the delegations."""
DRAIN = "deputize:drain"
"""Channel of requests to workers to drain: their names."""
PRUNE, PRUNED = "deputize:prune", "deputize:pruned"
"""Channel of requests to remove files: the minimum age in seconds, then ids of any age; and such ids by time."""
PENDING = "deputize:permissions"
"""Permission requests without an answer: the ids from the root to the delegation that asks, by the request's id."""
PRESENCE = "deputize:presence"
"""Worker processes that have not signed off, by owner."""
INDEX = "deputize:runs"
BILLS = f"{INDEX}:bills"
"""What each finished delegation cost, by id."""
LEASES = "deputize:leases"
WORKERS = "deputize:workers"
"""Names of the workers that have announced themselves, by the expiry time of their announcement."""
TOOLS = "deputize:tools"
"""The fleet's tools, by name."""
BUS = "deputize:bus"
"""Channel on which nothing is published: it keeps a process's connection subscribed without listeners."""
PACES = "deputize:paces"
"""The endpoints that have a pace, or a spend limit that is reached."""
OWNER_WEIGHTS = "deputize:weights"
"""How many turns owners have for each one of another owner, by owner, where that is not 1."""
WAITING_RUNS = "deputize:queue"
"""The owners of runs that wait for a place in a worker, by their turn; with ``:<owner>`` appended, those runs."""
RESERVED_MONEY, SPENT_MONEY, OWNER_CAPS = (f"deputize:spend:{each}" for each in ("reserved", "total", "caps"))
"""What runs have reserved for model calls under way, and what was spent in all time, by counter; the caps of owners."""
AUDIT = "deputize:audit"
"""Stream of the requests that changed something (``orchestrator/audit_log.py``)."""
REFUSED = "deputize:audit:refused"
"""Stream of the refused ones among them, apart, so that many of these cannot displace the others."""
WEBHOOKS = "deputize:webhooks"
"""Notifications that were not delivered, by the time at which they are due: those of ``FIRST_KINDS``."""
FIRST_KINDS = ("delegation.finished", "permission.requested")
"""What version 0.1.0 notifies of. A worker of it stops at any other kind."""
ACKNOWLEDGED = "deputize:acknowledged"
"""How many writes of each history were counted for replicas to acknowledge (``shared/runs/replicas.py``)."""
METRICS = "deputize:metrics"
"""Totals for ``GET /metrics``, by metric and labels (``shared/metrics.py``)."""
KEY_PREFIX = "deputize:celery:"
"""Prefix of every key and channel of Celery, so that one Redis can serve other Celery apps too."""


def presence_channel(owner: str) -> str:
    return f"{PRESENCE}:{owner}"


def outage_key(endpoint: str) -> str:
    return f"deputize:outage:{endpoint}"


def pace_key(endpoint: str) -> str:
    return f"deputize:pace:{endpoint}"


def waiting_runs_key(owner: str) -> str:
    return f"{WAITING_RUNS}:{owner}"


def economy_key(endpoint: str) -> str:
    return f"deputize:economy:{endpoint}"


def economy_queue_key(endpoint: str) -> str:
    return f"{economy_key(endpoint)}:queue"


def economy_turn_key(id: str) -> str:
    return f"deputize:economy-turn:{id}"


def prefix_key(prefix: str) -> str:
    return f"deputize:prefix:{prefix}"


def worker_key(name: str) -> str:
    return f"deputize:worker:{name}"


def idempotency_key(key: str) -> str:
    return f"deputize:idempotency:{key}"


def owned_idempotency_key(owner: str, key: str) -> str:
    return f"deputize:idempotency-of:{owner}:{key}"


def schedule_key(name: str) -> str:
    return f"deputize:schedule:{name}"


def spend_key(day: str) -> str:
    return f"deputize:spend:{day}"


def channel(id: str) -> str:
    return f"{EVENTS}:{id}"


def filed_key(under: str) -> str:
    return f"{INDEX}:{under}"


def record_key(id: str) -> str:
    return f"deputize:run:{{{id}}}"


def events_key(id: str) -> str:
    return f"{record_key(id)}:events"


def history_key(id: str) -> str:
    return f"{record_key(id)}:history"


def ledger_key(id: str) -> str:
    return f"{record_key(id)}:ledger"


def children_key(id: str) -> str:
    return f"{record_key(id)}:children"


def dependants_key(id: str) -> str:
    return f"{record_key(id)}:dependants"


def artifacts_key(id: str) -> str:
    return f"{record_key(id)}:artifacts"


def permissions_key(id: str) -> str:
    return f"{record_key(id)}:permissions"


def grants_key(id: str) -> str:
    return f"{record_key(id)}:grants"


def webhooks_key(id: str) -> str:
    return f"{record_key(id)}:webhooks"


def messages_key(id: str) -> str:
    return f"{record_key(id)}:messages"


def permission_channel(id: str) -> str:
    return f"{PENDING}:{id}"


def webhooks_queue(kind: str) -> str:
    """Returns the queue of notifications of a kind. Versions that do not know the kind never look there."""
    return WEBHOOKS if kind in FIRST_KINDS else f"{WEBHOOKS}:{kind}"


def keys_of(id: str) -> list[str]:
    """Returns all keys of one delegation, which get a time to live when it ends."""
    of_the_run = record_key, events_key, history_key, ledger_key, children_key, artifacts_key
    return [key(id) for key in (*of_the_run, permissions_key, grants_key, webhooks_key, dependants_key, messages_key)]
