"""ripgrep in the sandbox: how it is started, what its errors mean, and which paths it could not search."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..contracts import Command, Completed, Sandbox
from ..sandbox import environment
from ..text.output import one_line
from ..workspace.file_entries import PRIVATE_DIR

PROGRAM = "rg"
SECONDS = 30
MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_SHOWN = 5
_NO_MATCH, _FAILED = 1, 2
_GONE = "(os error 2)"
_BINARY = re.compile(r"(?:(?P<path>.+?): )?binary file matches.*")
_PLAIN = ("--no-config", "--color=never", "--null")
_GIT_RULES = (
    *("--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global"),
    "--no-ignore-messages",
)
_NEVER = ("--glob=!.git", f"--glob=!/{PRIVATE_DIR}")


class SkippedPaths:
    """The paths that a search could not include, with the reasons. Empty, it is false.

    ``remarks`` are further sentences that do not mean that the result is incomplete.
    """

    def __init__(self, name: Callable[[str], str] = str) -> None:
        """``name`` returns a path as sentences name it."""
        self._name = name
        self.remarks: list[str] = []
        self._shown: dict[str, str] = {}
        self._count = 0
        self._rest = ""

    def __bool__(self) -> bool:
        return self._count > 0 or self._rest != ""

    def add(self, path: str, why: str) -> None:
        """Adds a path with the reason."""
        self._count += 1
        if len(self._shown) < _SHOWN:
            self._shown[self._name(path)] = why

    def give_up(self, why: str) -> None:
        """Records that the search ended early, with a sentence about it."""
        self._rest = why

    def sentences(self) -> Iterator[str]:
        """Yields the sentences for the result, each in parentheses."""
        if self._count:
            named = "; ".join(
                f"{clip(one_line(path), 200)}: {clip(one_line(why), 200)}" for path, why in self._shown.items()
            )
            more = f"; and {self._count - len(self._shown)} more" if self._count > len(self._shown) else ""
            yield f"(Not searched, or not completely: {named}{more}.)"
        if self._rest:
            yield f"({self._rest})"
        yield from (f"({remark})" for remark in self.remarks)


def is_installed() -> bool:
    """Returns whether sandboxes of this machine have ripgrep."""
    return environment.program(PROGRAM, environment.program_mounts()) is not None


def walk_options(*, gitignore: bool, globs: Sequence[str] = ()) -> list[str]:
    """Returns the options for which files ripgrep walks through: hidden ones, too, but not git's and the worker's own.

    With ``gitignore``, only the rules of .gitignore files count. Of ``globs`` the last matching one decides.
    """
    rules = _GIT_RULES if gitignore else (*_GIT_RULES, "--no-ignore")
    return [*rules, *(f"--glob={each}" for each in globs), *_NEVER]


async def run_ripgrep(sandbox: Sandbox, arguments: Sequence[str], mount: str, top: str) -> Completed:
    """Runs ripgrep in the directory ``mount`` of the sandbox.

    It sorts only if its output is too long to keep, because sorting limits it to one core.

    Args:
        sandbox: Where it runs.
        arguments: Its options, and what it searches.
        mount: The directory, as commands see it.
        top: The path that it searches, relative to the directory.

    Raises:
        ToolError: SANDBOX_UNAVAILABLE, INVALID_TOOL_PARAMS for an invalid pattern, TIMEOUT, EXECUTION_FAILED.
    """
    program = None if sandbox.broken else sandbox.program(PROGRAM)
    if program is None:
        why = sandbox.broken or "ripgrep is missing on this worker"
        raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"files cannot be searched here: {why}. Read them by name.")
    cwd = _relative(mount)
    for order in ([], ["--sortr=modified"]):
        argv = [program, *_PLAIN, *order, *arguments]
        done = await sandbox.run(Command(argv, SECONDS, cwd=cwd, max_output=MAX_OUTPUT_BYTES, keep="head"))
        _refuse_failure(done, top)
        if not done.dropped_bytes:
            break
    return done


def _relative(mount: str) -> str:
    """Returns a directory of the sandbox as commands start there."""
    return os.path.relpath(mount, environment.MOUNT)


def add_skipped(done: Completed, top: str, skipped: SkippedPaths) -> None:
    """Adds the paths that ripgrep reports on its standard error: it could not read them, or not completely."""
    for path, why in _file_errors(done.stderr, top):
        if not why.endswith(_GONE):
            skipped.add(path.removeprefix("./"), _plain_reason(why))


def binary_matches(output: bytes, top: str) -> list[str]:
    """Returns the files with a NUL that ripgrep reports among the lines that match."""
    found = (_BINARY.fullmatch(line.decode("utf-8", "replace")) for line in output.split(b"\n") if b"\0" not in line)
    return [(each["path"] or top).removeprefix("./") for each in found if each]


def _file_errors(stderr: bytes, top: str) -> Iterator[tuple[str, str]]:
    """Yields path and reason of ripgrep's errors about single files; paths begin with the searched one."""
    begin = "./" if top == "." else top
    for line in stderr.decode("utf-8", "replace").split("\n"):
        message = line.removeprefix("rg: ")
        if message.startswith(begin) and ": " in message:
            path, _, why = message.partition(": ")
            yield path, why


def _plain_reason(why: str) -> str:
    if "match limit" in why or "PCRE2" in why:
        return "the pattern takes too long there; use a simpler one"
    return re.sub(r" \(os error \d+\)", "", why)


def _refuse_failure(done: Completed, top: str) -> None:
    """Raises ToolError if ripgrep failed as a whole. Its exit code is also 2 if only one file is unreadable."""
    if done.timed_out:
        raise ToolError(
            ErrorType.TIMEOUT,
            f"the search was stopped after {SECONDS} seconds. Search a smaller path or use a simpler pattern.",
        )
    message = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code in (0, _NO_MATCH) or done.stdout or any(_file_errors(done.stderr, top)):
        return
    if done.exit_code == _FAILED and message:
        # if both regex engines reject a pattern, the first one's message is enough
        found = re.search(r"regex parse error:.*?(?=\n~~~|\Z)", message, re.DOTALL)
        why = found[0] if found else message.removeprefix("rg: ")
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: {clip(why, 1000)}")
    raise ToolError(
        ErrorType.EXECUTION_FAILED,
        f"the search ended before it was complete (exit code {done.exit_code}). Search a smaller path. "
        + clip(message, 500),
    )
