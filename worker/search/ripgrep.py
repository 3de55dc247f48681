"""The search as ripgrep carries it out in the sandbox: its command line, and what it says of how it went."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shared.errors import ErrorType, ToolError
from shared.text import clip
from worker.sandbox.base import Sandbox
from worker.sandbox.command import Command, Completed
from worker.search.globbing import spelled_out
from worker.search.hits import LINE_CHARS
from worker.search.plain_grep import Question
from worker.search.searching import Unsearched, exists_in
from worker.workspace.files import Files
from worker.workspace.private import PRIVATE_DIR

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_NO_MATCH, _FAILED = 1, 2
_GONE = "(os error 2)"
_BINARY = re.compile(
    r"(?:(?P<path>.+?): )?(?:WARNING: (?P<stopped>stopped searching )?)?binary file (?:matches|after).*"
)


async def ask(sandbox: Sandbox, argv: list[str], question: Question) -> Completed:
    """What ripgrep says. Sorting costs it all but one core, so it sorts only where not everything can be kept.

    Raises ToolError where it did not search at all, or was ended before it had.
    """
    for order in ([], ["--sortr=modified"]):
        command = [argv[0], *order, *argv[1:]]
        seconds = int(question.seconds)
        done = await sandbox.run(Command(command, seconds, max_output=MAX_OUTPUT_BYTES, keep="head"))
        _refuse_failure(done, question)
        if not done.dropped_bytes:
            break
    return done


def arguments(program: str, files: Files, question: Question) -> list[str]:
    """The command line for the question."""
    argv = [program, "--no-config", "--color=never", "--hidden", "--null", "--with-filename", "--no-heading"]
    argv += ["--line-number", "--no-context-separator", "--engine=auto", "--no-require-git"]
    argv += ["--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-messages"]
    argv += [f"--max-columns={LINE_CHARS}", "--max-columns-preview"]
    argv += ["--ignore-case" if question.ignore_case else "--case-sensitive"]
    argv += [f"--type={question.type}"] if question.type else []
    argv += [] if question.gitignore else ["--no-ignore"]
    argv += [f"--glob={each}" for each in _globs(files, question.glob)] if question.glob else []
    argv += [f"--glob=!{each}" for each in _globs(files, question.exclude)] if question.exclude else []
    argv += ["--glob=!.git", f"--glob=!/{PRIVATE_DIR}"]  # the last glob that fits decides
    if question.mode == "content":
        argv += [f"--context={question.context}"]
        argv += [f"--max-count={question.per_file + 1}"] if question.per_file else []
    else:
        argv += ["--count"]
    return [*argv, "-e", question.pattern, "--", question.top]


def places(program: str, question: Question, paths: Sequence[str]) -> list[str]:
    """The command line that says where the matches in these files are, with little of their lines."""
    argv = [program, "--no-config", "--color=never", "--null", "--with-filename", "--no-heading", "--line-number"]
    argv += ["--column", "--byte-offset", "--engine=auto", "--no-ignore", "--max-columns=1", "--max-columns-preview"]
    argv += ["--ignore-case" if question.ignore_case else "--case-sensitive"]
    return [*argv, "-e", question.pattern, "--", *paths]


def told(done: Completed, top: str, unsearched: Unsearched) -> None:
    """Adds what ripgrep could not search, or only in part, as it says on both streams."""
    for path, why in _complaints(done.stderr, top):
        if not why.endswith(_GONE):
            unsearched.add(path.removeprefix("./"), _plain(why))
    for line in done.stdout.split(b"\n"):
        if line and b"\0" not in line and (found := _BINARY.fullmatch(line.decode("utf-8", "replace"))):
            whole = found["stopped"] is None
            why = "it is binary, and the pattern matches in it" if whole else "only up to its first NUL"
            unsearched.add((found["path"] or top).removeprefix("./"), why)


def _globs(files: Files, glob: str) -> Iterator[str]:
    """The glob with its braces expanded, and with brackets of real names spelled so that they mean themselves."""
    anchor = "/" if glob.startswith("/") else ""
    for each in spelled_out(glob, exists_in(files, ".")):
        yield anchor + each + "/" * glob.endswith("/")


def _complaints(stderr: bytes, top: str) -> Iterator[tuple[str, str]]:
    """What is said of single files: the path begins with what was searched, ``./`` for everything."""
    begin = "./" if top == "." else top
    for line in stderr.decode("utf-8", "replace").split("\n"):
        said = line.removeprefix("rg: ")
        if said.startswith(begin) and ": " in said:
            path, _, why = said.partition(": ")
            yield path, why


def _plain(why: str) -> str:
    if "match limit" in why or "PCRE2" in why:
        return "the pattern takes too long there; use a simpler one"
    return re.sub(r" \(os error \d+\)", "", why)


def _refuse_failure(done: Completed, question: Question) -> None:
    """ripgrep's exit code is 2 for a wrong pattern, but also for one unreadable file among readable ones."""
    if done.timed_out:
        raise ToolError(
            ErrorType.TIMEOUT,
            f"grep was stopped after {question.seconds:g} seconds. Search a smaller path or use a simpler pattern.",
        )
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code in (0, _NO_MATCH) or done.stdout or any(_complaints(done.stderr, question.top)):
        return
    if done.exit_code == _FAILED and said:
        # of a pattern that no engine takes, what the first engine said is enough
        found = re.search(r"regex parse error:.*?(?=\n~~~|\Z)", said, re.DOTALL)
        why = found[0] if found else said.removeprefix("rg: ")
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: {clip(why, 1000)}")
    raise ToolError(
        ErrorType.EXECUTION_FAILED,
        f"the search was ended before it was complete (exit code {done.exit_code}). Search a smaller path. "
        + clip(said, 500),
    )
