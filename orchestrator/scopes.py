"""Scopes: what a token is for, and which MCP tool needs which; ``operations`` has those of the routes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Scope(StrEnum):
    """None includes another one: a token has exactly those that its entry lists."""

    READ = "read"
    SUBMIT = "submit"
    APPROVE = "approve"
    """For answers to permission requests; to list them is ``read``."""
    ADMIN = "admin"
    METRICS = "metrics"
    """For Prometheus, which needs nothing else: a token with it alone reads no delegation."""


ALL = frozenset(Scope)
MCP_PATH = "/mcp"
OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json", "/", "/web/{name:path}"})
"""For probes, for clients that are generated, and the files of the web page; they need no token."""

_READ, _SUBMIT, _APPROVE = (frozenset({scope}) for scope in (Scope.READ, Scope.SUBMIT, Scope.APPROVE))

MCP_RESOURCES = _READ
MCP_TOOLS: Mapping[str, frozenset[Scope]] = {
    "delegate": _SUBMIT | _READ,
    "delegate_start": _SUBMIT | _READ,
    "delegate_many": _SUBMIT | _READ,
    "cancel": _SUBMIT | _READ,
    "send_message": _SUBMIT,
    "wrap_up": _SUBMIT,
    "delegate_result": _READ,
    "delegations": _READ,
    "pending_permissions": _READ,
    "answer_permission": _APPROVE,
}
"""Tools that submit or cancel also return what a run did, so they need both scopes."""
