"""Differences between two states of a directory, as git records them; renames by equal content."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple

LINK = "120000"
"""git's mode of a symbolic link."""
DIRECTORY = "040000"
"""git's mode of a directory."""


class Content(NamedTuple):
    """What git records of a path: its mode and the digest of its content (None if it cannot be read)."""

    git_mode: str
    sha256: str | None


class Difference(NamedTuple):
    """A changed path: ``old`` is None if it was created, ``new`` if it was deleted; ``source`` is set for a rename."""

    path: str
    old: Content | None
    new: Content | None
    source: str | None = None


def is_unknown(each: Difference) -> bool:
    """Whether the file exists before and after, and it is unknown whether its content changed."""
    return each.old is not None and each.new is not None and None in (each.old.sha256, each.new.sha256)


def join_renames(found: list[Difference]) -> list[Difference]:
    """Joins each deleted file with a created one of the same content, if there is one, to a rename.

    Links are not joined: git cannot apply a patch that renames a link and creates a directory in its place.
    """
    deleted: dict[Content, list[Difference]] = {}
    for each in sorted(found):
        if each.new is None and each.old and each.old.sha256 and each.old.git_mode != LINK:
            deleted.setdefault(each.old, []).append(each)
    renamed: dict[str, Difference] = {}
    for each in sorted(found):
        if each.old is None and each.new and (sources := deleted.get(each.new)):
            name = PurePosixPath(each.path).name
            source = next((one for one in sources if PurePosixPath(one.path).name == name), sources[0])
            sources.remove(source)
            renamed[each.path] = each._replace(old=source.old, source=source.path)
    gone = {each.source for each in renamed.values()}
    return [renamed.get(each.path, each) for each in found if each.path not in gone]
