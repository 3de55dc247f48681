"""Who answers a question: ripgrep in the sandbox, or the search that stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event

from shared.errors import ErrorType, ToolError
from worker.sandbox.base import Sandbox
from worker.search import hits as long_lines
from worker.search import ripgrep
from worker.search.hits import Hits, parsed
from worker.search.plain_grep import Question, search
from worker.search.searching import Unsearched
from worker.threads import run_in_thread
from worker.workspace.files import Files


async def answered(files: Files, sandbox: Sandbox, question: Question, missed: Unsearched) -> tuple[Hits, bool]:
    """The hits, with the matches of long lines, and whether those are all. Raises ToolError as both engines do."""
    program = None if sandbox.broken else sandbox.program("rg")
    if program is None:
        if question.type:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, "type needs ripgrep, which is missing here; use glob instead"
            )
        return await run_in_thread(search, files, question, Event(), missed)
    done = await ripgrep.ask(sandbox, ripgrep.arguments(program, files, question), question)
    hits = await run_in_thread(parsed, done.stdout)
    ripgrep.told(done, question.top, missed)
    with suppress(ToolError):  # the lines are found, only where they match is not
        if cut := await run_in_thread(long_lines.cut_lines, hits):
            again = await ripgrep.ask(sandbox, ripgrep.places(program, question, [*cut]), question)
            hits = await run_in_thread(long_lines.with_matches, files, hits, cut, again.stdout)
    return hits, not done.dropped_bytes


async def in_any_case(files: Files, sandbox: Sandbox, question: Question) -> Sequence[str]:
    """The files in which only case keeps the pattern from matching, where no line matches it as it stands."""
    if question.ignore_case or question.pattern.swapcase() == question.pattern:
        return ()
    with suppress(ToolError):  # what was asked is answered, only this is not
        hits, _ = await answered(files, sandbox, replace(question, ignore_case=True, mode="files"), Unsearched())
        return [*hits]
    return ()
