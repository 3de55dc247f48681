"""Markdown as a terminal shows it: the words of an agent, in which no control character is left."""

from __future__ import annotations

import io
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement


class _Heading(Heading):
    """A heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    """Markdown without HTML, which would be left out: `List<String>` is text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)


def rendered(text: str, columns: int, *, colours: bool) -> str:
    """Returns the lines, wrapped; a line break in the text stays one, as people write lists without marks."""
    file = io.StringIO()
    system = "standard" if colours else None
    console = Console(file=file, width=columns or 80, force_terminal=colours, color_system=system, highlight=False)
    console.print(_Markdown(text.replace("\n", "  \n")))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().lstrip("\n").split("\n"))
