"""The short forms of a request's fields, which their schemas do not have by themselves: a text, and null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT, _NULL = {"type": "string"}, {"type": "null"}
_HEAD = ("title", "description", "default")


def add_short_forms(schema: dict[str, Any]) -> None:
    """Adds them to the schema of a ``DelegationRequest``: a check is a command, a workspace a directory.

    Null is an optional field that is left out.
    """
    fields: dict[str, Any] = schema["properties"]
    checks = fields["verify"]
    fields["verify"] = {**checks, "type": [checks["type"], "string"], "items": _with(checks["items"], _TEXT)}
    fields["workspace"] = _with(fields["workspace"], _TEXT)
    for name in fields.keys() - schema["required"]:
        fields[name] = _with(fields[name], _NULL)


def _with(part: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a part of a schema that accepts this form, too."""
    own = {key: value for key, value in part.items() if key not in _HEAD}
    choices = own["anyOf"] if own.keys() == {"anyOf"} else [own]
    return {
        **{key: part[key] for key in _HEAD if key in part},
        "anyOf": choices if form in choices else [*choices, form],
    }
