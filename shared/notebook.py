"""A delegation and its result as notebooks show them: one line as text, and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .facts import FileChange
from .marks import MARKS, Mark
from .text import count, shortened

_MAX_TEXT = 80
"""Characters of a text in one line."""
_MAX_FILES = 50
_COLORS: dict[Mark, str] = {"ok": "#1a7f37", "unproven": "#9a6700", "failed": "#cf222e", "cancelled": "#6e7781"}
_SIGNS = {"created": "A", "modified": "M", "deleted": "D", "renamed": "R"}


def line(kind: str, id: str, ending: str, text: str, changes: Sequence[FileChange] = ()) -> str:
    """Returns `<ToolAgentResult dlg_… verified (completed), 2 files changed: 'I changed one comparison.'>`."""
    changed = f", {count(len(changes), 'file')} changed" if changes else ""
    return f"<{kind} {id} {ending}{changed}: {shortened(' '.join(text.split()), _MAX_TEXT)!r}>"


def cell(mark: Mark, lines: Sequence[str], summary: str, changes: Sequence[FileChange]) -> str:
    """Returns the mark, the lines (the first one stands out), the summary and the changed files, all of it escaped."""
    first, *others = lines
    return "".join(
        (
            f'<div><b style="color:{_COLORS[mark]}">{MARKS[mark]} {escape(first)}</b>',
            *(f"<div>{escape(line)}</div>" for line in others if line),
            f'<pre style="white-space:pre-wrap">{escape(summary)}</pre>',
            *_table(changes),
            "</div>",
        )
    )


def _table(changes: Sequence[FileChange]) -> Iterator[str]:
    if not changes:
        return
    yield "<table>"
    for change in changes[:_MAX_FILES]:
        path = f"{change.from_} → {change.path}" if change.from_ else change.path
        yield (
            f'<tr><td>{_SIGNS[change.change]}</td><td style="text-align:left"><code>{escape(path)}</code></td>'
            f'<td style="color:{_COLORS["ok"]}">+{change.added_lines}</td>'
            f'<td style="color:{_COLORS["failed"]}">&minus;{change.removed_lines}</td></tr>'
        )
    yield "</table>"
    if (more := len(changes) - _MAX_FILES) > 0:
        yield f"<div>and {count(more, 'more file')}</div>"
