"""The rules that a request must meet before it is accepted, beyond its schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from ..shared.checks import CommandCheck
from ..shared.errors import Invalid, Refused
from ..shared.fleet import MCP, Fleet, ToolCard
from ..shared.patch_format import parse_patch
from ..shared.request import ArchiveWorkspace, Attempts, DelegationRequest, DirectoryWorkspace
from ..shared.request_rules import (
    check_sizes,
    foreign_script,
    misspelt_model,
    no_effort,
    request_of_attempt,
    unknown_agent,
)
from ..shared.runs import permissions
from ..shared.runs.cost import fields_of_records
from ..shared.runs.record import OWNER, not_found
from ..shared.runs.store import kept_for
from ..shared.settings import Settings
from ..shared.settings.environments import unknown_environment
from ..shared.text import did_you_mean
from ..shared.wire import LONGEST_COMPARED, MAX_MISTAKES, now
from ..shared.workspaces import IS_PRIVATE, UPLOAD_POINTER, is_in_one, upload_link, use_upload
from .delivery import check_git
from .request_fields import validated

MAX_SUGGESTIONS = 5
MAX_NAMED = 50
SHOWN_PLACES = 3


def check_requests(
    requests: Sequence[DelegationRequest],
    tools: Sequence[ToolCard],
    settings: Settings,
    *,
    batch: bool,
    owner: str | None = None,
) -> None:
    """Raises the error of a single request, or one Invalid with the first errors of a batch, by index.

    ``owner``: whose uploads there are; None: all.
    """
    mistakes: list[dict[str, str]] = []
    for index, request in enumerate(requests):
        try:
            _check(request, tools, settings, owner)
        except Refused as refusal:
            if not batch:
                raise
            each = refusal.errors or [{"pointer": "", "detail": refusal.detail}]
            placed = [error | {"pointer": f"/requests/{index}{error['pointer']}"} for error in each]
            if not isinstance(refusal, Invalid):
                raise type(refusal)(refusal.detail, placed) from None
            mistakes += placed[: MAX_MISTAKES - len(mistakes)]
        if len(mistakes) >= MAX_MISTAKES:
            break
    if mistakes:
        raise Invalid(_once_each(mistakes), mistakes)


def _once_each(mistakes: Sequence[Mapping[str, str]]) -> str:
    """Returns the mistakes of a batch as one line, in which what several requests have in common stands once."""
    places: dict[str, list[str]] = {}
    for each in mistakes:
        places.setdefault(each["detail"], []).append(each["pointer"])

    def listed(pointers: Sequence[str]) -> str:
        more = len(pointers) - SHOWN_PLACES
        return ", ".join(pointers[:SHOWN_PLACES]) + (f" and {more} more" if more > 0 else "")

    return "; ".join(f"{listed(at)}: {detail}" for detail, at in places.items())


async def check_after(
    redis: Any, requests: Sequence[DelegationRequest], *, batch: bool, owner: str | None = None
) -> None:
    """Raises Invalid where a request waits for a delegation that does not exist. ``owner``: whose exist; None: all."""
    ids = sorted({each.id for request in requests for each in request.after})
    records = await fields_of_records(redis, ids, "status", OWNER)
    gone, errors = set[str](), list[dict[str, str]]()
    for id, (status, of) in zip(ids, records, strict=True):
        if status is None or owner not in (None, of or ""):
            gone.add(id)
    for index, request in enumerate(requests) if gone else ():
        for number, each in enumerate(request.after):
            if each.id in gone and len(errors) < MAX_MISTAKES:
                place = f"/requests/{index}" if batch else ""
                errors.append({"pointer": f"{place}/after/{number}/id", "detail": not_found(each.id[:100]).detail})
    if errors:
        raise Invalid.of(errors)


async def check_deadlines(redis: Any, requests: Sequence[DelegationRequest], *, batch: bool, owner: str) -> None:
    """Raises Invalid where a deadline has passed, but for what was accepted before under its idempotency key.

    What follows a delegation may have its deadline: it bounds only several attempts, which would end at once.
    """
    errors: list[dict[str, str]] = []
    for index, request in enumerate(requests):
        follows = (request.continues or request.retry_of) and not request.attempts
        if request.deadline is None or request.deadline > now() or follows or await _is_known(redis, request, owner):
            continue
        place = f"/requests/{index}" if batch else ""
        detail = f"{request.deadline.astimezone(UTC):%FT%TZ} has passed; give a later time, or leave it out"
        errors.append({"pointer": f"{place}/deadline", "detail": detail})
        if len(errors) == MAX_MISTAKES:
            break
    if errors:
        raise Invalid.of(errors)


async def _is_known(redis: Any, request: DelegationRequest, owner: str) -> bool:
    """Returns whether a delegation was accepted with the idempotency key of a request."""
    key = request.idempotency_key
    return key is not None and bool(await redis.exists(kept_for(key, owner)))


def _check(request: DelegationRequest, tools: Sequence[ToolCard], settings: Settings, owner: str | None) -> None:
    check_sizes(request)
    validated(DelegationRequest, request.to_dict())  # a request that was made of another one, too, has to be readable
    if reason := unknown_agent(request.agent, settings.agents):
        raise Invalid.at("/agent", reason)
    if reason := unknown_environment(request.environment, settings.environments):
        raise Invalid.at("/environment", reason)
    _check_tools(request.tools, tools)
    if request.output_schema is not None:
        from ..shared.output_schema import check_output_schema

        check_output_schema(request.output_schema)
    if request.require != "passed" and not request.verify:
        why = f"nothing is {request.require} without a check in `verify`; add one, or leave it out"
        raise Invalid.at("/require", why)
    _check_commands(request, settings)
    if request.attempts:
        _check_attempts(request, request.attempts, settings)
    else:
        _check_model(request, settings, "/model", "/effort")
    if isinstance(request.workspace, DirectoryWorkspace) and not request.merges:
        _check_directory(Path(request.workspace.path), settings)
    if isinstance(request.workspace, ArchiveWorkspace) and not (request.builds_on or request.merges):  # has files
        check_upload(request.workspace.upload, settings, owner)
    check_git(request, settings)
    if request.webhook and (reason := settings.webhook.refusal(request.webhook)):
        raise Invalid.of([{"pointer": "/webhook", "detail": reason}])


def _check_attempts(request: DelegationRequest, asked: Attempts, settings: Settings) -> None:
    """Raises Invalid where there is nothing to decide by, or nothing to begin with, and for models of the attempts."""
    if not request.verify:
        raise Invalid.at("/attempts", "checks decide which attempt is taken; add one in `verify`, or leave this out")
    if request.builds_on or request.merges:
        raise Invalid.at("/attempts", "each attempt begins anew; leave this out where a delegation builds on others")
    for number in range(asked.count):
        at = {name: len(getattr(asked, name)) for name in ("models", "efforts")}
        places = [f"/attempts/{name}/{number % many}" if many else f"/{name[:-1]}" for name, many in at.items()]
        _check_model(request_of_attempt(request, number, settings), settings, *places)


def _check_model(request: DelegationRequest, settings: Settings, of_model: str, of_effort: str) -> None:
    if reason := foreign_script(request.model, settings) or misspelt_model(request.model, settings):
        raise Invalid.at(of_model, reason)
    if reason := no_effort(request, settings):
        raise Invalid.at(of_effort, reason)


def _check_directory(path: Path, settings: Settings) -> None:
    """Checks a directory as far as possible here: with workers on other machines, only the path's root."""
    problem = None
    sources = settings.workspace_sources
    if not path.is_absolute():
        problem = "must be an absolute path on the worker's machine"
    elif sources is None and not settings.local:
        problem = "may not be copied: with DEPUTIZE_REDIS_URL none may, until DEPUTIZE_WORKSPACE_SOURCES names roots"
    elif sources is not None and not any(path.resolve().is_relative_to(root) for root in sources):
        problem = f"is not below an allowed root ({', '.join(map(str, sources))}); see DEPUTIZE_WORKSPACE_SOURCES"
    elif is_in_one(path.resolve(), settings.private):
        problem = IS_PRIVATE
    elif settings.local and not path.exists():
        problem = "does not exist; give a directory that does, or leave the workspace out for an empty one"
    elif settings.local and not path.is_dir():
        problem = "is not a directory; give the directory that holds it"
    if problem:
        raise Invalid.at("/workspace/path", f"workspace path {str(path)!r} {problem}")


def check_upload(upload: str, settings: Settings, owner: str | None) -> None:
    """Raises Invalid where an upload is not there for this owner; else begins the time anew that it is kept."""
    is_own = owner is None or upload_link(settings.workspaces, owner, upload).is_symlink()
    if not is_own or use_upload(settings.workspaces, upload) is None:
        kept = f"uploads are kept for {settings.upload_retention_seconds:,} s after their last use"
        raise Invalid.at(
            UPLOAD_POINTER,
            f"there is no upload {upload} here ({kept}); send the archive by PUT /v1/uploads, then this again",
        )


def _check_commands(request: DelegationRequest, settings: Settings) -> None:
    """Raises Invalid for checks that no worker can make."""
    errors: list[dict[str, str]] = []
    for number, check in enumerate(request.verify):
        if not isinstance(check, CommandCheck):
            continue
        if (check.timeout_seconds or 0) > (most := settings.caps.timeout_seconds):
            detail = f"{check.timeout_seconds:g} is above the server's cap; at most {most:g}"
            errors.append({"pointer": f"/verify/{number}/timeoutSeconds", "detail": detail})
        if check.canary and (reason := _wrong_patch(check.canary)):
            errors.append({"pointer": f"/verify/{number}/canary", "detail": reason})
    if errors:
        raise Invalid.of(errors)


def _wrong_patch(text: str) -> str | None:
    try:
        return None if parse_patch(text) else "is not a unified diff in git's format, which begins with diff --git"
    except Invalid as error:
        return error.detail


def _check_tools(asked: Sequence[str] | None, known: Sequence[ToolCard]) -> None:
    """Raises Invalid for unknown tool names.

    Names of MCP tools, and all names before a first announcement, are checked by the worker.
    """
    if not asked or not known:
        return
    names, aliases = [card.name for card in known], {alias: card.name for card in known for alias in card.aliases}
    errors: list[dict[str, str]] = []
    for index, pattern in enumerate(asked):
        if not (pattern.startswith(MCP) or any(fnmatchcase(name, pattern) for name in (*names, *aliases))):
            detail = _unknown_tool(pattern, names, aliases, len(errors))
            errors.append({"pointer": f"/tools/{index}", "detail": detail})
            if len(errors) == MAX_MISTAKES:
                break
    if errors:
        raise Invalid("; ".join(error["detail"] for error in errors), errors)


def _unknown_tool(pattern: str, names: Sequence[str], aliases: Mapping[str, str], before: int) -> str:
    """Returns the error text; with the closest names only for the first mistakes, because comparing takes time."""
    near = ""
    if before < MAX_SUGGESTIONS and len(pattern) <= LONGEST_COMPARED:
        near = did_you_mean(pattern, names, aliases=aliases)
    some = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
    hint = near or (f"known: {some}" if not before else "see /v1/tools")
    return f"unknown tool {json.dumps(pattern)}; {hint}"


async def check_arguments(redis: Any, fleet: Fleet, id: str, arguments: Mapping[str, Any] | None) -> None:
    """Raises ``Invalid`` with each mistake in the arguments, if there are any, for the call of a permission request.

    Only tools of our own are checked: other schemas may take long to evaluate.
    """
    if arguments is None:
        return
    name = (await permissions.find(redis, id)).request.step.tool_name
    card = next((card for card in await fleet.tools() if card.name == name and card.source == "builtin"), None)
    mistakes = await asyncio.to_thread(_mistakes, card.parameters, arguments) if card else []
    if mistakes:
        raise Invalid(f"these are not arguments of {name}: {mistakes[0]['detail']}", mistakes)


def _mistakes(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    from jsonschema_rs import Draft202012Validator  # imported late: most services never need it

    from ..shared.json_schema import pointer_to

    errors = Draft202012Validator(dict(schema), offline=True).iter_errors(dict(arguments))
    return [
        {"pointer": pointer_to(("arguments", *error.instance_path)), "detail": error.message[:500]}
        for error in islice(errors, MAX_MISTAKES)
    ]
