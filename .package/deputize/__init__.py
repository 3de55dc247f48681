"""Delegate tasks to LLM tool agents that run in parallel on a pool of Celery workers.

async with deputize.Orchestrator() as orchestrator:
    result = await orchestrator.delegate("Count the public classes", workspace="/path/to/project")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deputize.orchestrator.blocking import SyncOrchestrator as SyncOrchestrator
    from deputize.orchestrator.blocking import run as run
    from deputize.orchestrator.delegate_tool import DelegateTool as DelegateTool
    from deputize.orchestrator.delegate_tool import ToolAnswer as ToolAnswer
    from deputize.orchestrator.orchestrator import Orchestrator as Orchestrator
    from deputize.shared.delegation import Delegation as Delegation
    from deputize.shared.delegation import DelegationFailed as DelegationFailed
    from deputize.shared.delegation import Status as Status
    from deputize.shared.delegation import TerminationReason as TerminationReason
    from deputize.shared.delegation import ToolAgentResult as ToolAgentResult
    from deputize.shared.errors import Conflict as Conflict
    from deputize.shared.errors import DeputizeError as DeputizeError
    from deputize.shared.errors import Invalid as Invalid
    from deputize.shared.errors import Misconfigured as Misconfigured
    from deputize.shared.errors import NotFound as NotFound
    from deputize.shared.errors import Refused as Refused
    from deputize.shared.errors import TooLarge as TooLarge
    from deputize.shared.errors import Unauthorized as Unauthorized
    from deputize.shared.errors import Unavailable as Unavailable
    from deputize.shared.events import Envelope as Envelope
    from deputize.shared.limits import Limits as Limits
    from deputize.shared.request import ApprovalMode as ApprovalMode
    from deputize.shared.request import DelegationRequest as DelegationRequest
    from deputize.shared.settings import Settings as Settings

_HOMES = {
    "orchestrator.blocking": ("SyncOrchestrator", "run"),
    "orchestrator.delegate_tool": ("DelegateTool", "ToolAnswer"),
    "orchestrator.orchestrator": ("Orchestrator",),
    "shared.delegation": ("Delegation", "DelegationFailed", "Status", "TerminationReason", "ToolAgentResult"),
    "shared.errors": (
        "Conflict",
        "DeputizeError",
        "Invalid",
        "Misconfigured",
        "NotFound",
        "Refused",
        "TooLarge",
        "Unauthorized",
        "Unavailable",
    ),
    "shared.events": ("Envelope",),
    "shared.limits": ("Limits",),
    "shared.request": ("ApprovalMode", "DelegationRequest"),
    "shared.settings": ("Settings",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # with it, a checker would take every name for one of ours
    __all__ = [*_HOME_OF]  # noqa: PLE0604 - they are texts

    def __getattr__(name: str) -> Any:
        """Imports on first use: the command line must answer ``--help`` without Redis, Celery or pydantic."""
        if name not in _HOME_OF:
            raise AttributeError(f"module 'deputize' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"deputize.{_HOME_OF[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *_HOME_OF})
