"""Names in Redis. Keys of one delegation share a hash tag, so that they live in one slot of a cluster."""

from __future__ import annotations

EVENTS = "deputize:events"
"""Channel of every durable event; with ``:<id>`` behind it, of everything of one delegation."""
CANCEL = "deputize:cancel"
"""Channel of requests to cancel: ids."""
PRUNE = "deputize:prune"
"""Channel of requests to remove files: how old in seconds the ended delegations must be, then ids of any age."""
PRESENCE = "deputize:presence"
"""Worker processes that have not said that they leave, by owner."""
INDEX = "deputize:runs"
LEASES = "deputize:leases"
WORKERS = "deputize:workers"
"""Names of the workers that have announced themselves, by when their announcement lapses."""
TOOLS = "deputize:tools"
"""What the fleet's tools are, by name."""
BUS = "deputize:bus"
"""Channel on which nothing is published: it keeps a process's connection subscribed while nobody listens."""
KEY_PREFIX = "deputize:celery:"
"""Before every key and channel of Celery, so that one Redis can serve other Celery apps too."""


def presence_channel(owner: str) -> str:
    """The channel that a worker process holds subscribed while it lives."""
    return f"{PRESENCE}:{owner}"


def worker_key(name: str) -> str:
    """What one worker announces of itself."""
    return f"deputize:worker:{name}"


def idempotency_key(key: str) -> str:
    """Which delegation a caller's idempotency key stands for."""
    return f"deputize:idempotency:{key}"


def channel(id: str) -> str:
    return f"{EVENTS}:{id}"


def record_key(id: str) -> str:
    return f"deputize:run:{{{id}}}"


def events_key(id: str) -> str:
    return f"{record_key(id)}:events"


def history_key(id: str) -> str:
    return f"{record_key(id)}:history"


def ledger_key(id: str) -> str:
    """What is known of the calls of the turn under way, by call id."""
    return f"{record_key(id)}:ledger"


def children_key(id: str) -> str:
    """The ids of nested delegations, so that a cancel reaches them."""
    return f"{record_key(id)}:children"


def artifacts_key(id: str) -> str:
    """What the run has made to hand over, once it has ended (``shared/runs/artifacts.py``)."""
    return f"{record_key(id)}:artifacts"


def keys_of(id: str) -> list[str]:
    """All keys of one delegation: what gets a time to live when it ends."""
    return [record_key(id), events_key(id), history_key(id), ledger_key(id), children_key(id), artifacts_key(id)]
