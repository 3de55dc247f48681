"""Content search with ripgrep in the sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from ...shared.errors import ToolError
from ...shared.libc import closing_fd
from ...shared.text import clip
from ..contracts import FileAccess, Sandbox
from ..text.encodings import NUL_SHOWN, encoding_of, kind_of
from ..threads import run_in_thread
from .glob_pattern import expand
from .listing import exists_in, newest_first
from .ripgrep import SkippedPaths, add_skipped, binary_matches, run_ripgrep, walk_options

_LINES = ("--binary", "--with-filename", "--no-heading", "--line-number", "--engine=auto", "--max-columns-preview")


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """A content search: the regular expression, where to search, and what to return."""

    pattern: str
    """What to search for; ``exclude_pattern`` is what a line must not match besides."""
    top: str
    mode: Mode
    ignore_case: bool = False
    context: int = 0
    type: str | None = None
    """A file type of ripgrep's."""
    glob: str | None = None
    exclude: str | None = None
    exclude_pattern: str | None = None
    per_file: int | None = None
    """Matches per file after which the search of the file ends."""
    gitignore: bool = True


async def search_content(
    files: FileAccess, sandbox: Sandbox, query: GrepQuery, skipped: SkippedPaths
) -> tuple[Hits, bool]:
    """Searches the contents of files.

    Args:
        files: The workspace.
        sandbox: Where ripgrep runs.
        query: What to search for.
        skipped: Receives the paths that could not be searched.

    Returns:
        The hits, long lines as excerpts around their match, and whether these are all.

    Raises:
        ToolError: INVALID_TOOL_PARAMS for an invalid pattern; see ``run_ripgrep``.
    """
    done = await run_ripgrep(sandbox, arguments_of(files, query), files.mount, query.top)
    hits = await run_in_thread(parse_hits, done.stdout)
    add_skipped(done, query.top, skipped)
    hits = await _with_nuls(files, sandbox, query, skipped, hits, done.stdout)
    with suppress(ToolError):  # without the offsets, long lines are shown from their start
        if truncated := await run_in_thread(truncated_lines, hits):
            again = await run_ripgrep(sandbox, _offset_arguments(query, [*truncated]), files.mount, query.top)
            hits = await run_in_thread(with_matches, files, hits, truncated, again.stdout)
    return hits, not done.dropped_bytes


async def _with_nuls(
    files: FileAccess, sandbox: Sandbox, query: GrepQuery, skipped: SkippedPaths, hits: Hits, output: bytes
) -> Hits:
    """Adds the lines of texts with a NUL, whose matches ripgrep does not show, and names binary files."""
    if query.mode != "content" and hits:
        sample = replace(query, mode="content", context=0, per_file=1)
        output = (await run_ripgrep(sandbox, arguments_of(files, sample), files.mount, query.top)).stdout
    texts = list[str]()
    for path in dict.fromkeys(binary_matches(output, query.top)):
        with suppress(ToolError):
            if encoding_of(head := files.head(path, HEAD)):
                texts.append(path)
                continue
            skipped.add(path, f"the pattern matches in it, but it is {kind_of(head)}")
            hits = {name: lines for name, lines in hits.items() if name != path or query.mode == "content"}
    if texts and query.mode == "content":
        named = replace(query, gitignore=False, glob=None, type=None, exclude=None)
        arguments = arguments_of(files, named, paths=texts[:MAX_FILES])
        done = await run_ripgrep(sandbox, arguments, files.mount, query.top)
        hits = {**hits, **await run_in_thread(parse_hits, done.stdout)}
        for path in texts[MAX_FILES:]:
            skipped.add(path, "the pattern matches in it, but only so many files with NUL characters are shown at once")
        names = clip(", ".join(texts[:MAX_FILES]), 500)
        skipped.remarks.append(f"NUL characters are shown as {NUL_SHOWN} in: {names}")
    return hits


async def matches_of(files: FileAccess, sandbox: Sandbox, query: GrepQuery) -> Sequence[str]:
    """Returns the files that a query matches, for a hint: none where it cannot be searched."""
    with suppress(ToolError):
        hits, _ = await search_content(files, sandbox, replace(query, mode="files"), SkippedPaths())
        return [*hits]
    return ()


def arguments_of(files: FileAccess, query: GrepQuery, paths: Sequence[str] = ()) -> list[str]:
    """Returns the command line of a query; ``paths`` are searched instead of its own one."""
    globs = [*_globs(files, query.glob)] if query.glob else []
    globs += [f"!{each}" for each in _globs(files, query.exclude)] if query.exclude else []
    argv = [*walk_options(gitignore=query.gitignore, globs=globs), *_LINES]
    argv += ["--no-context-separator", f"--max-columns={LINE_CHARS}", _case(query)]
    argv += [f"--type={query.type}"] if query.type else []
    if query.mode == "content":
        argv += [f"--context={query.context}"]
        argv += [f"--max-count={query.per_file + 1}"] if query.per_file else []
    else:
        argv += ["--count"]
    argv += ["--text"] if paths else []  # lines of named files, whatever is in them
    return [*argv, "-e", _expression(query), "--", *(paths or [query.top])]


def _offset_arguments(query: GrepQuery, paths: Sequence[str]) -> list[str]:
    """Returns the command line that prints the offsets of the matches in these files, without their lines."""
    argv = [*_LINES, "--column", "--byte-offset", "--no-ignore", "--max-columns=1", _case(query)]
    return [*argv, "-e", _expression(query), "--", *paths]


def _case(query: GrepQuery) -> str:
    return "--ignore-case" if query.ignore_case else "--case-sensitive"


def _expression(query: GrepQuery) -> str:
    """Returns one expression for ripgrep, which cannot leave out lines of others; the match begins after ``\\K``."""
    without = query.exclude_pattern
    return f"^(?!.*(?:{without})).*?\\K(?:{query.pattern})" if without else query.pattern


def _globs(files: FileAccess, glob: str) -> Iterator[str]:
    """Yields the glob with its braces expanded, and with the brackets of existing names escaped."""
    anchor = "/" if glob.startswith("/") else ""
    for each in expand(glob, exists_in(files, ".")):
        yield anchor + each + "/" * glob.endswith("/")


Mode = Literal["content", "files", "count"]
Hits = Mapping[str, Sequence[str]]
"""Each file's lines as ripgrep prints them: ``12:text`` matches, ``12-text`` is context; in the other modes the number
of matching lines. Lines are parsed only when they are shown: there may be a hundred thousand."""
LINE_CHARS = 500
_GAP = "[…]"
_MATCH = re.compile(r"\d+:")
_LINE = re.compile(r"(\d+)([:-])(.*)", re.DOTALL)
_TRUNCATED = re.compile(r"(\d+):.*\[\.\.\. (?:\d+ more match(?:es)?|omitted end of long line)\]", re.DOTALL)
_OFFSETS = re.compile(rb"(\d+):(\d+):(\d+):")
HEAD = 8192
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
MAX_FILES = 100
_MAX_LINES = 1000
_MARGIN = 4 * LINE_CHARS
"""Bytes read before and after the match."""
MatchOffsets = Mapping[str, Mapping[int, tuple[int, int]]]
"""By file and line number: the byte offset of the first match in the line, and of the line in the file."""


def parse_hits(output: bytes) -> Hits:
    """Parses ripgrep's output with ``--null``. Lines without a NUL are remarks about binary files, and are skipped."""
    hits: dict[str, list[str]] = {}
    last = None
    block: list[str] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        path, nul, rest = line.partition("\0")
        if nul and path != last:
            block = hits.setdefault(path.removeprefix("./"), [])
            last = path
        if nul:
            block.append(rest)
    return hits


def hits_by_mtime(files: FileAccess, hits: Hits) -> Hits:
    """Sorts the hits by modification time, the newest first, then by path."""
    return {path: hits[path] for path in newest_first(files, hits)}


def cap_per_file(hits: Hits, per_file: int, *, context: int) -> tuple[Hits, list[str]]:
    """Limits the matches of each file. Returns the hits, and the files that have more."""
    kept: dict[str, Sequence[str]] = {}
    more: list[str] = []
    for path, lines in hits.items():
        matches = [at for at, line in enumerate(lines) if _MATCH.match(line)] if context else range(len(lines))
        kept[path] = lines
        if len(matches) > per_file:
            more.append(path)
            last = matches[per_file - 1]
            kept[path] = [*lines[: last + 1], *_context_after(lines[last : matches[per_file]], context)]
    return kept, more


def _context_after(lines: Sequence[str], context: int) -> Iterator[str]:
    """Yields the context lines after the first of these lines."""
    first = int(lines[0].partition(":")[0])
    for line in lines[1:]:
        if (found := _LINE.fullmatch(line)) and int(found[1]) <= first + context:
            yield line


def excerpt(line: str, at: int) -> str:
    """Returns the part of a long line around an offset, with marks where text is omitted."""
    if at < LINE_CHARS * 3 // 4:
        return line
    start = at - LINE_CHARS // 4
    part = line[start : start + LINE_CHARS - 2 * len(_GAP)]
    return f"{_GAP}{part}{_GAP if start + len(part) < len(line) else ''}"


def format_hits(hits: Hits, mode: Mode, most: int, *, context: int) -> tuple[str, int, int]:
    """Formats the hits for the model.

    Args:
        hits: The hits.
        mode: What the hits contain.
        most: The largest number of matches, or files, to show.
        context: The number of context lines around each match in the hits.

    Returns:
        The text, the number of matches shown, and the number of all.
    """
    if mode != "content":
        lines = [path if mode == "files" else f"{path}: {count}" for path, (count, *_) in hits.items()]
        return "\n".join(lines[:most]), min(most, len(lines)), len(lines)
    total = sum(map(len, hits.values()))
    if context:
        total = sum(1 for lines in hits.values() for line in lines if _MATCH.match(line))
    left = most
    blocks: list[str] = []
    for path, lines in hits.items():
        text, count = _block(lines, left, with_context=context > 0)
        if text:
            blocks += (path, text)
        left -= count
        if left == 0:
            break
    return "\n".join(blocks), most - left, total


def _block(hits: Iterable[str], most: int, *, with_context: bool) -> tuple[str, int]:
    """Formats one file's lines up to so many matches; returns their number, too. Gaps in the context are marked."""
    lines: list[str] = []
    count = 0
    last = None
    for hit in hits:
        if not (found := _LINE.fullmatch(hit)):
            continue
        number, sign, text = int(found[1]), found[2], found[3].removesuffix("\r").replace("\0", NUL_SHOWN)
        if sign == ":" and count == most:
            break
        if with_context and last is not None and number > last + 1:
            lines.append("    --")
        last = number
        count += sign == ":"
        lines.append(f"{number:6d}{'|' if sign == ':' else '-'}{clip(text, LINE_CHARS)}")
    return "\n".join(lines), count


def truncated_lines(hits: Hits) -> dict[str, set[int]]:
    """Returns the numbers of lines that ripgrep truncated, by file, limited to 100 files and 1000 lines."""
    found: dict[str, set[int]] = {}
    left = _MAX_LINES
    for path, lines in hits.items():
        numbers = {
            int(truncated[1])
            for line in lines
            if len(line) > LINE_CHARS // 4 and (truncated := _TRUNCATED.fullmatch(line))
        }
        if numbers:
            found[path] = numbers
            left -= len(numbers)
        if left <= 0 or len(found) == MAX_FILES:
            break
    return found


def _parse_offsets(output: bytes) -> MatchOffsets:
    """Parses ripgrep's output with ``--column --byte-offset --null``."""
    offsets: dict[str, dict[int, tuple[int, int]]] = {}
    for line in output.split(b"\n"):
        path, nul, rest = line.partition(b"\0")
        if nul and (found := _OFFSETS.match(rest)):
            number, column, offset = map(int, found.groups())
            name = path.decode("utf-8", "replace").removeprefix("./")
            offsets.setdefault(name, {})[number] = (column - 1, offset)
    return offsets


def with_matches(files: FileAccess, hits: Hits, truncated: Mapping[str, set[int]], output: bytes) -> Hits:
    """Replaces each truncated line by an excerpt around its match, if the match is far from the line's start.

    ``output`` is ripgrep's output with the offsets of the matches.
    """
    offsets = _parse_offsets(output)
    return {
        path: _with_excerpts(files, path, lines, truncated.get(path), offsets.get(path)) for path, lines in hits.items()
    }


def _with_excerpts(
    files: FileAccess,
    path: str,
    lines: Sequence[str],
    truncated: set[int] | None,
    offsets: Mapping[int, tuple[int, int]] | None,
) -> Sequence[str]:
    if not truncated or not offsets:
        return lines
    with suppress(ToolError), closing_fd(files.open_fd(path)) as fd:
        if os.pread(fd, 2, 0) not in _UTF16:  # else ripgrep's offsets are those of its conversion to UTF-8
            return [_line(fd, line, truncated, offsets) for line in lines]
    return lines


def _line(fd: int, line: str, truncated: set[int], offsets: Mapping[int, tuple[int, int]]) -> str:
    number, colon, _ = line.partition(":")
    if not colon or not number.isdigit() or int(number) not in truncated or int(number) not in offsets:
        return line
    before, offset = offsets[int(number)]
    if before < LINE_CHARS * 3 // 4:
        return line
    start = max(0, before - _MARGIN)
    data = os.pread(fd, before - start + _MARGIN, offset + start)
    text = data.decode("utf-8", "replace")
    at = len(data[: before - start].decode("utf-8", "replace"))
    end = text.find("\n", at)
    return f"{number}:{excerpt(text if end < 0 else text[:end], at)}"
