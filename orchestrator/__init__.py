"""Accepts delegations, dispatches them to workers and reports their progress. Never runs a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.orchestrator import Orchestrator

__all__ = ["Orchestrator"]


def __getattr__(name: str) -> Any:
    """Imports on first use: the command line must answer ``--help`` without Redis, Celery or pydantic."""
    if name == "Orchestrator":
        from orchestrator.orchestrator import Orchestrator

        return Orchestrator
    raise AttributeError(name)
