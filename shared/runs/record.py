"""Between a record's fields in Redis and the models of the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from shared.delegation import Delegation, DelegationRequest, Limits, Progress, Status
from shared.errors import NotFound
from shared.event_size import capped
from shared.events import Envelope, RunQueued
from shared.wire import now

LISTED_CHARACTERS = 2000
"""So much of each text of a request stands in a list; the delegation itself has all of it."""


def not_found(id: str) -> NotFound:
    return NotFound(f"there is no delegation {id}; it never was, or its retention is over. `deputize list` shows them.")


def acceptance(id: str, request: DelegationRequest, limits: Limits) -> dict[str, Any]:
    """One delegation as the accept script takes it."""
    body = request.to_json()
    event = Envelope(delegation_id=id, seq=1, at=now(), attempt=0, event=RunQueued(request=request))
    fields = {
        "request": body,
        "limits": limits.to_json(),
        "created": now().isoformat(),
        "title": request.title,
        "priority": request.priority,
    }
    return {
        "id": id,
        "hash": sha256(body.encode()).hexdigest(),
        "event": capped(event.to_json()),
        "fields": fields,
    }


def resource(id: str, fields: Mapping[str, str]) -> Delegation:
    """The delegation that a record's fields say."""
    return Delegation.model_validate(
        {
            "id": id,
            "status": fields["status"],
            "createdAt": fields["created"],
            "startedAt": fields.get("started"),
            "finishedAt": fields.get("finished"),
            "attempt": fields["attempt"],
            "worker": fields.get("worker") or None,
            "request": json.loads(fields["request"]),
            "effectiveLimits": json.loads(fields["limits"]),
            "progress": json.loads(fields["progress"]) if "progress" in fields else Progress(),
            "result": json.loads(fields["result"]) if "result" in fields else None,
        }
    )


def matches(found: Delegation, status: Status | None, session: str | None, labels: Mapping[str, str]) -> bool:
    return (
        (status is None or found.status == status)
        and (session is None or found.request.session_id == session)
        and labels.items() <= found.request.labels.items()
    )


def brief(found: Delegation) -> Delegation:
    """A delegation as lists show it: a page of whole ones could be a gigabyte."""
    asked = found.request
    short = {name: _cut(getattr(asked, name)) for name in ("task", "context", "expected_outcome")}
    result = found.result and found.result.model_copy(update={"details": _cut(found.result.details)})
    return found.model_copy(update={"request": asked.model_copy(update=short), "result": result})


def _cut(text: str) -> str:
    return text if len(text) <= LISTED_CHARACTERS else text[: LISTED_CHARACTERS - 1] + "…"
