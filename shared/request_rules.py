"""What the settings make of a request: named agents fill it in, and caps and rules on models hold for every caller."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import Invalid, TooLarge
from .request import MAX_REQUEST_BYTES, MAX_TEXT_BYTES, DelegationRequest
from .settings import AgentSettings, SandboxSettings, Settings
from .text import did_you_mean
from .wire import LONGEST_COMPARED


def with_agent(request: DelegationRequest, agents: Mapping[str, AgentSettings]) -> DelegationRequest:
    """Returns the request with its agent's settings where it has none itself; as it is for an unknown agent."""
    agent = agents.get(request.agent or "")
    if agent is None:
        return request
    fills: dict[str, Any] = {
        name: getattr(agent, name)
        for name in ("system_prompt", "model", "effort", "tools")
        if getattr(request, name) is None and getattr(agent, name) is not None
    }
    if agent.economy is not None and "economy" not in request.model_fields_set:
        fills["economy"] = agent.economy
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
            raise Invalid.at("/agent", f"{reason}; the service and all workers need the same agents")
        if profile := settings.agents[name].sandbox if name else None:
            own = settings.sandbox.in_profile(profile)
            sandbox = own.within(sandbox) if depth else own
    return sandbox


def misspelt_model(name: str | None, settings: Settings) -> str | None:
    """Returns why a name is taken for that of a table of ``models``, misspelt; None for what may be a model's own name.

    The endpoint may have models of any name. So a misspelt one has as many words and numbers as the table's, the same
    numbers, and words that are alike: ``hous`` beside ``house``, and neither ``house-2`` nor ``mouse:7b``.
    """
    if name is None or name in settings.models or len(name) > LONGEST_COMPARED:
        return None
    if alike := [table for table in settings.models if _is_alike(_parts(name), _parts(table))]:
        near = did_you_mean(name, alike, cutoff=0)
        return f"there is no table [models.{name}]; {near} There are {', '.join(settings.models)}."
    return None


def _parts(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+|\d+", name.casefold())


def _is_alike(parts: Sequence[str], others: Sequence[str]) -> bool:
    return len(parts) == len(others) and all(
        part == other or (not part.isdecimal() and did_you_mean(part, [other], cutoff=0.6) != "")
        for part, other in zip(parts, others, strict=True)
    )


PREFIX = "scripted:"


def check_sizes(request: DelegationRequest) -> None:
    """Raises ``TooLarge`` for a request over one of the caps (UTF-8 bytes)."""
    text = sum(len(each.encode()) for each in (request.task, request.context, request.system_prompt or ""))
    if text > MAX_TEXT_BYTES:
        words = "task, context and systemPrompt" if request.system_prompt else "task and context"
        raise TooLarge(f"{words} are {text:,} bytes together; the cap is {MAX_TEXT_BYTES:,}")
    whole = len(request.to_json().encode())
    if whole > MAX_REQUEST_BYTES:
        raise TooLarge(f"the request is {whole:,} bytes; the cap is {MAX_REQUEST_BYTES:,}")


def foreign_script(model: str | None, settings: Settings) -> str | None:
    """Returns why a request may not name this model, or None if it may."""
    if model is None or model == settings.model or not model.startswith(PREFIX) or model == PREFIX:
        return None
    try:
        named = Path(model.removeprefix(PREFIX)).resolve()
        if settings.scripts is not None and named.is_relative_to(settings.scripts.resolve()):
            return None
    except (OSError, ValueError, RuntimeError):  # not a path, or a symbolic link to itself
        pass
    return "a request may not name a script; the operator's settings do, by DEPUTIZE_MODEL or DEPUTIZE_SCRIPTS"


def with_effort(request: DelegationRequest, settings: Settings) -> DelegationRequest:
    """Returns the request with the effort of its model's table, where it has none itself."""
    effort = request.effort or settings.table_of(request.model).effort
    return request.model_copy(update={"effort": effort}) if effort and request.needs_model else request


def request_of_attempt(request: DelegationRequest, number: int, settings: Settings) -> DelegationRequest:
    """Returns the request of an attempt, from 0, of those that a request asks for; its files are those of the request.

    What is done with the result is left to the delegation that takes the best one.
    """
    asked = request.attempts
    assert asked
    own: dict[str, Any] = dict.fromkeys(("attempts", "deliver", "webhook", "retry_of"))
    if asked.models:
        own["model"] = asked.models[number % len(asked.models)]
    if asked.efforts:
        own["effort"] = asked.efforts[number % len(asked.efforts)]
    return with_effort(request.model_copy(update=own | {"after": []}), settings)


def filled_in(request: DelegationRequest, settings: Settings) -> DelegationRequest:
    """Returns the request with what the settings of its agent and of its model fill in."""
    return with_effort(with_agent(request, settings.agents), settings)


def no_effort(request: DelegationRequest, settings: Settings) -> str | None:
    """Returns why the model of a request takes no effort; None where it may, or where none is asked for.

    Of all others the endpoint decides: which names have one changes with each release.
    """
    if request.effort is None:
        return None
    name, table = request.model or settings.model, settings.table_of(request.model)
    advice = "leave effort out, or name another model"
    if "effort" in table.lacks:
        return f"the model {name} takes none, as `lacks` of its table states; {advice}"
    if name == "scripted" or name.startswith(PREFIX):
        return f"the model {name} is a script and takes none; {advice}"
    return None
