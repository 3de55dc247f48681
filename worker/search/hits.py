"""What a content search found, in the order and the form the model gets it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Literal, NamedTuple

from shared.errors import ToolError
from worker.files import Files
from worker.output import clip

Mode = Literal["content", "files", "count"]
LINE_CHARS = 500
_CONTENT = re.compile(r"^([^\0\n]+)\0(\d+)([:-])(.*)$", re.MULTILINE)
_COUNT = re.compile(r"^([^\0\n]+)\0(\d+)$", re.MULTILINE)
_FOLDER = os.O_PATH | os.O_DIRECTORY


class Hit(NamedTuple):
    """One line of a file, or a whole file: then ``number`` is how many lines of it match."""

    path: str
    number: int
    text: str = ""
    is_match: bool = True
    """False for a line that is shown for context."""


def parsed(output: bytes, mode: Mode) -> list[Hit]:
    """The hits in ripgrep's output with ``--null``. Lines without a NUL are remarks on binary files."""
    said = output.decode("utf-8", "replace")
    if mode == "content":
        return [
            Hit(path.removeprefix("./"), int(number), text.removesuffix("\r"), sign == ":")
            for path, number, sign, text in _CONTENT.findall(said)
        ]
    return [Hit(path.removeprefix("./"), int(number)) for path, number in _COUNT.findall(said)]


def newest_first(files: Files, hits: Iterable[Hit]) -> list[Hit]:
    """The hits of recently changed files first, equally old ones by path; each file's in their order (C24)."""
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    changed = _changed(files, by_path)
    paths = sorted(sorted(by_path), key=changed.__getitem__, reverse=True)
    return [hit for path in paths for hit in by_path[path]]


def _changed(files: Files, paths: Iterable[str]) -> dict[str, int]:
    """When each file was changed, in nanoseconds, 0 for what is gone. A directory is opened once for all its files."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    changed: dict[str, int] = {}
    for folder, inside in folders.items():
        try:
            fd = files.open_fd(folder or ".", _FOLDER)
        except ToolError:
            changed |= dict.fromkeys(inside, 0)
            continue
        try:
            changed |= {path: _mtime(path.rpartition("/")[2], fd) for path in inside}
        finally:
            os.close(fd)
    return changed


def _mtime(name: str, folder: int) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except (OSError, ValueError):
        return 0


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
