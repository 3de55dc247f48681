"""Records that this version cannot read: those of a newer one, and requests that an older client stored unchecked."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from ..delegation import Delegation
from ..errors import Conflict
from .record import OWNER, resource

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, zlib.error)
"""What a record of another version raises where it is read: a field that is not known, another form of a known one.

What this version does not know may be a limit or a check, so it is not passed over.
"""
_SURE = ("status", "created", "started", "finished", "attempt", "worker", OWNER)
"""The fields that no request decides."""


def readable(id: str, fields: Mapping[str, str]) -> Delegation:
    """Returns the delegation that a record's fields describe. Raises ``Conflict`` where this version cannot read it."""
    try:
        return resource(id, fields)
    except UNREADABLE as error:
        raise Conflict(
            f"{id} cannot be read by this version; a newer one may be able to. `deputize cancel {id}` ends it, and "
            f"then `deputize prune` removes it"
        ) from error


def outline(id: str, fields: Mapping[str, str]) -> Delegation:
    """Returns the same without its limits and result, and with its title as its task: for one that is to end."""
    sure = {name: fields[name] for name in _SURE if name in fields}
    request = json.dumps({"task": fields.get("title") or id})
    return resource(id, {**sure, "request": request, "limits": "{}"})
