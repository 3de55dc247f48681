"""The one truncator: nothing longer than its limit reaches the model or an event, and nothing is cut silently.

The whole text is kept where ``read_file`` and ``grep`` reach it, and the hint that ends a cut text says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import quoteattr

from shared.text import safe_cut, valid

MAX_SAVED_CHARS = 16 * 1024 * 1024
MAX_ERROR_CHARS = 4000
MAX_DISPLAY_CHARS = 32_000
MAX_TITLE_CHARS = 120
HEAD_SHARE = 0.2
"""Of a command's output: what it is about stands at the start, errors stand at the end."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Estimate = Callable[[str], int]
"""Text in, tokens out."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much of a tool's output the model sees. Read-like tools keep the head, commands both ends."""

    max_chars: int = 8000
    keep: Literal["head", "head_tail"] = "head"
    max_tokens: int | None = None


def one_line(name: str) -> str:
    """A file's name without line ends and other control characters, which are legal in it."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], valid(name))


def few_tokens(text: str, most: int | None) -> bool:
    """Whether the text is so short that it cannot have more tokens: a byte is two of them at the most."""
    return most is None or len(text) * 8 <= most or len(text.encode("utf-8", "surrogatepass")) * 2 <= most


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
