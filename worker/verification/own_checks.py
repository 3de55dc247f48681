"""Kinds of checks that a worker was started with: Python code that looks at the files before a run and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import ConfigDict, ValidationError

from ...shared.checks import OwnCheck, VerifyItem
from ...shared.wire import Wire, explain
from ..adapters.adapter import try_call
from ..threads import run_in_thread
from ..workspace.manifest import scan
from ..workspace.workspace import Changed
from .file_checks import MAX_FILE_BYTES
from .grounds.ground import changes_by_path, content_of
from .runners.execution import Observed


class CheckArguments(Wire):
    """The base of a kind's ``arguments``. An unknown one is refused."""

    model_config = ConfigDict(extra="forbid")


A = TypeVar("A", bound=CheckArguments)


class CheckedFiles:
    """The files of a run as checks see them, without ``.git``. Links lead to files inside only. Reading blocks."""

    def __init__(self, changed: Changed, *, now: bool) -> None:
        self._changed, self._now = changed, now
        self._changes = changes_by_path(changed, now=now)

    def paths(self) -> list[str]:
        """Returns the paths of all files and links. New files that git ignores are left out."""
        found = set(scan(self._changed.base))
        for each in self._changed.differences if self._now else ():
            found -= {path for path in (each.source, each.path) if path}
            found |= {each.path} if each.new else set[str]()
        return sorted(path for path in found if ".git" not in path.split("/"))

    def read(self, path: str) -> bytes | None:
        """Returns the content of a file. It returns None if the path has no file, or a larger one than 64 MiB."""
        return content_of(self._changed, self._changes, path, MAX_FILE_BYTES)[1]


class CheckKind(Generic[A]):
    """A kind of check. ``main(checks=[…])`` of ``worker/__main__.py`` starts a worker that has it.

    One object serves all runs, so it must not keep the state of one. It runs in the worker's process.
    """

    name: ClassVar[str]
    """By which requests name it: ``{"kind": "own", "name": …, "arguments": {…}}``."""
    arguments: type[A]
    """The model of its arguments."""

    def problem(self, files: CheckedFiles, arguments: A) -> str:
        """Returns what is wrong with these files, "" where nothing is. May block; called in a thread."""
        raise NotImplementedError


CheckKinds = Mapping[str, CheckKind[Any]]


def why_unusable(kinds: CheckKinds, item: VerifyItem) -> str:
    """Returns why this worker cannot carry out the check; "" where it can, or the check is of another kind."""
    if not isinstance(item, OwnCheck):
        return ""
    if item.name not in kinds:
        known = f"it has {', '.join(sorted(kinds))}" if kinds else "it has none"
        return f"this worker has no kind of check with the name {item.name}; {known}"
    model = kinds[item.name].arguments
    try:
        model.model_validate(item.arguments)
    except ValidationError as error:
        wrong = "; ".join(f"{each['pointer'].lstrip('/')}: {each['detail']}" for each in explain(error, model))
        return f"the arguments of the check {item.name} are not valid: {wrong}"
    return ""


async def own_states(kinds: CheckKinds, changed: Changed, item: OwnCheck) -> tuple[Observed, Observed]:
    """Returns the states before the run's changes and with them."""
    if why := why_unusable(kinds, item):
        return Observed("unknown", why=why), Observed("unknown", why=why)
    kind = kinds[item.name]
    return await _state(kind, changed, item, now=False), await _state(kind, changed, item, now=True)


async def _state(kind: CheckKind[Any], changed: Changed, item: OwnCheck, *, now: bool) -> Observed:
    wrong = await try_call(run_in_thread, _problem, kind, changed, item, now=now)
    if isinstance(wrong, Exception):
        return Observed("unknown", why=f"the check {item.name} {wrong}")
    return Observed("red", output=wrong) if wrong else Observed("green")


def _problem(kind: CheckKind[Any], changed: Changed, item: OwnCheck, *, now: bool) -> str:
    """Raises ValueError with what the kind did instead of an answer."""
    try:
        arguments = kind.arguments.model_validate(item.arguments)
        wrong = cast("object", kind.problem(CheckedFiles(changed, now=now), arguments))
    except BaseException as error:  # outside of this thread, SystemExit would end the worker
        raise ValueError(f"raised {type(error).__name__}: {error}") from error
    if not isinstance(wrong, str):
        raise ValueError(f"returned {type(wrong).__name__}, which is not str")
    return wrong
