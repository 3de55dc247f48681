"""What a request must fulfil before it is accepted, beyond its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..shared.errors import Invalid, Refused
from ..shared.fleet import MCP, ToolCard
from ..shared.request import VERIFY_ROUNDS, DelegationRequest, DirectoryWorkspace
from ..shared.request_rules import check_sizes, foreign_script, unknown_agent
from ..shared.settings import Settings
from ..shared.text import did_you_mean
from ..shared.wire import LONGEST_COMPARED, MAX_MISTAKES
from .delivery import check_git

MAX_SUGGESTIONS = 5
MAX_NAMED = 50


def check_requests(
    requests: Sequence[DelegationRequest], tools: Sequence[ToolCard], settings: Settings, *, batch: bool
) -> None:
    """Raises the error of a single request, or one Invalid with the first errors of a batch, by index."""
    mistakes: list[dict[str, str]] = []
    for index, request in enumerate(requests):
        try:
            _check(request, tools, settings)
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
        raise Invalid("; ".join(f"{each['pointer']}: {each['detail']}" for each in mistakes), mistakes)


def _check(request: DelegationRequest, tools: Sequence[ToolCard], settings: Settings) -> None:
    check_sizes(request)
    if reason := unknown_agent(request.agent, settings.agents):
        raise Invalid(reason, [{"pointer": "/agent", "detail": reason}])
    _check_tools(request.tools, tools)
    _check_version(request)
    if reason := foreign_script(request.model, settings):
        raise Invalid(reason, [{"pointer": "/model", "detail": reason}])
    if isinstance(request.workspace, DirectoryWorkspace):
        _check_directory(Path(request.workspace.path), settings)
    check_git(request, settings)


def _check_directory(path: Path, settings: Settings) -> None:
    """Checks a directory as far as possible here: with workers on other machines, only the path's root."""
    problem = None
    sources = settings.workspace_sources
    if not path.is_absolute():
        problem = "must be an absolute path on the worker's machine"
    elif sources is None and not settings.local:
        problem = "no directory may be copied from here; set DEPUTIZE_WORKSPACE_SOURCES to the allowed roots"
    elif sources is not None and not any(path.resolve().is_relative_to(root) for root in sources):
        problem = f"is not below an allowed root ({', '.join(map(str, sources))}); see DEPUTIZE_WORKSPACE_SOURCES"
    elif settings.local and not path.exists():
        problem = "does not exist; give a directory that does, or leave the workspace out for an empty one"
    elif settings.local and not path.is_dir():
        problem = "is not a directory; give the directory that holds it"
    if problem:
        detail = f"workspace path {str(path)!r} {problem}"
        raise Invalid(detail, [{"pointer": "/workspace/path", "detail": detail}])


def _check_version(request: DelegationRequest) -> None:
    """Raises Invalid for valid fields that this version does not support."""
    missing = {
        "/workspace/kind": (request.workspace.kind == "archive", "use 'git', 'directory' or 'empty'"),
        "/outputSchema": (request.output_schema is not None, "ask for the form in words, in expectedOutcome"),
        "/verify": (bool(request.verify), "check fileChanges and the patch of the result"),
        "/maxVerifyRounds": (request.max_verify_rounds != VERIFY_ROUNDS, "leave it out; nothing is verified"),
    }
    errors = [
        {"pointer": pointer, "detail": f"this version cannot do that yet; {instead}"}
        for pointer, (asked, instead) in missing.items()
        if asked
    ]
    if errors:
        raise Invalid("; ".join(f"{error['pointer']}: {error['detail']}" for error in errors), errors)


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
