"""What the sandbox must show, besides the system's directories, so that a server's program can run in it.

The program brings its installation: its virtual environment with the interpreter behind it, or ``bin`` and ``lib`` of
the prefix it was installed to. Nothing else of the machine is shown unless the configuration names it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.errors import Misconfigured
from worker.sandbox import environment
from worker.sandbox.environment import MOUNT, Shown

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SANDBOXS_OWN = (MOUNT, "/proc", "/dev")
_MOST_LINKS = 16
_PYTHON = ("lib/python3*",)
_INSTALLED = (*_PYTHON, "lib/node_modules")


def program_of(command: str, path: str, *, sandbox: bool = True) -> str:
    """Where the command's program is: the sandbox's own where it has one, else what the worker finds on ``path``."""
    if "/" in command:
        return command
    ours = environment.program(command, environment.shown()) if sandbox else None
    return ours or shutil.which(command, path=path) or command


def needed(program: str, asked: Sequence[Path]) -> list[Shown]:
    """What to show for a program, an absolute path, and what the configuration ``asked`` for.

    Raises ``Misconfigured`` for a path that cannot be shown.
    """
    for path in asked:
        if not path.is_absolute() or not path.exists():
            raise Misconfigured(f"show names {path}, which is no absolute path of something that exists here")
        if _below(path, _SANDBOXS_OWN):
            raise Misconfigured(f"show names {path}, but the sandbox has its own /{path.parts[1]}")
    wanted = [*_installation(program), *asked]
    own = [shown.place for shown in environment.shown()]
    hidden = sorted({path for path in wanted if not _below(path, (*_SYSTEM, *own)) and path.exists()})
    roots = [path for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]
    return [Shown(f"mcp-{number}", path, str(path)) for number, path in enumerate(roots)]


def _installation(program: str) -> Iterator[Path]:
    """The directories or files that the program was installed as, along the links that lead to it."""
    path = Path(program)
    for _ in range(_MOST_LINKS):
        if not path.is_absolute() or not path.exists() or _below(path, (*_SYSTEM, *_SANDBOXS_OWN)):
            return
        prefix = path.parent.parent
        if (prefix / "pyvenv.cfg").is_file():
            yield prefix
            yield from _parts(_base(prefix), _PYTHON)
        else:
            yield from _parts(prefix) or [path]
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _parts(prefix: Path, installed: Sequence[str] = _INSTALLED) -> list[Path]:
    """``bin`` and ``lib`` of a prefix where a Python or a Node is installed; nothing else that may lie there.

    Where one of them is a link to another place it is no installation: that place would be shown as a whole.
    """
    if prefix == Path("/") or not any(any(prefix.glob(pattern)) for pattern in installed):
        return []
    parts = [prefix / "bin", prefix / "lib"]
    real = prefix.resolve()
    return parts if all(part.resolve() == real / part.name for part in parts) else []


def _base(venv: Path) -> Path:
    """The prefix of the Python that a virtual environment was made with."""
    settings = (line.partition("=") for line in (venv / "pyvenv.cfg").read_text("utf-8", "replace").splitlines())
    home = next((value.strip() for key, _, value in settings if key.strip() == "home"), "/usr/bin")
    return Path(home).parent


def _below(path: Path, roots: Sequence[str]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
