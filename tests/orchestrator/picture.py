"""`python -m tests.orchestrator.picture`: runs the demo on a terminal and draws its cells as ``.github/demo.svg``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from itertools import count, groupby
from pathlib import Path
from xml.sax.saxutils import escape

from tests.orchestrator.terminal import Cell, on_terminal

PICTURE = Path(__file__).resolve().parents[2] / ".github" / "demo.svg"
COLUMNS = 118
LEFT, TOP, STEP, LETTER = 16, 52, 18, 7.83
"""Where the text begins, the height of a line and the width of a letter, in pixels."""
SECTION = "━━ Find and fix the bug."
OTHERS = ("Count and list", "Read every file")
"""Whose steps are left out, so that the picture is not longer than a page."""
BACKGROUND = "#10141b"
COLOURS = {
    "31": "#f08080",
    "32": "#7fd88f",
    "33": "#e5c07b",
    "35": "#c678dd",
    "36": "#6cc5d9",
    "1": "#ffffff",
    "2": "#8a94a6",
}
"""What the terminal's own colours, bold and dim are here."""
PLAIN = "#c9d1d9"
PROMPT: list[Cell] = [(char, "1") for char in "$ make demo"]
FONT = 'font-size="13" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"'


def shown(history: Sequence[list[Cell]]) -> list[list[Cell]]:
    """What is drawn: the command, how all ended, and two of them whole: the fix that is verified, and the lie."""
    texts = ["".join(char for char, _ in row) for row in history]
    begins = next(number for number, line in enumerate(texts) if line.startswith("━━"))
    whole = next(number for number, line in enumerate(texts) if line.startswith(SECTION))
    _, ends = (number for number, line in enumerate(texts) if number > whole and line.startswith("━━"))
    heads = [row for row, text in zip(history[:begins], texts, strict=False) if not text.startswith(OTHERS)]
    return [PROMPT, *heads, *history[whole : ends - 1]]


def drawn(rows: Sequence[list[Cell]]) -> str:
    """The rows as an SVG file that needs nothing but the reader's own monospaced font."""
    width, height = round(COLUMNS * LETTER) + 2 * LEFT, TOP + len(rows) * STEP + 4
    dots = [f'<circle cx="{LEFT + 6 + 20 * number}" cy="20" r="6" fill="#3a4250"/>' for number in range(3)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>',
        "<title>deputize demo: four delegations at once, on a terminal</title>",
        "<style>text { white-space: pre }</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *dots,
        *(f'<text x="{LEFT}" y="{y}" fill="{PLAIN}">{_spans(row)}</text>' for y, row in zip(count(TOP, STEP), rows)),
        "</svg>\n",
    ])  # fmt: skip


def _spans(row: Sequence[Cell]) -> str:
    """The text of a row, each part that is drawn in one way with its colour."""
    parts = [("".join(char for char, _ in cells), style) for style, cells in groupby(row, key=lambda cell: cell[1])]
    return "".join(_span(escape(text), style) for text, style in parts).rstrip()


def _span(text: str, style: str) -> str:
    codes = style.split(";")
    colour = next((COLOURS[code] for code in reversed(codes) if code in COLOURS), None)
    bold = ' font-weight="bold"' if "1" in codes else ""
    return f'<tspan fill="{colour}"{bold}>{text}</tspan>' if colour else text


async def _main() -> int:
    # The stack of the demo ends a moment after the command.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        async with on_terminal("demo", lines=80, columns=COLUMNS, DEPUTIZE_HOME=home) as terminal:
            code = await terminal.ended()
    if code == 0:
        PICTURE.write_text(drawn(shown(terminal.cells())), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
