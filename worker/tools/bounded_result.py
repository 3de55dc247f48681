"""Limits the texts of a tool's result; over-long content is saved as a whole in the workspace."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ...shared.errors import ToolError
from ...shared.text import clip, valid
from ..text.output import (
    MAX_DISPLAY_CHARS,
    MAX_ERROR_CHARS,
    MAX_SAVED_CHARS,
    MAX_TITLE_CHARS,
    OutputLimit,
    few_tokens,
    hint_of,
    shorten,
)
from ..threads import run_in_thread
from .base import AnyTool, ToolContext, ToolResult


async def bounded(
    result: ToolResult,
    tool: AnyTool,
    ctx: ToolContext,
    clean: Callable[[ToolResult], ToolResult] = lambda result: result,
) -> ToolResult:
    """Returns the result with valid and bounded texts; over-long content is saved as a whole before it is cut.

    ``clean`` changes the bounded texts, before the hint joins the content.
    """
    result = replace(
        result,
        content=valid(result.content),
        title=clip(" ".join(valid(result.title).split()), MAX_TITLE_CHARS),
        display=clip(valid(str(result.display)), MAX_DISPLAY_CHARS),
        error=None if result.error is None else clip(valid(result.error), MAX_ERROR_CHARS),
    )
    limit = tool.display.output
    if len(result.content) > limit.max_chars or not few_tokens(result.content, limit.max_tokens):
        result = await run_in_thread(_bounded_content, result, tool, ctx)
    result = clean(result)
    return replace(result, content=f"{result.content}\n{result.hint}", hint="") if result.hint else result


def _bounded_content(result: ToolResult, tool: AnyTool, ctx: ToolContext) -> ToolResult:
    kept = shorten(result.content, tool.display.output)
    if kept == result.content:
        return result
    name = re.sub(r"[^A-Za-z0-9_-]", "_", ctx.call_id)[:80] or "call"
    whole = shorten(result.content, OutputLimit(MAX_SAVED_CHARS, keep="head_tail"))
    saved = None
    with suppress(ToolError):  # a full disk must not lose the result
        saved = ctx.files.write_private(f"output/{name}.txt", whole.encode("utf-8", "replace"))
    whole_lines = result.content.startswith(("\n", "\r\n"), len(kept)) and result.content.startswith(kept)
    shown = kept.count("\n") + 1 if whole_lines else 0
    hint = hint_of(tool.name, len(result.content), tool.display.output.max_chars, saved, shown)
    news = {"truncated": True, "actualChars": len(result.content), "fullOutput": saved}
    return replace(result, content=kept, hint=f"{result.hint}\n{hint}".lstrip(), metadata={**result.metadata, **news})
