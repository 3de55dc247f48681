"""Scopes: what a token is for. ``operations`` has those of the operations."""

from __future__ import annotations

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
    ALL = "all"
    """For the delegations of all owners; without it a token is confined to those of its own."""


ALL = frozenset(Scope)
MCP_PATH = "/mcp"
