"""The files of a workspace that a search includes, listed by ripgrep and matched with a glob pattern."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...shared.errors import ErrorType, ToolError
from ...shared.libc import closing_fd
from ...shared.text import count
from ..contracts import FileAccess, Sandbox
from ..threads import give_way, run_in_thread
from ..workspace.file_entries import is_being_written, is_private
from .glob_pattern import Exists, GlobPattern, GlobState
from .ripgrep import SkippedPaths, add_skipped, run_ripgrep, walk_options

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


async def find_files(
    files: FileAccess,
    sandbox: Sandbox,
    pattern: str,
    top: str,
    *,
    skipped: SkippedPaths,
    gitignore: bool = True,
    ignore_case: bool = False,
) -> list[str]:
    """Returns the files below ``top`` that match a glob pattern, the newest first, then by path; see ``matching``."""
    listed = await list_files(files, sandbox, top, gitignore=gitignore, skipped=skipped)
    return await run_in_thread(matching, files, listed, pattern, top, ignore_case=ignore_case)


async def list_files(
    files: FileAccess, sandbox: Sandbox, top: str, *, gitignore: bool, skipped: SkippedPaths
) -> Sequence[str]:
    """Returns every file below ``top`` that a search includes; an ignored ``top`` was requested by name.

    ``skipped`` receives what could not be read. Raises ToolError: NOT_A_DIRECTORY, FILE_NOT_FOUND; see ``run_ripgrep``.
    """
    os.close(files.open_fd(top, _FOLDER))
    options = walk_options(gitignore=gitignore and not is_private(top))
    done = await run_ripgrep(sandbox, ["--files", *options, "--", top], files.mount, top)
    add_skipped(done, top, skipped)
    *paths, _ = os.fsdecode(done.stdout).split("\0")  # after the last one, or cut off
    if done.dropped_bytes:
        number = count(len(paths), "file")
        skipped.give_up(f"Only {number} could be listed, the most recently changed ones. Use a narrower path.")
    return [path.removeprefix("./") for path in paths]


def matching(
    files: FileAccess, listed: Iterable[str], pattern: str, top: str, *, ignore_case: bool = False
) -> list[str]:
    """Returns the listed files below ``top`` that match a glob pattern, the newest first, then by path.

    The pattern starts at ``top``, an absolute one at the workspace.

    Raises:
        ToolError: INVALID_TOOL_PARAMS for a pattern with ``..`` or too many alternatives.
    """
    start, wanted = _wanted(files, pattern, top, ignore_case=ignore_case)
    below = "" if start == "." else f"{start}/"
    states: dict[str, GlobState] = {}
    found: list[str] = []
    for path in listed:
        give_way()
        folder, _, name = path.removeprefix(below).rpartition("/")
        if folder not in states:
            states[folder] = wanted.at(folder)
        if states[folder].fits(name) and not is_being_written(name):
            found.append(path)
    return newest_first(files, found)


def folders_matching(files: FileAccess, listed: Iterable[str], pattern: str, top: str) -> list[str]:
    """Returns the directories of listed files that match a glob pattern, by path."""
    start, wanted = _wanted(files, pattern.rstrip("/") or pattern, top)
    below = "" if start == "." else f"{start}/"
    folders: set[str] = set()
    for path in listed:
        give_way()
        folder = path.removeprefix(below).rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(below + each for each in folders if wanted.at(each.rpartition("/")[0]).fits(each.rpartition("/")[2]))


def _wanted(files: FileAccess, pattern: str, top: str, *, ignore_case: bool = False) -> tuple[str, GlobPattern]:
    """Returns the directory at which a pattern starts, and the pattern. Raises ToolError as ``matching`` does."""
    if ".." in pattern.split("/"):
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "the pattern contains '..'; pass the directory as path instead")
    absolute = pattern.startswith("/")
    start = "." if absolute else top
    text = files.relative(pattern) if absolute else pattern
    return start, GlobPattern(text, exists=exists_in(files, start), ignore_case=ignore_case)


def exists_in(files: FileAccess, top: str) -> Exists:
    """Returns the predicate whether a path exists below the directory."""

    def exists(path: str) -> bool:
        try:
            return files.stat(f"{top}/{path}", follow=False) is not None
        except ToolError:
            return False

    return exists


def newest_first(files: FileAccess, paths: Iterable[str]) -> list[str]:
    """Sorts paths by modification time, the newest first, then by path; missing files come last.

    A directory is opened once for all its files.
    """
    folders: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append((path, name))
    changed: dict[str, int] = {}
    for folder, inside in folders.items():
        try:
            fd = files.open_fd(folder or ".", os.O_PATH | os.O_DIRECTORY)
        except ToolError:
            changed |= {path: 0 for path, _ in inside}
            continue
        with closing_fd(fd):
            changed |= {path: _mtime(name, fd) for path, name in inside}
    return sorted(sorted(changed), key=changed.__getitem__, reverse=True)


def _mtime(name: str, folder: int) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except (OSError, ValueError):
        return 0
