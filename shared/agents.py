"""Named agents of the settings: they fill in what a request that names one leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Invalid
from .request import DelegationRequest
from .settings import AgentSettings, SandboxSettings, Settings
from .text import did_you_mean


def with_agent(request: DelegationRequest, agents: Mapping[str, AgentSettings]) -> DelegationRequest:
    """Returns the request with its agent's settings where it has none itself; as it is for an unknown agent."""
    agent = agents.get(request.agent or "")
    if agent is None:
        return request
    fills: dict[str, Any] = {
        name: getattr(agent, name)
        for name in ("system_prompt", "model", "tools")
        if getattr(request, name) is None and getattr(agent, name) is not None
    }
    if agent.approval_mode and "approval_mode" not in request.model_fields_set:
        fills["approval_mode"] = agent.approval_mode
    limits = {name: value for name, value in agent.limits.items() if name not in request.limits.model_fields_set}
    return request.model_copy(update=fills | {"limits": request.limits.model_copy(update=limits)})


def unknown_agent(name: str | None, agents: Mapping[str, AgentSettings]) -> str | None:
    """Returns what is wrong with the name of an agent, or None."""
    if name is None or name in agents:
        return None
    if not agents:
        return f"there is no agent {name[:100]!r}, for the service's settings define none ([agents.NAME])"
    return f"there is no agent {name[:100]!r}; {did_you_mean(name[:100], agents) or 'there are ' + ', '.join(agents)}"


def sandbox_of(path: Sequence[str | None], settings: Settings) -> SandboxSettings:
    """Returns the sandbox of the last delegation of a path from the root of its tree, by the names of their agents.

    An agent without a profile changes nothing. That of a child delegation is never wider than its parent's. Raises
    Invalid for an agent that these settings do not have, because its profile could be a stricter one.
    """
    sandbox = settings.sandbox
    for depth, name in enumerate(path):
        if reason := unknown_agent(name, settings.agents):
            detail = f"{reason}; the service and all workers need the same agents"
            raise Invalid(detail, [{"pointer": "/agent", "detail": detail}])
        if profile := settings.agents[name].sandbox if name else None:
            own = settings.sandbox.in_profile(profile)
            sandbox = own.within(sandbox) if depth else own
    return sandbox
