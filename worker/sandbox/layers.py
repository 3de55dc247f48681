"""Layers: directories that were prepared before the run, shown below its files, each with a folder for its changes.

The kernel's overlay lays what commands write over the prepared directory, into the folder of the run. So nothing that a
run writes reaches another run, or counts as a change of its files. Where the kernel does not permit overlays, commands
see the directories read-only.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...shared.libc import beneath, closing_fd
from .environment import MOUNT, owner

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHANGES = "changes"
"""The name under which the folder for changes is mounted where the worker is root."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A prepared directory: ``source`` appears as ``target``. ``inside`` is its path in the workspace, or ""."""

    name: str
    source: Path
    target: str
    inside: str = ""

    @classmethod
    def of_workspace(cls, number: int, source: Path, inside: str) -> Layer:
        return cls(f"layer-{number}", source, f"{MOUNT}/{inside}", inside)


def layer_options(layers: Iterable[Layer], changes: Path | None, place: Callable[[str, Path], str]) -> Iterator[str]:
    """Yields bubblewrap's options. ``changes`` is where commands' changes go; None: they may make none.

    ``place`` returns the path at which bubblewrap reaches a directory, by its name.
    """
    for layer in layers:
        source = place(layer.name, layer.source)
        if changes is None:
            yield from ("--ro-bind", source, layer.target)
        else:
            inner = Path(place(CHANGES, changes))
            upper, work = (inner / made for made in _made(changes, layer.name))
            yield from ("--overlay-src", source, "--overlay", str(upper), str(work), layer.target)


def _made(changes: Path, name: str) -> tuple[Path, Path]:
    """Returns the folders of one mount, relative to that of all changes.

    Commands that run at the same time share what they write, but not the kernel's own folder for its work.
    """
    (changes / name).mkdir(exist_ok=True)
    upper, work = Path(name, "upper"), Path(name, f"work-{secrets.token_hex(8)}")
    for path in (changes / upper, changes / work):
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)
            if ids := owner():
                os.chown(path, *ids)
    return upper, work


def fitting(layers: Iterable[Layer], workspace: int) -> list[Layer]:
    """Returns the layers that can be shown over an open workspace.

    Left out are those where the run has made a file or a link of the path or of one above it: a mount would follow it.
    """
    return [layer for layer in layers if not layer.inside or _can_be_mounted(workspace, layer.inside)]


def _can_be_mounted(workspace: int, inside: str) -> bool:
    above, _, name = inside.rpartition("/")
    try:
        with closing_fd(beneath(workspace, above or ".", _FOLDER, links=False)) as folder:
            return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return _is_folder(workspace, above or ".")
    except OSError:
        return False


def _is_folder(workspace: int, path: str) -> bool:
    with suppress(OSError), closing_fd(beneath(workspace, path, _FOLDER, links=False)):
        return True
    return False


def make_room(layers: Iterable[Layer], workspace: Path) -> None:
    """Removes the files and links that are at the path of a layer. Only for a folder that is the worker's own."""
    with closing_fd(os.open(workspace, _FOLDER)) as folder:
        for layer in layers:
            above, _, name = layer.inside.rpartition("/")
            with suppress(OSError), closing_fd(beneath(folder, above or ".", _FOLDER, links=False)) as parent:
                if layer.inside and not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=parent)
