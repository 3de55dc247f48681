"""`python -m tests.orchestrator.picture`: records the demo on a terminal as ``.github/demo.svg``, which plays it.

Every character and colour is what the terminal got, and when. Only the pace is edited: long pauses are shortened, and
lines that came all at once follow one another, so that they can be read.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from pathlib import Path
from xml.sax.saxutils import escape

from tests.orchestrator.terminal import Cell, Screen, on_terminal

PICTURE = Path(__file__).resolve().parents[2] / ".github" / "demo.svg"
LINES, COLUMNS = 32, 104
MARGIN, TOP, STEP, LETTER = 18, 44, 18, 7.83
"""Space around the text, the height of the title bar and of a line, and the width of a letter, in pixels."""
KEY, PAUSE, DRAWN, LINE, HOLD = 0.07, 0.4, 0.15, 0.045, 4.5
"""Seconds of a key, the longest pause, a drawn table and a line that came with others, at least, and the last state."""
LIVE, REDRAWN = b"\x1b[J", 0.02
"""What the live table begins with, and the seconds within which it is redrawn: no state in between is shown."""
BACKGROUND, FRAME, PLAIN = "#10141b", "#3a4250", "#c9d1d9"
COLOURS = {
    "1": "#ffffff",
    "2": "#8a94a6",
    "31": "#f08080",
    "32": "#7fd88f",
    "33": "#e5c07b",
    "35": "#c678dd",
    "36": "#6cc5d9",
}
"""What bold, dim and the terminal's own colours are here; of several the last one counts."""
FONT = 'font-size="13" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"'
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of the terminal with the seconds from which and until which it is there; None: at the end, too."""

    number: int
    row: Row
    since: float
    until: float | None


@dataclass(frozen=True, slots=True)
class Recording:
    shown: Sequence[Shown]
    tops: Sequence[tuple[float, int]]
    """The line at the top of the screen, whenever it changes."""
    seconds: float


def recorded(command: str, screen: Screen) -> Recording:
    """Plays what the terminal got after the command was typed."""
    open: dict[int, tuple[Row, float]] = {}
    shown: list[Shown] = []
    tops = [(0.0, 0)]
    at = 0.0
    for at, rows in _states(command, screen):
        for number in range(max(len(rows), len(open))):
            row = tuple(rows[number]) if number < len(rows) else ()
            before, since = open.get(number, ((), at))
            if row != before:
                shown += [Shown(number, before, since, at)] if before else []
                open[number] = (row, at)
        if (top := len(rows) - LINES) > tops[-1][1]:  # what scrolled away does not come back
            tops.append((at, top))
    shown += [Shown(number, row, since, None) for number, (row, since) in open.items() if row]
    return Recording(shown, tops, at + HOLD)


def _states(command: str, screen: Screen) -> Iterator[tuple[float, list[list[Cell]]]]:
    """Yields the lines of the terminal after each change, with the second at which it is played."""
    playing, at = Screen(LINES, COLUMNS), 0.0
    for key in ("\x1b[1m$ ", *command, "\x1b[0m\r\n"):
        playing.take(key.encode())
        yield at, playing.cells()
        at += KEY
    before, least = screen.taken[0][0], LINE
    for moment, chunk, more in _writes(screen.taken):
        for part in [chunk] if LIVE in chunk else chunk.splitlines(keepends=True):
            playing.take(part)
            if more:
                continue
            at += min(max(moment - before, least), PAUSE)
            before, least = moment, DRAWN if LIVE in part else LINE
            yield at, playing.cells()


def _writes(taken: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes, bool]]:
    """Yields each write, and whether one follows that belongs to it."""
    for (moment, chunk), (later, follows) in pairwise([*taken, (inf, b"")]):
        yield moment, chunk, later - moment < REDRAWN and LIVE in chunk + follows


def drawn(recording: Recording) -> str:
    """Returns an SVG file that needs no script, and nothing but the reader's own monospaced font.

    Who wants no motion sees the last state.
    """
    width, height = round(COLUMNS * LETTER), LINES * STEP
    spans = {(each.since, each.until): f"s{number}" for number, each in enumerate(recording.shown)}
    texts = [
        f'<text y="{each.number * STEP}" class="{spans[each.since, each.until]}{" h" if each.until else ""}">'
        f"{_parts(each.row)}</text>"
        for each in recording.shown
    ]
    size = f"{width + 2 * MARGIN} {TOP + height + MARGIN}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {size}" {FONT}>',
        "<title>deputize demo: four delegations at once, recorded on a terminal</title>",
        f"<style>{''.join(_style(recording, spans))}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        *(f'<circle cx="{MARGIN + 6 + 20 * number}" cy="21" r="6" fill="{FRAME}"/>' for number in range(3)),
        f'<svg x="{MARGIN}" y="{TOP}" width="{width + MARGIN}" height="{height + 6}"><g class="top">',
        *texts,
        "</g></svg>",
        "</svg>\n",
    ])  # fmt: skip


def _style(recording: Recording, spans: dict[tuple[float, float | None], str]) -> Iterator[str]:
    yield f"text{{white-space:pre;fill:{PLAIN}}}.h{{visibility:hidden}}.c1{{font-weight:bold}}"
    yield from (f".c{code}{{fill:{colour}}}" for code, colour in COLOURS.items())
    yield f".top{{transform:{_moved(recording.tops[-1][1])}}}"
    yield "@media (prefers-reduced-motion:no-preference){"
    yield f".top,text{{animation:{recording.seconds:.2f}s step-end infinite}}"
    whole = recording.seconds / 100
    yield ".top{animation-name:top}@keyframes top{"
    yield from (f"{at / whole:.2f}%{{transform:{_moved(top)}}}" for at, top in recording.tops)
    yield "}"
    for (since, until), name in spans.items():
        hides = f"{until / whole:.2f}%{{visibility:hidden}}" if until else ""
        shows = f"{since / whole:.2f}%{{visibility:visible}}"
        first = "0%{visibility:hidden}" if since else ""
        yield f".{name}{{animation-name:{name}}}@keyframes {name}{{{first}{shows}{hides}}}"
    yield "}"


def _moved(top: int) -> str:
    """The first base line is a line below the edge."""
    return f"translateY({(1 - top) * STEP - 4}px)"


def _parts(row: Row) -> str:
    """The text of a row, each part that is drawn in one way with its colour."""
    parts = [("".join(char for char, _ in cells), style) for style, cells in groupby(row, key=lambda cell: cell[1])]
    return "".join(_part(escape(text), style) for text, style in parts).rstrip()


def _part(text: str, style: str) -> str:
    codes = [f"c{code}" for code in style.split(";") if code in COLOURS]
    return f'<tspan class="{" ".join(codes)}">{text}</tspan>' if codes else text


async def recording_of(*arguments: str, **variables: str) -> Recording:
    """Runs the command on a terminal. Raises RuntimeError unless it succeeds."""
    async with on_terminal(*arguments, lines=LINES, columns=COLUMNS, **variables) as terminal:
        code = await terminal.ended()
    if code:
        raise RuntimeError(terminal.drawn)
    return recorded(f"deputize {' '.join(arguments)}", terminal)


async def _main() -> None:
    # The stack of the demo ends a moment after the command.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # As for a newcomer: the commands that the demo names need neither a home nor a path.
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        recording = await recording_of("demo", HOME=home, PATH=path)
    PICTURE.write_text(drawn(recording), "utf-8")


if __name__ == "__main__":
    asyncio.run(_main())
