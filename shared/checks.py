"""The kinds of checks that a request may have in ``verify``: commands, files, reviews, and those of a user's own."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from .wire import Data, Request

MAX_CHECKS = 20
MAX_CHECK_FILES_BYTES = 1024 * 1024
"""Cap on the files of all checks of a request together, UTF-8 bytes."""
_MAX_PATH = 1000
_MAX_GLOBS = 100
_MAX_ALTERNATIVES = 256


def _inner_path(path: str) -> str:
    if "\0" in path or any(name in ("", ".", "..") or name.lower() == ".git" for name in path.split("/")):
        raise ValueError(f"{path[:100]!r} is not a path below the workspace; write it relative, without . and ..")
    return path


InnerPath = Annotated[str, Field(min_length=1, max_length=_MAX_PATH), AfterValidator(_inner_path)]
"""A path below a workspace."""


def _bounded_glob(pattern: str) -> str:
    if (pattern.count(",") + 1) ** pattern.count("{") > _MAX_ALTERNATIVES or "\0" in pattern:
        raise ValueError(f"a pattern may stand for {_MAX_ALTERNATIVES} alternatives at most; use several patterns")
    return pattern


Glob = Annotated[str, Field(min_length=1, max_length=_MAX_PATH), AfterValidator(_bounded_glob)]
"""A pattern as in .gitignore; also {a,b}."""


class CommandCheck(Request):
    """A command that must succeed on the base with the run's changes, in a fresh sandbox without network."""

    kind: Literal["command"]
    run: str = Field(min_length=1, max_length=100_000)
    """A command line of bash; exit code 0 is success."""
    files: dict[InnerPath, str] = Field(default_factory=dict, max_length=_MAX_GLOBS)
    """Files of the check, by path: laid over the workspace's before it runs, and never shown to the run."""
    hidden: bool | None = Field(default=None, exclude_if=lambda hidden: hidden is None)
    """Whether the model, where the check falls short, reads only which tests fail: not the command, nor what
    was printed. The code under test can print the check's files. Null: where it has ``files``."""
    canary: str | None = Field(default=None, min_length=1)
    """A unified diff that breaks something which the check must notice; for known runners of tests there is one."""
    report: InnerPath | None = Field(default=None, exclude_if=lambda report: report is None)
    """The report of its tests that the command writes, by path: JUnit XML, TAP, or JSON of jest, vitest or Go."""
    timeout_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds for each execution. Null: the request's `verifyTimeoutSeconds`."""

    @property
    def is_hidden(self) -> bool:
        return bool(self.files) if self.hidden is None else self.hidden


class FileCheck(Request):
    """A file that must exist (the default) or not, match a regular expression, or have a digest."""

    kind: Literal["file"]
    path: InnerPath
    """Relative to the workspace."""
    exists: bool | None = None
    """Whether the file must exist. Null: true."""
    matches: str | None = Field(default=None, max_length=10_000)
    """A regular expression that must be found in the text."""
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """The digest that the content must have, in hexadecimal digits."""

    @field_validator("matches")
    @classmethod
    def _can_be_read(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class UnchangedCheck(Request):
    """No file that one of the patterns matches may differ from the base."""

    kind: Literal["unchanged"]
    paths: list[Glob] = Field(min_length=1, max_length=_MAX_GLOBS)
    """Patterns as in .gitignore; also {a,b}."""


class ChangedCheck(Request):
    """For each pattern, a file that it matches must differ from the base."""

    kind: Literal["changed"]
    paths: list[Glob] = Field(min_length=1, max_length=_MAX_GLOBS)
    """Patterns as in .gitignore; also {a,b}."""


class ReviewCheck(Request):
    """A child delegation that looks for work that games the other checks. It can only take a good verdict back."""

    kind: Literal["review"]
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """The model that reviews. Null: the run's own."""


class OwnCheck(Request):
    """A check of a kind that the workers were started with (`main(checks=…)`); without it a run does not begin."""

    kind: Literal["own"]
    name: str = Field(min_length=1, max_length=100)
    """The name of the kind."""
    arguments: dict[str, Data] = Field(default_factory=dict)
    """The arguments that the kind declares."""


_AnyCheck = Annotated[
    CommandCheck | FileCheck | UnchangedCheck | ChangedCheck | ReviewCheck | OwnCheck, Field(discriminator="kind")
]


def _of_command(given: Any) -> Any:
    return {"kind": "command", "run": given} if isinstance(given, str) else given


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


VerifyItem = Annotated[_AnyCheck, BeforeValidator(_of_command, json_schema_input_type=_AnyCheck | str)]
"""A check; a string is a command."""


def _bounded_files(items: list[VerifyItem]) -> list[VerifyItem]:
    files = [text for item in items if isinstance(item, CommandCheck) for text in item.files.values()]
    if (size := sum(len(text.encode()) for text in files)) > MAX_CHECK_FILES_BYTES:
        raise ValueError(f"the files of the checks have {size:,} bytes together; the cap is {MAX_CHECK_FILES_BYTES:,}")
    if items and all(isinstance(item, ReviewCheck) for item in items):
        raise ValueError("a review proves nothing alone; add a check that it can take back, such as a command")
    return items


VerifyItems = Annotated[
    list[VerifyItem], Field(max_length=MAX_CHECKS), AfterValidator(_bounded_files), BeforeValidator(_listed)
]
SuspicionKind = Literal[
    "runner",
    "exit",
    "equal",
    "skip",
    "silence",
    "threshold",
    "caller",
    "tested",
    "tests",
    "place",
    "shadow",
    "assertion",
    "cases",
    "wait",
    "twice",
]
"""What a change may do to the checks."""
