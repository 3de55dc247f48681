"""File errors for the model: the path, what is wrong with it, and what to do instead."""

from __future__ import annotations

import errno
import os
import stat as modes

from ...shared.errors import ErrorType, ToolError


def tool_error(path: str, error: OSError | UnicodeEncodeError, mount: str) -> ToolError:
    """Converts an error of the system about ``path`` to a ToolError; ``mount`` is the workspace's path."""
    number = error.errno if isinstance(error, OSError) else errno.EILSEQ
    match number:
        case errno.ENOENT:
            return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}")
        case errno.EXDEV | errno.ELOOP:
            place = "the workspace" if mount == "/workspace" else mount
            why = f"it leads out of {place}" if number == errno.EXDEV else "it goes through a link loop"
            return not_allowed(path, why, mount)
        case errno.ENAMETOOLONG | errno.EILSEQ:
            return not_allowed(path, "no file can have this name", mount)
        case errno.ENOTDIR:
            return ToolError(ErrorType.NOT_A_DIRECTORY, f"Not a directory: a part of {path} is a file")
        case errno.EISDIR:
            return not_a_file(path, modes.S_IFDIR)
        case errno.ENXIO:
            return not_a_file(path, modes.S_IFIFO)
        case errno.EACCES | errno.EPERM:
            return ToolError(ErrorType.PERMISSION_DENIED, f"Permission denied: {path}")
        case _:
            return ToolError(ErrorType.EXECUTION_FAILED, f"{path}: {os.strerror(number or errno.EIO)}")


def not_allowed(path: str, why: str, mount: str) -> ToolError:
    """Returns the error for a path outside the workspace or an invalid one."""
    return ToolError(
        ErrorType.PATH_NOT_ALLOWED,
        f"Path not allowed: {path!r}: {why}. Use a path relative to the workspace, or one below {mount}.",
    )


def not_a_file(path: str, mode: int) -> ToolError:
    """Returns the error for a path that is not a regular file; ``mode`` is its ``st_mode``."""
    what = "a directory" if modes.S_ISDIR(mode) else "a device, pipe or socket"
    return ToolError(ErrorType.NOT_A_FILE, f"Not a file: {path} is {what}")


def too_large(path: str, size: int, allowed: int) -> ToolError:
    """Returns the error for a file that is too large to read; sizes are in bytes."""
    message = f"File too large: {path} has {size} bytes, at most {allowed} are read. Read a part of it."
    return ToolError(ErrorType.FILE_TOO_LARGE, message)
