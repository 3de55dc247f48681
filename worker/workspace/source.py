"""The directory that a workspace is a copy of, opened where it may be copied."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...shared.errors import Invalid
from ..sandbox.environment import owner
from .origin import is_workspace
from .removal import in_use

_PSEUDO_FILE_SYSTEMS = (Path("/proc"), Path("/sys"))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def open_source(path: str, allowed: Sequence[Path] | None) -> Generator[int]:
    """Opens the source directory. The open directory is checked, not its path, which may change at any time."""
    if not Path(path).is_absolute():
        raise invalid("/workspace/path", f"{path} is not absolute, and the worker's working directory is another one")
    try:
        fd = os.open(path, _FOLDER)
    except OSError as error:
        raise invalid("/workspace/path", f"{path} cannot be opened as a directory: {error.strerror}") from None
    try:
        real = Path(f"/proc/self/fd/{fd}").readlink()
        if why := _refusal_reason(real):
            raise invalid(
                "/workspace/path", f"{path} cannot be copied: {why}; use a directory with the files to work on"
            )
        roots = None if allowed is None else [each.resolve() for each in allowed]
        if roots is not None and not any(real.is_relative_to(each) for each in roots):
            where = ", ".join(map(str, roots)) or "no directory (set DEPUTIZE_WORKSPACE_SOURCES)"
            raise invalid("/workspace/path", f"{path} may not be copied; allowed: {where}")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def held_source(path: str, source: int, folder: Path) -> Generator[None]:
    """Keeps the open source from being deleted while it is copied to ``folder``, if it is another workspace's files."""
    real = Path(f"/proc/self/fd/{source}").readlink()
    if not is_workspace(real, folder):
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(in_use(real.parent))
        except FileNotFoundError:
            raise invalid("/workspace/path", f"{path} was removed before it could be copied") from None
        yield


def _refusal_reason(real: Path) -> str | None:
    if real == Path("/"):
        return "it is the root of the file system"
    if any(real.is_relative_to(each) for each in _PSEUDO_FILE_SYSTEMS):
        return "it is a virtual file system of the kernel"
    return None


@contextmanager
def open_folder(folder: Path) -> Generator[int]:
    """Yields a descriptor of the directory."""
    with closing_fd(os.open(folder, _FOLDER)) as fd:
        yield fd


@contextmanager
def closing_fd(fd: int) -> Generator[int]:
    """Yields the descriptor, and closes it with the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def write_new(folder: int, name: str, data: bytes) -> None:
    """Writes a new file of the workspace's owner into the directory of the descriptor."""
    with closing_fd(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)) as fd:
        if uid_gid := owner():
            os.fchown(fd, *uid_gid)
        os.write(fd, data)


def invalid(pointer: str, detail: str) -> Invalid:
    """Returns the error of one field of a request."""
    return Invalid(detail, [{"pointer": pointer, "detail": detail}])
