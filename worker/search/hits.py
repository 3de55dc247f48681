"""What a content search found, in the order and the form the model gets it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from shared.errors import ToolError
from worker.files import Files
from worker.output import clip

Mode = Literal["content", "files", "count"]
LINE_CHARS = 500
_CONTENT = re.compile(r"(?P<path>[^\0]+)\0(?P<number>\d+)(?P<sign>[:-])(?P<text>.*)")
_COUNT = re.compile(r"(?P<path>[^\0]+)\0(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of a file, or a whole file: then ``number`` is how many lines of it match."""

    path: str
    number: int
    text: str = ""
    is_match: bool = True
    """False for a line that is shown for context."""


def parsed(output: bytes, mode: Mode) -> list[Hit]:
    """The hits in ripgrep's output with ``--null``. Lines without a NUL are remarks on binary files."""
    form = _CONTENT if mode == "content" else _COUNT
    found = [form.match(line) for line in output.decode("utf-8", "replace").split("\n") if "\0" in line]
    return [
        Hit(
            match["path"].removeprefix("./"),
            int(match["number"]),
            match["text"].removesuffix("\r") if mode == "content" else "",
            mode != "content" or match["sign"] == ":",
        )
        for match in found
        if match
    ]


def newest_first(files: Files, hits: Iterable[Hit]) -> list[Hit]:
    """The hits of recently changed files first, equally old ones by path; each file's in their order (C24)."""
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    paths = sorted(by_path, key=lambda path: (-_changed(files, path), path))
    return [hit for path in paths for hit in by_path[path]]


def _changed(files: Files, path: str) -> int:
    try:
        found = files.stat(path)
    except ToolError:
        return 0
    return found.mtime_ns if found else 0


def shown(hits: list[Hit], mode: Mode, most: int) -> tuple[str, int, int]:
    """The text of at most ``most`` matches, how many those are, and how many there are."""
    total = sum(hit.is_match for hit in hits)
    if mode == "files":
        return "\n".join(hit.path for hit in hits[:most]), min(most, total), total
    if mode == "count":
        return "\n".join(f"{hit.path}: {hit.number}" for hit in hits[:most]), min(most, total), total
    kept: list[Hit] = []
    left = most
    for hit in hits:
        if hit.is_match and left == 0:
            break
        left -= hit.is_match
        kept.append(hit)
    blocks = [f"{path}\n{_block(list(group))}" for path, group in groupby(kept, key=lambda hit: hit.path)]
    return "\n".join(blocks), most - left, total


def _block(hits: list[Hit]) -> str:
    """One file's lines; a gap between two stretches with context is marked."""
    with_context = any(not hit.is_match for hit in hits)
    lines: list[str] = []
    last = hits[0].number - 1
    for hit in hits:
        if with_context and hit.number > last + 1:
            lines.append("    --")
        last = hit.number
        lines.append(f"{hit.number:6d}{'|' if hit.is_match else '-'}{clip(hit.text, LINE_CHARS)}")
    return "\n".join(lines)
