"""The one place that starts git outside of a sandbox, and where a repository keeps its state.

git starts programs that a repository's configuration names, and a repository may be untrusted. So git never reads
that configuration: it runs with a state of its own, and uses only the objects and the index of the repository.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ..errors import Misconfigured
from ..settings.files import regular_bytes
from ..settings.variables import environment

GitCommand = Literal["cat-file", "check-ignore", "config", "ls-files", "merge-file"]
"""What may be asked: commands that start no other git, as ``status`` and ``diff`` do in submodules."""
SECONDS = 30.0
_MAX_LINK_BYTES = 4096
_MAX_CONFIG_BYTES = 1 << 20
_MAX_ALTERNATES = 6
"""So deep git follows alternates of alternates."""
_MOST_FOLDERS = 100
_SHA256 = re.compile(rb"^\s*objectFormat\s*=\s*sha256\s*$", re.IGNORECASE | re.MULTILINE)
_OPTIONS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.untrackedCache": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
}
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_NO_CONFIGURATION = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_GLOBAL": "/dev/null"}
_SERVED = " ".join(
    f"-c {option}"
    for option in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.alternateRefsCommand=true",
        "receive.autogc=false",
        "receive.denyCurrentBranch=refuse",
        "receive.denyDeleteCurrent=refuse",
    )
)
UPLOAD_PACK, RECEIVE_PACK = (f"git {_SERVED} {name}" for name in ("upload-pack", "receive-pack"))
"""How the other side of a local repository is started: its configuration and its hooks are untrusted."""
PUSH = ("push", "--porcelain", "--no-verify", "--no-signed", f"--receive-pack={RECEIVE_PACK}")
"""The command that pushes what this project made, up to its remote."""
_OF_USER = ("HOME", "XDG_CONFIG_HOME", *_NO_CONFIGURATION)
"""The variables that lead to the user's own configuration."""


def git(
    command: GitCommand,
    *arguments: str | Path,
    repository: Path | None = None,
    cwd: Path | None = None,
    input: bytes = b"",
    as_user: bool = False,
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command of git and returns what it wrote, whatever its exit code is.

    Raises OSError as ``running_git`` does, and TimeoutError after ``seconds``.
    """
    with running_git(command, *arguments, repository=repository, cwd=cwd, as_user=as_user) as process:
        try:
            stdout, stderr = process.communicate(input, seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(errno.ETIMEDOUT, f"git {command} did not end within {seconds:g} s") from None
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@contextmanager
def running_git(
    command: GitCommand,
    *arguments: str | Path,
    repository: Path | None = None,
    cwd: Path | None = None,
    as_user: bool = False,
) -> Generator[subprocess.Popen[bytes]]:
    """Starts a command of git, with pipes to it; it is killed at the end of the block.

    It begins in ``cwd``, else in the ``repository`` whose files, objects and index it uses. No configuration counts;
    ``as_user``: only that of the user who runs this process. ``config`` alone, which starts nothing, reads that of the
    repository, too. Raises OSError: without git FileNotFoundError, and for a state in which git would wait for a FIFO.
    """
    if repository:
        _check_files(command, repository, arguments)
    variables = environment()
    with tempfile.TemporaryDirectory(prefix="deputize-git-") as own:
        env = {"PATH": variables.get("PATH", os.defpath), **_ENVIRONMENT, **_state(Path(own), repository)}
        env |= {name: variables[name] for name in _OF_USER if name in variables} if as_user else _NO_CONFIGURATION
        if command == "config" and repository:
            env["GIT_DIR"] = str(git_directory(repository).absolute())
        argv = [*command_line(env["PATH"]), command, *map(str, arguments)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, bufsize=0, cwd=cwd or repository or own, env=env, stdin=pipe, stdout=pipe, stderr=pipe
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def own_environment() -> dict[str, str]:
    """Returns the environment for git in a repository of ours: no configuration of the system or a user counts."""
    return {"PATH": environment().get("PATH", os.defpath), **_ENVIRONMENT, **_NO_CONFIGURATION}


def command_line(path: str, further: Mapping[str, str] = {}) -> list[str]:
    """Returns how git is started, with options that no configuration changes; ``path`` is searched for it."""
    options = [text for name, value in {**_OPTIONS, **further}.items() for text in ("-c", f"{name}={value}")]
    return [_program(path), "--no-pager", *options]


def found_git() -> str | None:
    """Returns the path of the git that is started here; None where there is none."""
    try:
        return _program(environment().get("PATH", os.defpath))
    except FileNotFoundError:
        return None


def _program(path: str) -> str:
    """Returns the path of git; a relative entry of PATH would be looked up in an untrusted folder."""
    absolute = os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/"))
    if found := shutil.which("git", path=absolute):
        return found
    raise FileNotFoundError(errno.ENOENT, "git is not on PATH")


def _state(own: Path, repository: Path | None) -> dict[str, str]:
    """Makes a state without configuration and returns the variables that lead to it and to the repository's data."""
    for name in ("objects", "refs"):
        (own / name).mkdir()
    (own / "HEAD").write_text("ref: refs/heads/none\n")
    (own / "config").write_text("[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n")
    if repository is None:
        return {"GIT_DIR": str(own)}
    state = git_directory(repository)
    if _SHA256.search(read_regular(shared_state(repository) / "config", _MAX_CONFIG_BYTES)):
        (own / "config").write_text("[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tobjectFormat = sha256\n")
    for shared_index in state.glob("sharedindex.*"):
        (own / shared_index.name).symlink_to(shared_index.absolute())
    return {
        "GIT_DIR": str(own),
        "GIT_WORK_TREE": str(repository.absolute()),
        "GIT_INDEX_FILE": str((state / "index").absolute()),
        "GIT_OBJECT_DIRECTORY": str((shared_state(repository) / "objects").absolute()),
    }


def _check_files(command: GitCommand, repository: Path, arguments: Sequence[str | Path]) -> None:
    """Raises OSError where a file that git would read is none: it would wait for a FIFO without an end."""
    state, shared = git_directory(repository), shared_state(repository)
    paths = [*(state / name for name in ("HEAD", "commondir", "config.worktree", "index")), shared / "config"]
    paths += state.glob("sharedindex.*")
    if command == "cat-file":
        for objects in _folders_of_objects(shared / "objects"):
            paths += [*objects.glob("pack/*"), objects / "info/alternates"]
            paths += [objects / str(each)[:2] / str(each)[2:] for each in arguments[-1:]]
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, f"{path} is neither a file nor a folder, and git would wait for it")


def _folders_of_objects(first: Path) -> list[Path]:
    """Returns a folder of objects and those that it names as further ones, as many as git follows."""
    found, level = [first], [first]
    for _ in range(_MAX_ALTERNATES):
        texts = ((folder, read_regular(folder / "info/alternates", _MAX_CONFIG_BYTES)) for folder in level)
        named = (folder / os.fsdecode(line) for folder, text in texts for line in text.split(b"\n") if line)
        level = [each for each in dict.fromkeys(named) if each not in found][:_MOST_FOLDERS]
        found += level
    return found


def repository_of(folder: Path) -> Path | None:
    """Returns the directory, the folder itself or one above, where the repository begins that the folder is in."""
    return next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)


def git_directory(repository: Path) -> Path:
    """Returns where a repository keeps git's state: ``.git``, or what the file of that name in a worktree names."""
    link = repository / ".git"
    named = _named_path(link)
    return repository / named.removeprefix("gitdir: ") if named.startswith("gitdir: ") else link


def shared_state(repository: Path) -> Path:
    """Returns git's directory that all worktrees of a repository have in common."""
    return shared_by_worktrees(git_directory(repository), _MAX_LINK_BYTES)


def shared_by_worktrees(state: Path, most: int = 1 << 16) -> Path:
    """Returns the state that a worktree's has in common with others, as its file of at most so many bytes names it.

    That is the state itself where it is none of a worktree.
    """
    return state / _named_path(state / "commondir", most)


def _named_path(file: Path, most: int = _MAX_LINK_BYTES) -> str:
    """Returns the path in a file, without the line ends that git leaves out, too."""
    return os.fsdecode(read_regular(file, most).partition(b"\0")[0].rstrip(b"\r\n"))


def read_regular(path: Path, most: int) -> bytes:
    """Returns the content of a regular file of at most so many bytes; nothing for all else."""
    try:
        return regular_bytes(path, most) or b""
    except (Misconfigured, ValueError):  # unreadable, too large, or a name with a NUL
        return b""
