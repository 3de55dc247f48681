"""What git lists of a directory: what a copy of it has, and which new files of a run are none of its changes.

git itself decides, in a directory with copies of the rules alone: there it meets no configuration and no pipe.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from tempfile import TemporaryDirectory
from threading import Event
from typing import IO

from .git import git, git_directory, read_regular, repository_of, running_git, shared_state
from .lazy import lazy
from .libc import beneath
from .settings.variables import environment
from .workspaces import PRIVATE_DIR

MAX_BYTES = 1024 * 1024
"""Of the rules of one file."""
SECONDS = 10.0
"""For all answers about a directory: lines with many wildcards take git long."""
_CONFIG_SECONDS = 2.0
"""Files that a configuration includes may be FIFOs."""
_LOOK_SECONDS = 0.1
_END = b"end"
"""An ignored path that each question ends with: git repeats only paths that are ignored."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def _nothing() -> None:
    pass


OuterRules = Sequence[tuple[Sequence[str], str]]
"""Texts of rules from outside a directory, the deciding one first, each with the path that leads to the directory."""


class _Rules(ExitStack):
    """Rules in a directory of their own, and the git that is asked which paths they name, started if there are any.

    Paths of directories end with a slash, that of the top is empty. git reads the rules of a directory when it is asked
    about a path in it, so those of deeper directories can be added between two questions.
    """

    def __init__(
        self,
        outer: OuterRules = (),
        exclude: Sequence[str] = (),
        stopped: Callable[[], bool] = lambda: False,
        seconds: float = SECONDS,
        before_waiting: Callable[[], object] = _nothing,
    ) -> None:
        super().__init__()
        self._before_waiting = before_waiting
        self._stopped = stopped
        self._seconds = seconds
        self._with_rules = set[str]()
        deepest = max((names for names, _ in outer), key=len, default=())
        self._inner = "".join(f"{name}/" for name in ("listed", *deepest))
        for names, text in reversed(outer):
            self._append("/".join(["listed", *deepest[: len(deepest) - len(names)]]), text)
        self._append("excluded", "\n".join(exclude))

    def add(self, root: int, folder: str) -> None:
        """Adds the rules of a directory below ``root``. Raises OSError(EFBIG) for too large a file."""
        data = b""
        with suppress(OSError), os.fdopen(beneath(root, f"{folder}.gitignore", _FILE, links=False), "rb") as file:
            data = file.read(MAX_BYTES + 1) if modes.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        if len(data) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"{folder}.gitignore is larger than {MAX_BYTES} bytes")
        self._append(self._inner + folder, os.fsdecode(data))

    def ignored(self, paths: Iterable[str]) -> set[str]:
        """Returns the paths that are ignored. Raises OSError."""
        return self._named(self._inner, paths)

    def excluded(self, paths: Iterable[str]) -> set[str]:
        """Returns the paths that ``exclude`` names. Raises OSError."""
        return self._named("excluded/", paths)

    def _append(self, folder: str, text: str) -> None:
        if text:
            (self._top / folder).mkdir(parents=True, exist_ok=True)
            with (self._top / folder / ".gitignore").open("ab") as file:
                file.write(os.fsencode(text.removeprefix("\ufeff")) + b"\n")
            self._with_rules.add(folder.partition("/")[0])

    def _named(self, top: str, paths: Iterable[str]) -> set[str]:
        if top.partition("/")[0] not in self._with_rules:
            return set()
        asked = dict[bytes, str]()
        for path in paths:
            if (top + path).endswith("/"):  # some rules are for directories alone
                (self._top / (top + path)).mkdir(parents=True, exist_ok=True)
            asked[os.fsencode((top + path).removesuffix("/"))] = path
        answer = self._answer(b"\0".join([*asked, _END]) + b"\0")
        return {asked[path] for path in answer.split(b"\0") if path in asked}

    def _answer(self, question: bytes) -> bytes:
        """Returns git's answer, which repeats those paths that are ignored; the last one, ``end``, always is."""
        stdin, stdout, stderr = self._pipes
        left, answer = memoryview(question), bytearray(b"\0")
        until = time.monotonic() + self._seconds
        self._before_waiting()
        with DefaultSelector() as pipes:
            pipes.register(stdin, EVENT_WRITE)
            pipes.register(stdout, EVENT_READ)
            while not answer.endswith(b"\0" + _END + b"\0"):
                if time.monotonic() > until or self._stopped():
                    raise TimeoutError(errno.ETIMEDOUT, "the patterns take it too long")
                ready = [key.fileobj for key, _ in pipes.select(_LOOK_SECONDS)]
                if stdout in ready:
                    answer += (piece := os.read(stdout.fileno(), 1 << 16))
                    if not piece:
                        raise OSError(errno.EIO, os.fsdecode(stderr.read()).strip())
                if stdin in ready:
                    left = left[os.write(stdin.fileno(), left) :]
                    if not left:
                        pipes.unregister(stdin)
        self._seconds = until - time.monotonic()
        return bytes(answer)

    @lazy
    def _top(self) -> Path:
        top = Path(self.enter_context(TemporaryDirectory(prefix="deputize-rules-")))
        (top / ".gitignore").write_bytes(b"/" + _END)
        return top

    @lazy
    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        running = running_git("check-ignore", "-z", "--stdin", "--no-index", cwd=self._top)
        process = self.enter_context(running)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        os.set_blocking(process.stdin.fileno(), False)
        return process.stdin, process.stdout, process.stderr


@dataclass(frozen=True, slots=True)
class Source:
    """A directory to copy, open, and its path; ``skip`` is a directory in it (device, inode) that is not copied.

    ``go_on`` is called for each directory, and may raise; ``before_waiting`` before git is waited for.
    """

    fd: int
    path: Path
    skip: tuple[int, int] | None = None
    stop: Event = field(default_factory=Event)
    go_on: Callable[[], None] = _nothing
    before_waiting: Callable[[], object] = _nothing

    def names(self, folder: str) -> Iterator[str]:
        """Yields the names in a directory; nothing of one that cannot be read."""
        self.go_on()
        with suppress(OSError), ExitStack() as opened:
            fd = beneath(self.fd, folder or ".", _FOLDER, links=False)
            opened.callback(os.close, fd)
            found = os.fstat(fd)
            with os.scandir(fd) as entries:
                for entry in () if (found.st_dev, found.st_ino) == self.skip else entries:
                    yield entry.name + "/" * entry.is_dir(follow_symlinks=False)


def listed(source: Source, outer: OuterRules | None, exclude: Sequence[str] = (), seconds: float = SECONDS) -> set[str]:
    """Returns the paths that are tracked or not ignored, but those that ``exclude`` names, and what is in ``.git``.

    Without ``outer`` rules ignored paths count as all others. Raises OSError.
    """
    found = set[str]()
    tracked = dict[str, frozenset[str]]()
    level = {"": frozenset([""] if repository_of(source.path) else [])}
    with _Rules(outer or (), exclude, source.stop.is_set, seconds, source.before_waiting) as rules:
        while level:
            paths = dict[str, frozenset[str]]()
            for folder, repositories in level.items():
                names = [*source.names(folder)]
                around = repositories | {folder} if {".git", ".git/"} & {*names} else repositories
                if outer is not None and ".gitignore" in names:
                    rules.add(source.fd, folder)
                paths |= {folder + name: around for name in names if name not in (".git/", f"{PRIVATE_DIR}/")}
            ignored = rules.ignored(paths)
            for folder in {each for path in ignored for each in paths[path]} - tracked.keys():
                tracked[folder] = tracked_paths(source.path / folder)
            ignored = {
                path
                for path in ignored
                if f"/{path}".rpartition("/")[2] != ".git"
                and not any(path[len(each) :].removesuffix("/") in tracked[each] for each in paths[path])
            }
            ignored |= rules.excluded(paths)
            level = {path: around for path, around in paths.items() if path not in ignored and path.endswith("/")}
            found |= {path.removesuffix("/") for path in paths.keys() - ignored}
    return found


def ignored_files(
    root: int,
    paths: Collection[str],
    outer: OuterRules,
    stopped: Callable[[], bool] = lambda: False,
    before_waiting: Callable[[], object] = _nothing,
) -> set[str]:
    """Returns which files below a directory (descriptor) git would ignore, if they were new. Raises OSError."""
    if not paths:
        return set()
    folders = {path[: at + 1] for path in paths for at, character in enumerate(path) if character == "/"}
    with _Rules(outer, stopped=stopped, before_waiting=before_waiting) as rules:
        for folder in {"", *folders}:
            rules.add(root, folder)
        return rules.ignored(paths)


def tracked_paths(folder: Path) -> frozenset[str]:
    """Returns the tracked files below a folder of a repository and the directories that they are in."""
    repository = repository_of(folder)
    if repository is None or not (git_directory(repository) / "index").is_file():
        return frozenset()
    try:
        done = git("ls-files", "-z", "--cached", repository=repository, cwd=folder)
    except OSError:
        return frozenset()
    found: set[str] = set()
    for path in map(os.fsdecode, done.stdout.split(b"\0")):
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return frozenset(found)


def outer_rules(source: Path) -> OuterRules:
    """Returns the rules for a directory that git has from elsewhere: from folders above, ``info/exclude``, the user's.

    Where these ignore the directory itself, it was asked for by name, and none of them counts. Raises OSError.
    """
    repository = repository_of(source)
    if repository is None:
        return ()
    names = source.relative_to(repository).parts
    files = [(names[at:], Path(repository, *names[:at], ".gitignore")) for at in range(len(names) - 1, -1, -1)]
    files += [(names, path) for path in (shared_state(repository) / "info/exclude", _excludes_file(repository)) if path]
    outer = [(each, os.fsdecode(read_regular(path, MAX_BYTES))) for each, path in files]
    if names:
        with _Rules(outer) as rules:
            if rules.ignored([""]):
                return ()
    return [(each, text) for each, text in outer if text]


def _excludes_file(repository: Path) -> Path | None:
    """Returns the file that ``core.excludesFile`` names to git in this repository, or git's default one."""
    asked = "--type=path", "--get", "core.excludesFile"
    for configured in (repository, None):  # the user's part alone where git cannot read the repository's
        try:
            done = git("config", *asked, repository=configured, cwd=repository, as_user=True, seconds=_CONFIG_SECONDS)
        except OSError:
            continue
        if done.returncode == 0:
            return repository / os.fsdecode(done.stdout.rstrip(b"\n"))
        if done.returncode == 1:
            break
    try:
        return Path(environment().get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "git/ignore"
    except RuntimeError:
        return None


def is_copied(wanted: Set[str] | None, path: str, is_directory: bool) -> bool:
    """Whether a copy has a path, where ``wanted`` was listed; None for all."""
    *folders, name = path.split("/")
    if is_directory and name in (".git", PRIVATE_DIR):
        return name == ".git"
    return wanted is None or path in wanted or ".git" in folders
