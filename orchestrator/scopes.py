"""Scopes: what a token is for, and the one table of which route and which MCP tool needs which."""

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

_READ, _SUBMIT, _APPROVE, _ADMIN, _METRICS = (frozenset({scope}) for scope in Scope)
_ANY_TOKEN = frozenset[Scope]()
"""The messages of MCP are all alike to HTTP, so its tools and resources are checked one by one."""

ROUTES: Mapping[tuple[str, str], frozenset[Scope]] = {
    ("POST", "/v1/delegations"): _SUBMIT,
    ("POST", "/v1/delegations:batch"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/cancel"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/continue"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/deliver"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/messages"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/resume"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/retry"): _SUBMIT,
    ("POST", "/v1/delegations/{id}/webhooks:redeliver"): _SUBMIT,
    ("POST", "/v1/merges"): _SUBMIT,
    ("PUT", "/v1/uploads"): _SUBMIT,
    ("GET", "/v1/cost"): _READ,
    ("GET", "/v1/delegations"): _READ,
    ("GET", "/v1/delegations:count"): _READ,
    ("GET", "/v1/delegations/{id}"): _READ,
    ("GET", "/v1/delegations/{id}/artifacts/{name}"): _READ,
    ("GET", "/v1/delegations/{id}/events"): _READ,
    ("GET", "/v1/delegations/{id}/files"): _READ,
    ("GET", "/v1/delegations/{id}/files/{path:file}"): _READ,
    ("GET", "/v1/delegations/{id}/patch"): _READ,
    ("GET", "/v1/delegations/{id}/steps"): _READ,
    ("GET", "/v1/disk"): _READ,
    ("GET", "/v1/events"): _READ,
    ("GET", "/v1/permissions"): _READ,
    ("GET", "/v1/tools"): _READ,
    ("GET", "/v1/webhooks"): _READ,
    ("GET", "/v1/workers"): _READ,
    ("POST", "/v1/permissions/{permissionId}"): _APPROVE,
    ("GET", "/v1/audit"): _ADMIN,
    ("POST", "/v1/delegations:prune"): _ADMIN,
    ("GET", "/metrics"): _METRICS,
    ("POST", "/v1/workers/{name}/drain"): _ADMIN,
    ("GET", MCP_PATH): _ANY_TOKEN,
    ("POST", MCP_PATH): _ANY_TOKEN,
    ("DELETE", MCP_PATH): _ANY_TOKEN,
}
"""By method and path. A route that is not here is refused to every token."""

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
