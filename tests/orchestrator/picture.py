"""`python -m tests.orchestrator.picture`: runs the demo on a terminal and draws it as ``.github/demo.svg``."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.orchestrator.terminal import on_terminal

PICTURE = Path(__file__).resolve().parents[2] / ".github" / "demo.svg"
COLUMNS = 118
LEFT, TOP, STEP, LETTER = 16, 52, 18, 7.83
"""Where the text begins, the height of a line and the width of a letter, in pixels."""
SECTION = "━━ Find and fix the bug."
OTHERS = ("Count and list", "Read every file")
"""Whose steps are left out, so that the picture is not longer than a page."""
BACKGROUND = "#10141b"
COLOURS = (
    (re.compile(r"^(?:\$ |━━)"), "#ffffff"),
    (re.compile(r"^✓|^    \+"), "#7fd88f"),
    (re.compile(r"^✗|^    -"), "#f08080"),
    (re.compile(r"^    "), "#8a94a6"),
)
PLAIN = "#c9d1d9"
FONT = 'font-size="13" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"'


def shown(history: Sequence[str]) -> list[str]:
    """What is drawn: the command, how all ended, and two of them whole: the fix that is verified, and the lie."""
    begins = next(number for number, line in enumerate(history) if line.startswith("━━"))
    whole = next(number for number, line in enumerate(history) if line.startswith(SECTION))
    _, ends = (number for number, line in enumerate(history) if number > whole and line.startswith("━━"))
    heads = [line for line in history[:begins] if not line.startswith(OTHERS)]
    return ["$ make demo", *heads, *history[whole : ends - 1]]


def drawn(lines: Sequence[str]) -> str:
    """The lines as an SVG file that needs nothing but the reader's own monospaced font."""
    width, height = round(COLUMNS * LETTER) + 2 * LEFT, TOP + len(lines) * STEP + 4
    rows = [
        f'<text x="{LEFT}" y="{TOP + number * STEP}" fill="{_colour(line)}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    dots = [f'<circle cx="{LEFT + 6 + 20 * number}" cy="20" r="6" fill="#3a4250"/>' for number in range(3)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT} xml:space="preserve">',
        "<title>deputize demo: four delegations at once, on a terminal</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *dots,
        *rows,
        "</svg>\n",
    ])  # fmt: skip


def _colour(line: str) -> str:
    return next((colour for pattern, colour in COLOURS if pattern.search(line)), PLAIN)


async def _main() -> int:
    # The stack of the demo ends a moment after the command.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        async with on_terminal("demo", lines=80, columns=COLUMNS, DEPUTIZE_HOME=home) as terminal:
            code = await terminal.ended()
    if code == 0:
        PICTURE.write_text(drawn(shown(terminal.history())), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
