"""The files with a project's instructions: their names, their texts, and the files that they import."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ...shared.instructions import InstructionFile
from ...shared.libc import beneath, closing_fd
from ...shared.patch_format import printable_path
from ...shared.text import visible_block

MAX_BYTES = 32 * 1024
"""Of the instructions of one directory, with what they import; more is cut."""
MAX_NESTED = 200
"""Directories below the root whose instructions count."""
_MAX_IMPORTS = 20
_FILE = os.O_RDONLY | os.O_NONBLOCK
_IMPORT = re.compile(r"(?:^|(?<=[\s(]))@((?:[\w.-]{1,100}/){0,20}[\w.-]{0,100}\w)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]{0,300}`", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the model reads of the instructions of one directory."""

    text: str
    """One section for each file, under its path, without control characters."""
    files: tuple[InstructionFile, ...]
    """The file of the directory first, then those that it imports."""


def instructions_of(folder: int, directory: str, names: Sequence[str]) -> Instructions | None:
    """Returns the instructions of a directory below the folder; None where it has none. Blocks.

    Args:
        folder: A descriptor of the files as they were before the run. Nothing outside of it is read.
        directory: Relative to it; "" is the folder itself.
        names: The first of these names counts that is a file.
    """
    for name in names:
        path = f"{directory}/{name}" if directory else name
        if (data := _read(folder, path)) is not None:
            return _with_imports(folder, path, data)
    return None


def nested(paths: Iterable[str], names: Sequence[str]) -> list[str]:
    """Returns the directories below the root that may have instructions, those nearer to it first."""
    found = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in names}
    return sorted(found - {""}, key=lambda each: (each.count("/"), each))[:MAX_NESTED]


def all_instructions(folder: int, paths: Iterable[str], names: Sequence[str]) -> dict[str, Instructions]:
    """Returns the instructions of each directory that has some, by directory, the root's first. Blocks."""
    found = {each: instructions_of(folder, each, names) for each in ("", *nested(paths, names))}
    return {directory: each for directory, each in found.items() if each}


def _with_imports(folder: int, path: str, data: bytes) -> Instructions:
    read, left = {path: data}, MAX_BYTES - len(data)
    for imported in _imports(path, data.decode("utf-8", "replace")):
        if left <= 0 or len(read) > _MAX_IMPORTS:
            break
        if imported not in read and (more := _read(folder, imported)) is not None:
            read[imported] = more
            left -= len(more)
    digests = {each: sha256(text[:MAX_BYTES]).hexdigest() for each, text in read.items()}
    files = tuple(InstructionFile(path=printable_path(each), sha256=digest) for each, digest in digests.items())
    return Instructions(_text(read), files)


def _imports(path: str, text: str) -> Iterator[str]:
    """Yields the files that a text names as ``@FILE``, relative to its own directory; code in it names none."""
    directory = path.rpartition("/")[0]
    for found in _IMPORT.finditer(_CODE.sub("", text[:MAX_BYTES])):
        yield os.path.normpath(f"{directory}/{found[1]}" if directory else found[1])


def _text(read: dict[str, bytes]) -> str:
    sections, left = list[str](), MAX_BYTES
    for path, data in read.items():
        kept = data[: max(left, 0)]
        left -= len(kept)
        text = visible_block(kept.decode("utf-8", "replace")).strip()
        note = "" if len(kept) == len(data) else f"\n[cut: of a directory {MAX_BYTES // 1024} KiB are read]"
        sections.append(f"## {printable_path(path)}\n\n{text}{note}")
    return "\n\n".join(sections)


def _read(folder: int, path: str) -> bytes | None:
    """Returns the beginning of a file, one byte more than counts; None where there is none in the folder."""
    try:
        with closing_fd(beneath(folder, path, _FILE)) as fd:
            return os.read(fd, MAX_BYTES + 1) if modes.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None
