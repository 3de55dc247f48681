"""Several files in one text, each under its name: large ones are truncated so that the others fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip, count, valid
from ...shared.tokens import tokens_at_most
from ..search.walk import SkippedPaths, find_files
from ..text.output import one_line
from ..workspace.files import Files
from .page import (
    PAGE_CHARS,
    PAGE_TOKENS,
    PageLimits,
    file_not_found_error,
    format_page,
    format_remark_line,
    read_lines,
)

_RESERVED = 4000
"""Characters, and tokens, reserved for the names of omitted files."""
_WILD = re.compile(r"[*?\[{]")


@dataclass(slots=True)
class ManyFiles:
    """The requested files, their sections, and the size that is left. An error of one file does not stop the others."""

    files: Files
    sections: dict[str, str] = field(default_factory=dict[str, str])
    """The section of each file, in the order of the request; "" for none."""
    read: list[str] = field(default_factory=list[str])
    errors: list[ToolError] = field(default_factory=list[ToolError])
    omitted: list[str] = field(default_factory=list[str])
    chars: int = PAGE_CHARS - _RESERVED
    tokens: int = PAGE_TOKENS - _RESERVED

    def add(self, paths: Sequence[str], most: int, stop: Event) -> None:
        """Reads the files that the paths and patterns name, each once: small ones first, large ones share the rest.

        Args:
            paths: Paths and glob patterns.
            most: The largest number of files.
            stop: Ends the reading.
        """
        named = self._resolve(paths, stop)
        wanted = sorted(named[:most], key=self._size)
        for at, path in enumerate(wanted):
            if stop.is_set():
                return
            self._add_file(path, sharing=len(wanted) - at)
        self.omitted += named[most:]

    @property
    def text(self) -> str:
        """The text for the model."""
        parts = [part for part in self.sections.values() if part]
        if self.omitted:
            names = clip(", ".join(map(one_line, self.omitted)), _RESERVED // 4)
            files = count(len(self.omitted), "file")
            parts.append(f"(Left out, because the output is limited: {files}: {names})")
        return "\n".join(parts)

    def _resolve(self, paths: Sequence[str], stop: Event) -> list[str]:
        chosen: dict[str, None] = {}
        for path in paths:
            try:
                found = list(_resolve(self.files, path, stop))
                self.sections |= dict.fromkeys(found, "")
                chosen |= dict.fromkeys(found)
            except ToolError as error:
                self._add_error(path, error)
        return list(chosen)

    def _size(self, path: str) -> int:
        try:
            found = self.files.stat(path)
        except ToolError:
            return 0
        return found.size if found else 0

    def _add_file(self, path: str, sharing: int) -> None:
        """Adds one file within its share of the size that is left; ``sharing`` counts the files still to add."""
        try:
            section = _section(self.files, path, PageLimits(chars=self.chars // sharing, tokens=self.tokens // sharing))
        except ToolError as error:
            self._add_error(path, error)
        else:
            (self.read if self._add_section(path, section) else self.omitted).append(path)

    def _add_error(self, path: str, error: ToolError) -> None:
        self.errors.append(error)
        if not self._add_section(path, f"Error: {clip(error.message, 500)}"):
            self.omitted.append(path)

    def _add_section(self, path: str, section: str) -> bool:
        part = valid(f"==> {clip(one_line(path), 500)} <==\n{section}\n")
        tokens = tokens_at_most(part)
        if len(part) > self.chars or tokens > self.tokens:
            return False
        self.sections[path] = part
        self.chars -= len(part)
        self.tokens -= tokens
        return True


def _resolve(files: Files, path: str, stop: Event) -> Iterator[str]:
    plain = files.relative(path)
    if not _WILD.search(path) or files.stat(plain) is not None:
        yield plain
        return
    names = plain.split("/")
    at = next(number for number, name in enumerate(names) if _WILD.search(name))
    top, skipped = "/".join(names[:at]) or ".", SkippedPaths()
    found = find_files(files, "/".join(names[at:]), top, gitignore=True, stop=stop, skipped=skipped)
    if not found and skipped:
        message = f"No file that could be read matches {path!r}. {' '.join(skipped.sentences())}"
        raise ToolError(ErrorType.EXECUTION_FAILED, message)
    if not found:
        raise ToolError(ErrorType.FILE_NOT_FOUND, f"No file matches {path!r}. List the files with glob.")
    yield from (entry.path for entry in found)


def _section(files: Files, path: str, limits: PageLimits) -> str:
    found = files.stat(path)
    if found is None:
        raise file_not_found_error(files, path)
    if found.kind == "directory":
        raise ToolError(ErrorType.NOT_A_FILE, f"{path} is a directory. Use a pattern such as {path.rstrip('/')}/*.")
    content = read_lines(files, path, 1, limits.lines, limits.chars)
    if not content.lines:
        return format_remark_line(content, "The file is empty.")
    text, shown = format_page(content.lines, 1, limits)
    of = f"of {content.total}" if content.total else "of many more"
    cut = f"(Lines 1 to {shown} {of}; continue with read_file and offset={shown + 1}.)"
    is_cut = content.total is None or shown < content.total
    return "\n".join(part for part in (text, cut if is_cut else "", format_remark_line(content)) if part)
