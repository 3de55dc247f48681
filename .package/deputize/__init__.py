"""Delegate tasks to LLM tool agents that run in parallel on a pool of Celery workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deputize.orchestrator.orchestrator import Orchestrator

__all__ = ["Orchestrator"]


def __getattr__(name: str) -> Any:
    """Imports on first use: the command line must answer ``--help`` without Redis, Celery or pydantic."""
    if name == "Orchestrator":
        from deputize.orchestrator.orchestrator import Orchestrator

        return Orchestrator
    raise AttributeError(f"module 'deputize' has no attribute {name!r}")
