"""The pages of the three packages: their texts, tables, first blocks and sentences."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

FOLDERS = ("orchestrator", "worker", "shared")


def pages(folder: str) -> dict[str, str]:
    """The text of each page of a package."""
    return {path.stem: path.read_text("utf-8") for path in sorted((ROOT / folder / "docs").glob("*.md"))}


PAGES = pages("orchestrator")
OTHERS = pages("worker") | pages("shared")
INDEXES = {folder: (ROOT / folder / "README.md").read_text("utf-8") for folder in FOLDERS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(?<!\\)\|")


def table(page: str, first: str) -> list[list[str]]:
    """The rows of the page's table whose first column has this name."""
    text = PAGES[page].split(f"\n| {first} |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in _CELLS.split(line.strip("|"))] for line in text.splitlines()[2:]]


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    return BLOCK.findall((PAGES | OTHERS)[page])


def sentences(text: str) -> list[str]:
    """The sentences of prose and lists, with a word in place of each code span."""
    lines = [line for line in BLOCK.sub("\n", text).splitlines() if not line.startswith(("|", "#"))]
    plain = re.sub(r"`[^`]+`", "code", re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", "\n".join(lines)))
    parts = re.split(r"\n\s*\n|\n(?=- |\d+\. )", plain)
    return [each for part in parts for each in re.split(r"(?<=[.!?])\s+", part.strip()) if each]
