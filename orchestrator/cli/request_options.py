"""The fields of a request as options of `run` and `batch`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import output
from .errors import message, refusal
from .values import (
    OPTIONS,
    Directory,
    Finite,
    Label,
    Names,
    Retry,
    Text,
    read_text,
    stdin_once,
)

if TYPE_CHECKING:
    from ...shared.errors import Refused
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
APPROVAL_MODES = ("ask", "sandboxed", "auto", "readOnly")
CALL_STYLES = ("native", "xml")

_OPTIONS = (
    click.option("--context", type=Text(), metavar="TEXT|@FILE|-", help="Background the worker needs."),
    click.option(
        "--shared-context-length",
        type=click.IntRange(0),
        metavar="CHARACTERS",
        help="How much of the context's beginning other delegations have, too; all of it if unsaid.",
    ),
    click.option("--expect", type=Text(), metavar="TEXT|@FILE|-", help="What must be true at the end."),
    click.option(
        "-w",
        "--workspace",
        type=Directory(),
        metavar="DIR",
        help="Work on a copy of this directory. Default: the current one in a git repository, else an empty one.",
    ),
    click.option("--no-workspace", is_flag=True, help="Work in an empty directory."),
    click.option("--with-ignored", is_flag=True, help="Copy what .gitignore names, too."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Do not copy this, as in .gitignore; repeatable."),
    click.option("--agent", metavar="NAME", help="An agent of the settings; other options take precedence over it."),
    click.option(
        "--system-prompt",
        type=Text(),
        metavar="TEXT|@FILE|-",
        help="Who the worker is and how it works, instead of ours.",
    ),
    click.option(
        "--tools", type=Names(), metavar="A,B", help="Only these tools; names or patterns; * is all but call_subagent."
    ),
    click.option("--approval", type=click.Choice(APPROVAL_MODES), help="Who decides on risky steps."),
    click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Replies of the model, at most."),
    click.option("--max-tool-calls", type=click.IntRange(0), metavar="N", help="Tool calls, at most."),
    click.option("--timeout", type=Finite(0, min_open=True), metavar="S", help="Seconds of work, at most."),
    click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens of the model, at most."),
    click.option("--max-cost", type=Finite(0, min_open=True), metavar="USD", help="US dollars, at most."),
    click.option("--model", metavar="M", help="Another model than the configured one."),
    click.option("--tool-call-style", type=click.Choice(CALL_STYLES), help="How tool calls travel to the model."),
    click.option(
        "--label", "labels", type=Label(), multiple=True, metavar="KEY:VALUE", help="A label to find it by; repeatable."
    ),
    click.option("--priority", type=click.IntRange(0, 9), metavar="0-9", help="Higher ones start first; 5 if unsaid."),
    click.option(
        "--retry", type=Retry(), metavar="N[:REASON,…]", help="Do it again by itself where it fails, at most N times."
    ),
    click.option("--session", metavar="ID", help="The parent's session; `list --session` finds it."),
    click.option("--message-id", metavar="ID", help="The parent's message."),
    click.option("--parent", metavar="ID", help="The delegation that this one belongs to."),
    click.option("--idempotency-key", metavar="KEY", help="Sent twice with the same key it is one delegation."),
    click.option("--continues", metavar="ID", help="The finished delegation that it goes on with."),
    click.option("--retry-of", metavar="ID", help="The finished delegation that it repeats."),
    click.option("--from-turn", type=click.IntRange(1), metavar="N", help="The turn of --retry-of to begin with."),
)


def request_options(command: Command) -> Command:
    """Adds an option for each field of a request but the task."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What was given of a request by options: its fields in the words of the wire, and the option of each pointer."""

    fields: dict[str, Any]
    task: str = "TASK"
    """How the command names the task."""

    def name(self, pointer: str, *, given: bool = True) -> str | None:
        """Returns the option that set the value at the pointer, or could set it, with the item of a list."""
        for path, option in OPTIONS.items():
            if pointer.strip("/") != path and not pointer.startswith(f"/{path}/"):
                continue
            if given and not _holds(self.fields, path):
                return None
            item = pointer.removeprefix(f"/{path}").strip("/")
            return (self.task if path == "task" else option) + (f", item {int(item) + 1}" if item.isdigit() else "")
        return None


def _holds(fields: Mapping[str, Any], path: str) -> bool:
    head, _, rest = path.partition("/")
    return head in fields and (not rest or _holds(fields[head], rest))


def given_options(given: Mapping[str, Any], *, task: str = "TASK") -> RequestOptions:
    """Returns the fields that the options set; others keep their defaults."""
    limits = {
        "maxTurns": given["max_turns"],
        "maxToolCalls": given["max_tool_calls"],
        "timeoutSeconds": given["timeout"],
        "maxTokens": given["max_tokens"],
        "maxCostUsd": given["max_cost"],
    }
    fields = {
        "task": given["task"],
        "context": given["context"],
        "expectedOutcome": given["expect"],
        "sessionId": given["session"],
        "messageId": given["message_id"],
        "limits": {name: value for name, value in limits.items() if value is not None} or None,
        "agent": given["agent"],
        "systemPrompt": given["system_prompt"],
        "tools": given["tools"],
        "approvalMode": given["approval"],
        "model": given["model"],
        "toolCallStyle": given["tool_call_style"],
        "workspace": _workspace(given),
        "labels": dict(label.split(":", 1) for label in given["labels"]) or None,
        "priority": given["priority"],
        "retry": given["retry"],
        "parentId": given["parent"],
        "idempotencyKey": given["idempotency_key"],
        "continues": given["continues"],
        "retryOf": given["retry_of"],
        "fromTurn": given["from_turn"],
        "sharedContextLength": given["shared_context_length"],
    }
    return RequestOptions({name: value for name, value in fields.items() if value is not None}, task)


def workspace_here(settings: Settings, given: Mapping[str, Any]) -> Path | None:
    """Returns the directory to copy: the one that was named, else this one where it is in a git repository.

    A service elsewhere cannot see it, and a repository that begins at the home directory has more than a project.
    """
    named: Path | None = given["workspace"]
    if named or given["no_workspace"] or given["continues"] or given["from_turn"] or settings.url:
        return named
    from ...shared.git import repository_of

    return Path() if repository_of(Path.cwd()) not in (None, Path.home()) else None


def note_if_empty(requests: Iterable[DelegationRequest], given: Mapping[str, Any]) -> None:
    """Notes that work begins without files, unless that was asked for."""
    empty = any(request.workspace.kind == "empty" and not request.builds_on for request in requests)
    if empty and not given["no_workspace"]:
        output.line("note: in an empty directory; -w . is for a copy of this one, --no-workspace for none", err=True)


def _workspace(given: Mapping[str, Any]) -> dict[str, Any] | None:
    workspace: Path | None = given["workspace"]
    if given["no_workspace"]:
        if workspace or given["with_ignored"] or given["exclude"]:
            raise click.UsageError("--no-workspace excludes --workspace, --with-ignored and --exclude")
        return {"kind": "empty"}
    rules = {"ignored": given["with_ignored"], "exclude": [*given["exclude"]]}
    if workspace is None:
        if any(rules.values()):
            raise click.UsageError(
                "--with-ignored and --exclude are about the copy of --workspace DIR, which is missing"
            )
        return None
    # The worker runs in another working directory.
    path = {"kind": "directory", "path": str(workspace.absolute())}
    return path | {name: value for name, value in rules.items() if value}


def read_json(text: str) -> Any:
    """Returns the value of JSON text. Raises ValueError, also where two values have the same key."""
    from ...shared.wire import unique_keys

    return json.loads(text, object_pairs_hook=unique_keys)


class RequestFile(click.ParamType["tuple[str, dict[str, Any]]"]):
    """A file with a request as JSON, or - for stdin: its name and the fields."""

    name = "file"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, Any]]:
        try:
            if value == "-":
                fields = read_json(read_text(stdin_once(ctx)))
            else:
                with Path(value).open("rb") as file:
                    fields = read_json(read_text(file))
        except OSError as error:
            self.fail(f"{value} cannot be read: {error.strerror}", param, ctx)
        except json.JSONDecodeError as error:
            self.fail(f"{value} is not valid JSON: {error}", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not isinstance(fields, dict):
            self.fail(f'{value} is not a JSON object; a request is, as {{"task": "…"}}', param, ctx)
        return "stdin" if value == "-" else value, fields


def in_options(error: Refused, name: Callable[[str], str | None]) -> Refused:
    """Returns the refusal with the names of options, or what else ``name`` returns, instead of pointers."""
    errors = [each | {"pointer": name(each["pointer"]) or each["pointer"]} for each in error.errors]
    if len(errors) > 1:
        return type(error)(refusal(errors).detail, errors)
    detail = error.detail
    for before, after in zip(error.errors, errors, strict=True):
        detail = detail.replace(before["pointer"], "", 1).removeprefix(": ") if before["pointer"] else detail
        detail = message({"pointer": after["pointer"], "detail": detail or after["detail"]})
    return type(error)(detail, errors)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of both; of limits and labels each key, otherwise the whole of ``over``."""
    from ...shared.request import DelegationRequest, Limits
    from ...shared.wire import meant

    under, over = (_in_wire_names(meant(DelegationRequest, each), DelegationRequest) for each in (under, over))
    both = {**under, **over}
    for name in ("limits", "labels"):
        one, other = under.get(name), over.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            both[name] = {**_in_wire_names(one, Limits), **_in_wire_names(other, Limits)}
    return both


def _in_wire_names(fields: Mapping[str, Any], model: type[Any]) -> dict[str, Any]:
    """Python's names of fields are accepted, too, and must not hide that both sides set the same one."""
    wire = {name: field.alias or name for name, field in model.model_fields.items()}
    return {wire.get(name, name): value for name, value in fields.items()}


def read_request(fields: Mapping[str, Any]) -> DelegationRequest:
    """Returns the request. Raises Invalid with a pointer for each mistake."""
    from pydantic import ValidationError

    from ...shared.errors import Invalid
    from ...shared.request import DelegationRequest
    from ...shared.wire import explain

    try:
        return DelegationRequest.model_validate(fields).located_in(Path())
    except ValidationError as error:
        raise Invalid("", explain(error, DelegationRequest)) from None
