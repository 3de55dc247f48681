"""The fields of a request as options of `run` and `batch`."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...shared.errors import Invalid, Refused, placed
from ...shared.request_options import OPTIONS, Option
from . import completion, output
from .errors import Exit, refusal
from .values import AFTER, DIRECTORY, LABEL, NAMES, RETRY, TEXT, Finite, Parsed, read_text

if TYPE_CHECKING:
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

_WORKSPACE_OPTIONS = (
    click.option(
        "-w",
        "--workspace",
        type=DIRECTORY,
        metavar="DIR",
        help="Work on a copy of this directory. Default: the current one in a git repository, else an empty one.",
    ),
    click.option("--git", metavar="URL", help="Work on a clone of this git repository, by https."),
    click.option("--ref", metavar="REF", help="The branch, tag or commit of --git; default: its default branch."),
    click.option("--depth", type=click.IntRange(1), metavar="N", help="How many commits of --git; default: 1."),
    click.option("--no-workspace", is_flag=True, help="Work in an empty directory."),
    click.option("--with-ignored", is_flag=True, help="Also copy files that .gitignore names."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Do not copy this, as in .gitignore; repeatable."),
)
FLAGS = {
    "task": "TASK",
    **{pointer: option.flag for pointer, option in OPTIONS.items()},
    "workspace/exclude": "--exclude",
    "workspace/upload": "--upload",
    **{f"workspace/{name}": f"--{option}" for name, option in {"url": "git", "ref": "ref", "depth": "depth"}.items()},
    "workspace": "--workspace",
    "deliver": "--deliver",
    "webhook": "--webhook",
    "attempts": "--attempts",
}
"""Pointers into a request, and what the command line calls them."""


_REPEATABLE: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "labels": lambda given: dict(label.split(":", 1) for label in given),
    "checks": list,
    "globs": list,
    "after": list,
}
"""What the values of an option that may be repeated become together."""


def request_options(command: Command) -> Command:
    """Adds an option for each field of a request but the task."""
    command = options_of(*OPTIONS)(command)
    for option in reversed(_WORKSPACE_OPTIONS):
        command = option(command)
    return command


def options_of(*pointers: str) -> Callable[[Command], Command]:
    """Returns what adds the options of some fields."""

    def add(command: Command) -> Command:
        for option in (OPTIONS[pointer] for pointer in reversed(pointers)):
            how, shown, many = _type(option), option.placeholder, option.kind in _REPEATABLE
            if option.kind == "checks":
                command = _VERIFY_FILE(command)
            complete = completion.OF_FIELDS.get(option.flag)
            command = click.option(
                option.flag, type=how, multiple=many, metavar=shown, help=option.help, shell_complete=complete
            )(command)
        return command

    return add


def _type(option: Option) -> click.ParamType[Any]:
    match option.kind:
        case "text" | "names" | "labels" | "after" | "retry":
            return {"text": TEXT, "names": NAMES, "labels": LABEL, "after": AFTER, "retry": RETRY}[option.kind]
        case "json":
            return Parsed("file", lambda path: _object_in_file(path, "JSON Schema", '{"type": "object", …}'))
        case "whole":
            return click.IntRange(option.least, option.most)
        case "number":
            return Finite(option.above, min_open=True)
        case "word" | "checks" | "globs":
            return click.Choice(option.choices) if option.choices else click.STRING


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The fields of a request that options set, by their names on the wire."""

    fields: dict[str, Any]
    task: str = "TASK"
    """How the command names the task."""
    file: str = ""
    """The file that sets fields besides them, if there is one."""

    def name(self, pointer: str, *, given: bool = True) -> str | None:
        """Returns the option that set the value at the pointer, or could set it, with the item of a list."""
        for path, flag in FLAGS.items():
            if not f"{pointer}/".startswith(f"/{path}/"):
                continue
            if given and not _holds(self.fields, path):
                return None
            item = pointer.removeprefix(f"/{path}").strip("/")
            return (self.task if path == "task" else flag) + (f", item {int(item) + 1}" if item.isdigit() else "")
        return None

    def place(self, pointer: str) -> str | None:
        """Returns what set the value at the pointer, an option or the file, or the option that could set it."""
        from_file = ": ".join(filter(None, (self.file, pointer))) if self.file else None
        return self.name(pointer) or from_file or self.name(pointer, given=False)


def _holds(fields: Mapping[str, Any], path: str) -> bool:
    head, _, rest = path.partition("/")
    return head in fields and (not rest or _holds(fields[head], rest))


def given_options(given: Mapping[str, Any], *, task: str = "TASK", file: str = "") -> RequestOptions:
    """Returns the fields that the options set; others keep their defaults."""
    fields = {"task": given["task"], "workspace": _workspace(given)} | given_fields(given)
    return RequestOptions({name: value for name, value in fields.items() if value is not None}, task, file)


def given_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that options of the table set, those of the limits below ``limits``."""
    fields: dict[str, Any] = {}
    for pointer, option in OPTIONS.items():
        value = given.get(option.parameter)
        if option.kind in _REPEATABLE:
            value = _REPEATABLE[option.kind](value or ()) or None
        if option.kind == "checks":
            in_files = [check for checks in given.get("verify_file") or () for check in checks]
            value = [*(value or ()), *in_files] or None
        if value is not None:
            *parents, name = pointer.split("/")
            inside = fields
            for parent in parents:
                inside = inside.setdefault(parent, {})
            inside[name] = value
    return fields


def workspace_here(settings: Settings, given: Mapping[str, Any]) -> Path | None:
    """Returns the directory to copy: the one that was named, else this one where it is in a git repository.

    A service elsewhere cannot see it, and a repository that begins at the home directory has more than a project.
    """
    named: Path | None = given["workspace"]
    elsewhere = settings.url or given.get("upload") or given["git"]
    if named or given["no_workspace"] or given["continues"] or given["from_turn"] or elsewhere:
        return named
    from ...shared.git import repository_of

    return Path() if repository_of(Path.cwd()) not in (None, Path.home()) else None


def note_if_empty(requests: Iterable[DelegationRequest], given: Mapping[str, Any]) -> None:
    """Notes that work begins without files, unless that was asked for."""
    empty = any(request.workspace.kind == "empty" and not request.builds_on for request in requests)
    if empty and not given["no_workspace"]:
        output.note("note: in an empty directory; -w . is for a copy of this one, --no-workspace for none")


def agree_to_copies(requests: Iterable[DelegationRequest], settings: Settings) -> None:
    """Notes how large the copies are, where they are large. Ends the command if a person at a terminal refuses."""
    from ..large_copies import large_copies

    sentences = [each.replace("`exclude`", "--exclude PATTERN") for each in large_copies(requests, settings)]
    output.lines(sentences, err=True)
    if sentences and output.can_ask() and not output.confirm("Go on?"):
        raise click.exceptions.Exit(Exit.CANCELLED)


def _workspace(given: Mapping[str, Any]) -> dict[str, Any] | None:
    workspace: Path | None = given["workspace"]
    if given["git"]:
        return _clone(given)
    if given["ref"] or given["depth"]:
        raise click.UsageError("--ref and --depth are about the repository of --git URL, which is missing")
    if upload := given.get("upload"):
        return {"kind": "archive", "upload": upload}
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


def _clone(given: Mapping[str, Any]) -> dict[str, Any]:
    if any(given[name] for name in ("workspace", "no_workspace", "with_ignored", "exclude")):
        raise click.UsageError("--git excludes the other options for the files to work on, but --ref and --depth")
    clone = {"kind": "git", "url": given["git"], "ref": given["ref"], "depth": given["depth"]}
    return {name: value for name, value in clone.items() if value is not None}


def read_json(text: str) -> Any:
    """Returns the value of JSON text. Raises ValueError, also where two values have the same key."""
    from ...shared.wire import unique_keys

    return json.loads(text, object_pairs_hook=unique_keys)


def _json_in_file(path: str) -> Any:
    try:
        return read_json(read_text(None if path == "-" else path))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def _object_in_file(path: str, what: str, example: str) -> dict[str, Any]:
    fields = _json_in_file(path)
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is not a JSON object; a {what} is, as {example}")
    return fields


def _checks_in_file(path: str) -> list[Any]:
    checks = _json_in_file(path)
    if isinstance(checks, dict):
        return [checks]
    if not isinstance(checks, list) or not all(isinstance(check, (dict, str)) for check in checks):
        raise ValueError(f'{path} has no checks; a check is {{"kind": "command", "run": "…"}}, several are a list')
    return checks


_VERIFY_FILE = click.option(
    "--verify-file",
    type=Parsed("file", _checks_in_file),
    multiple=True,
    metavar="FILE",
    help="A check as JSON, or a list of them, with all of their fields; repeatable.",
)


def _request_in_file(path: str) -> tuple[str, dict[str, Any]]:
    fields = _object_in_file(path, "request", '{"task": "…"}')
    return "stdin" if path == "-" else path, fields


REQUEST_FILE = Parsed("file", _request_in_file)
"""A file with a request as JSON, or - for stdin: its name and the fields."""


@contextmanager
def in_options(name: Callable[[str], str | None]) -> Generator[None]:
    """Puts the names of options, or what else ``name`` returns, into a refusal in place of pointers."""
    try:
        yield
    except Refused as error:
        errors = [each | {"pointer": name(each["pointer"]) or each["pointer"]} for each in error.errors]
        if len(errors) != 1:
            raise type(error)(refusal(errors).detail if errors else error.detail, errors) from None
        before, after = error.errors[0]["pointer"], errors[0]
        detail = error.detail.replace(before, "", 1).removeprefix(": ") if before else error.detail
        raise type(error)(placed(after | {"detail": detail or after["detail"]}), errors) from None


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of both; of limits and labels each key, otherwise the whole of ``over``."""
    from ...shared.limits import Limits
    from ...shared.request import DelegationRequest
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

    from ...shared.request import DelegationRequest
    from ...shared.wire import explain
    from ..request_fields import located_in

    try:
        return located_in(Path(), DelegationRequest.model_validate(fields))
    except ValidationError as error:
        raise Invalid("", explain(error, DelegationRequest)) from None
