"""The one truncator: nothing longer than its limit reaches the model or an event, and nothing is cut silently.

The whole text is kept where ``read_file`` and ``grep`` reach it, and the hint that ends a cut text says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import quoteattr

from shared.errors import ToolError
from shared.text import clip, safe_cut
from worker.threads import to_the_end
from worker.workspace.files import Files

if TYPE_CHECKING:
    from worker.tools.base import AnyTool, ToolContext, ToolResult

PRIVATE_DIR = ".deputize"
"""Our own directory inside a workspace. It is no part of the work: manifests, patches and searches leave it out."""
MAX_SAVED_CHARS = 16 * 1024 * 1024
MAX_ERROR_CHARS = 4000
MAX_DISPLAY_CHARS = 32_000
MAX_TITLE_CHARS = 120
HEAD_SHARE = 0.2
"""Of a command's output: what it is about stands at the start, errors stand at the end."""

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Estimate = Callable[[str], int]
"""Text in, tokens out."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much of a tool's output the model sees. Read-like tools keep the head, commands both ends."""

    max_chars: int = 8000
    keep: Literal["head", "head_tail"] = "head"
    max_tokens: int | None = None


def is_private(path: str) -> bool:
    """Whether a path relative to the workspace leads into our own directory."""
    return path == PRIVATE_DIR or path.startswith(PRIVATE_DIR + "/")


async def bounded(result: ToolResult, tool: AnyTool, ctx: ToolContext, estimate: Estimate) -> ToolResult:
    """The result with every text valid and inside its limit; an over-long content is saved whole before it is cut."""
    result = replace(
        result,
        content=valid(result.content),
        title=clip(" ".join(valid(result.title).split()), MAX_TITLE_CHARS),
        display=clip(valid(str(result.display)), MAX_DISPLAY_CHARS),
        error=None if result.error is None else clip(valid(result.error), MAX_ERROR_CHARS),
    )
    if len(result.content) <= tool.output.max_chars and few_tokens(result.content, tool.output.max_tokens):
        return result
    return await to_the_end(_bounded_content, result, tool, ctx, estimate)


def private_path(files: Files, path: str) -> str:
    """Where in the workspace a path of our own directory is; the directory is there, and git leaves it alone."""
    files.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
    return f"{PRIVATE_DIR}/{path}"


def write_private(files: Files, path: str, data: bytes) -> str:
    """Writes a file of our own directory; gives its path in the workspace."""
    full = private_path(files, path)
    files.write(full, data)
    return full


def valid(text: str) -> str:
    """The text with halves of characters (from names and files in old encodings) shown as U+FFFD."""
    return text if text.isascii() else _HALF_CHARACTER.sub("\ufffd", text)


def one_line(name: str) -> str:
    """A file's name without line ends and other control characters, which are legal in it."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], valid(name))


def few_tokens(text: str, most: int | None) -> bool:
    """Whether the text is so short that it cannot have more tokens: a byte is two of them at the most."""
    return most is None or len(text) * 8 <= most or len(text.encode("utf-8", "surrogatepass")) * 2 <= most


def _bounded_content(result: ToolResult, tool: AnyTool, ctx: ToolContext, estimate: Estimate) -> ToolResult:
    kept = shorten(result.content, tool.output, estimate)
    if kept == result.content:
        return result
    saved = _save(ctx.files, ctx.call_id, result.content)
    hint = hint_of(tool.name, len(result.content), tool.output.max_chars, saved)
    news = {"truncated": True, "actualChars": len(result.content), "fullOutput": saved}
    return replace(result, content=f"{kept}\n{hint}", metadata={**result.metadata, **news})


def _save(files: Files, call_id: str, text: str) -> str | None:
    """The path of the saved text, or None where it could not be saved: a full disk must not lose the answer."""
    path = f"output/{re.sub(r'[^A-Za-z0-9_-]', '_', call_id)[:80] or 'call'}.txt"
    whole = shorten(text, OutputLimit(MAX_SAVED_CHARS, keep="head_tail"))
    try:
        return write_private(files, path, whole.encode("utf-8", "replace"))
    except ToolError:
        return None


def hint_of(tool: str, actual_chars: int, max_chars: int, saved: str | None = None) -> str:
    """What the model must learn of a cut: that it was made, how long the text is, what to do next."""
    where = f" full_output={quoteattr(saved)}" if saved else ""
    then = (
        f"The whole output is in {saved}: read it in parts with read_file (offset, limit) or search it with grep."
        if saved
        else "Call the tool again with offset/limit or a narrower question to see the rest."
    )
    return _hint(tool, f'actual_chars="{actual_chars}" max_chars="{max_chars}"{where}', then)


def lines_hint_of(tool: str, actual_lines: int | None, max_lines: int, then: str) -> str:
    """The same of a page of lines; ``actual_lines`` is None where nobody counted them."""
    return _hint(tool, f'actual_lines="{actual_lines or "unknown"}" max_lines="{max_lines}"', then)


def _hint(tool: str, sizes: str, then: str) -> str:
    return (
        f'<system_hint type="tool_output_omitted" tool={quoteattr(tool)} reason="too_long" {sizes}>\n'
        f"The output was too long and was cut automatically. {then}\n</system_hint>"
    )


def shorten(text: str, limit: OutputLimit, estimate: Estimate | None = None) -> str:
    """The text, or as much of it as the limit lets through."""
    room = limit.max_chars
    kept = _keep(text, room, limit.keep)
    if estimate is None or limit.max_tokens is None:
        return kept
    while room and (tokens := estimate(kept)) > limit.max_tokens:
        # Tokens are not spread evenly, so the guess is corrected until it holds; 0.95 makes that quick.
        room = int(min(room, len(kept)) * limit.max_tokens / tokens * 0.95)
        kept = _keep(text, room, limit.keep)
    return kept


def _keep(text: str, room: int, keep: str) -> str:
    if len(text) <= room:
        return text
    if keep == "head":
        return text[: safe_cut(text, room)]
    head = text[: safe_cut(text, int(room * HEAD_SHARE))]
    tail = text[safe_cut(text, len(text) - (room - len(head)), forwards=True) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"
