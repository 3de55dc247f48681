"""Clones of repositories: one cache per repository and machine, and from it a clone per commit, to be copied by runs.

A clone has the history that its depth allows and nothing else of the cache, so that no run finds what came after its
ref. Many runs over one repository cost one fetch: one that began after a request was accepted has what it asked for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from ..errors import Invalid, RepositoryFailed
from ..libc import closing_fd
from ..log import log
from ..text import clip, visible
from ..workspaces import MAX_DEPTH, MAX_ENTRIES, delete
from .command import UPLOAD_PACK, read_regular, shared_by_worktrees
from .own import OwnRepository, Patience
from .remote import URL, Remote, is_commit

_MAX_PACKS = 50
"""A cache with more packs is begun anew."""
_MAX_NAMED = 20
_MAX_ATTRIBUTES = 1 << 20
_LEFTOVERS = ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/??/tmp_*")
"""What commands leave that were killed."""
_CONVERTS = re.compile(rb"filter=\S+|working-tree-encoding=(?!(?i:utf-?8)\Z)\S+|eol=crlf|ident")
"""Attributes by which git makes files that differ from what the repository stores."""
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"
"""Files are exactly what the repository stores, so that a patch of them fits what it stores."""

_INERT = "".join(f'[protocol "{name}"]\n\tallow = never\n' for name in ("https", "http"))
"""Nothing is fetched by the way: where commands may reach the host, what came after the ref would be there."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ref of a repository, as a request asks for it. ``since``: a fetch that began then, or later, is new enough.

    Without a ``depth`` any clone of the commit will do.
    """

    remote: Remote
    ref: str | None
    depth: int | None
    since: float
    max_bytes: int

    @property
    def key(self) -> str:
        return _digest(f"{self.ref}\n{self.depth}")


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone in a folder of its own; ``branch`` is the one that is checked out, if it is one."""

    folder: Path
    commit: str
    branch: str | None
    not_copied: list[str]

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def state(self) -> Path:
        return self.files / ".git"

    @classmethod
    def read(cls, folder: Path) -> Clone:
        """Raises FileNotFoundError where there is none."""
        return cls(folder, **json.loads((folder / "clone.json").read_text("utf-8")))

    def write(self, folder: Path) -> None:
        fields = {"commit": self.commit, "branch": self.branch, "not_copied": self.not_copied}
        (folder / "clone.json").write_text(json.dumps(fields), "utf-8")


@contextmanager
def clone_of(root: Path, wanted: Wanted, patience: Patience) -> Generator[Clone]:
    """Yields a clone of the ref, made if it is not there; the janitor keeps it while the block runs. Blocks.

    Raises RepositoryFailed, Invalid for a repository that is too large, and what ends the ``patience``.
    """
    place = root / _digest(wanted.remote.url)
    with ExitStack() as held:
        held.enter_context(_made(place, patience))
        with _locked(place / "lock", os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX, patience) as lock:
            try:
                clone = _known(place, wanted)
                held.enter_context(_in_use(clone.folder, patience))
            except FileNotFoundError:  # there is none, or the janitor has just removed it
                clone = _Making(place, wanted, patience, lock).run()
                held.enter_context(_in_use(clone.folder, patience))
        yield clone


def _in_use(folder: Path, patience: Patience) -> ExitStack:
    """Keeps the janitor from removing a folder until the stack is closed.

    Raises FileNotFoundError if it is removed already.
    """
    with ExitStack() as stack:
        stack.enter_context(_locked(folder, os.O_RDONLY | os.O_DIRECTORY, fcntl.LOCK_SH, patience))
        os.utime(folder)
        return stack.pop_all()


def _made(folder: Path, patience: Patience) -> ExitStack:
    """Makes a folder where it is missing, and keeps it as ``_in_use`` does."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return _in_use(folder, patience)


@contextmanager
def _locked(path: Path, flags: int, kind: int, patience: Patience) -> Generator[int]:
    with closing_fd(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)) as fd:
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                patience.pause()
        yield fd


def _known(place: Path, wanted: Wanted) -> Clone:
    """Returns the clone of the ref as an earlier fetch found it. Raises FileNotFoundError if none was late enough."""
    if wanted.ref and is_commit(wanted.ref):
        pattern = f"{wanted.ref}-{wanted.depth}-" if wanted.depth else f"{wanted.ref}-*"
        return Clone.read(next((place / "clones").glob(pattern), place / "none"))
    found = json.loads((place / "fetched" / wanted.key).read_text("utf-8"))
    if found["at"] < wanted.since:
        raise FileNotFoundError
    return Clone.read(place / "clones" / found["clone"])


@dataclass(slots=True)
class _Making:
    """Makes a clone, under the lock of the repository's folder."""

    place: Path
    wanted: Wanted
    patience: Patience
    lock: int

    def run(self) -> Clone:
        began = time.time()
        self._remove_leftovers()
        cache = self._cache()
        name, branch, commit = self._resolved(cache)
        folder = self._folder(commit, branch)
        if not folder.exists():  # it is that of a tag, or moved since
            commit = self._fetched(cache, name)
            folder = self._folder(commit, branch)
        if not folder.exists():
            self._make(folder, cache, Clone(folder, commit, branch, []))
        (self.place / "fetched").mkdir(exist_ok=True)
        (self.place / "fetched" / self.wanted.key).write_text(json.dumps({"at": began, "clone": folder.name}))
        return Clone.read(folder)

    def _remove_leftovers(self) -> None:
        """Deletes what earlier attempts left. What cannot be removed does not hinder this one."""
        for leftover in self.place.glob("making.*"):
            try:
                delete(leftover)
            except OSError as error:
                log.warning("%s is left aside: it cannot be removed", leftover, extra={"cause": str(error)})

    def _new(self) -> Path:
        """Returns a path for what is not complete, or not needed any more: the next attempt removes it."""
        return self.place / f"making.{secrets.token_hex(4)}"

    def _folder(self, commit: str, branch: str | None) -> Path:
        """Returns the clone's folder. One of a tag is not that of its commit's digits, which states no missing tags."""
        named = "" if self.wanted.ref and is_commit(self.wanted.ref) else "tag"
        return self.place / "clones" / f"{commit}-{self.wanted.depth or 1}-{_digest(branch) if branch else named}"

    def _cache(self) -> OwnRepository:
        folder = self.place / "cache.git"
        cache = OwnRepository(folder, self.patience, self.wanted.remote.variables)
        if not (folder / "config").exists() or len([*folder.glob("objects/pack/*.pack")]) > _MAX_PACKS:
            with suppress(FileNotFoundError):
                folder.rename(self._new())
            self._remove_leftovers()
            cache.make()
        for leftover in (path for pattern in _LEFTOVERS for path in folder.glob(pattern)):
            leftover.unlink()
        return cache

    def _resolved(self, cache: OwnRepository) -> tuple[str, str | None, str]:
        """Returns the ref's full name, the branch if it is one, and what it names now."""
        url, ref = self.wanted.remote.url, None if self.wanted.ref == "HEAD" else self.wanted.ref
        if ref and is_commit(ref):
            return ref, None, ref
        named = [each for each in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}") if each and each.startswith("refs/")]
        asked, refs = named if ref else ["HEAD"], dict[str, str]()
        for at, name in self._listed(cache, *asked):
            is_symbolic = at.startswith("ref: ")
            refs |= {name: at} if name in asked and not is_symbolic else {}
            asked = [at.removeprefix("ref: "), "HEAD"] if name == "HEAD" and is_symbolic else asked
        if not ref and "HEAD" in refs:
            refs = dict.fromkeys(asked, refs["HEAD"])
        found = next((each for each in asked if each in refs), None)
        if found is None:
            what = f"branch or tag {ref} (a commit is named by all 40 digits)" if ref else "commit yet"
            with closing(self._listed(cache)) as others:
                if not ref and next(others, None):
                    what = "default branch, as its HEAD names one that is not there; name another one with --ref"
            raise RepositoryFailed(
                "repository_ref", f"{url}: it has no {what}; `git ls-remote` lists its branches and tags"
            )
        return found, found.removeprefix("refs/heads/") if found.startswith("refs/heads/") else None, refs[found]

    def _listed(self, cache: OwnRepository, *names: str) -> Generator[tuple[str, str]]:
        """Yields what the server's refs name, and their names: of all, or of those whose names end so."""
        options = f"--upload-pack={UPLOAD_PACK}", "--symref", self.wanted.remote.address
        records = cache.records("ls-remote", *options, *names, end=b"\n", held=self.lock)
        for record in self._bounded(records, "refs that may be meant"):
            at, _, name = os.fsdecode(record).partition("\t")
            yield at, name

    def _bounded(self, records: Generator[bytes], what: str) -> Generator[bytes]:
        """Yields the records. Raises Invalid where there are too many."""
        with closing(records):
            for number, record in enumerate(records, 1):
                if number > MAX_ENTRIES:
                    raise self._too_large(f"{MAX_ENTRIES:,} {what}")
                yield record

    def _fetched(self, cache: OwnRepository, name: str) -> str:
        """Fetches the ref into the cache; returns its commit."""
        mine, before = f"refs/fetched/{_digest(name)}", _bytes_in(cache.directory)

        def check_growth() -> None:
            if _bytes_in(cache.directory) - before > self.wanted.max_bytes:
                raise self._too_large(self._most_bytes())

        options = "--no-tags", "--no-write-fetch-head", "--force", f"--depth={self.wanted.depth or 1}"
        self.patience.watch = check_growth
        try:
            upload_pack = f"--upload-pack={UPLOAD_PACK}"
            cache.run("fetch", upload_pack, *options, self.wanted.remote.address, f"{name}:{mine}", held=self.lock)
        finally:
            self.patience.watch = lambda: None
        return cache.run("rev-parse", "--verify", f"{mine}^{{commit}}").decode().strip()

    def _most_bytes(self) -> str:
        return f"{self.wanted.max_bytes / (1 << 30):.3g} GiB (raise sandbox.disk_bytes for more)"

    def _too_large(self, most: str) -> Invalid:
        return Invalid.at(URL, f"{self.wanted.remote.url} is too large to be cloned: it has more than {most}")

    def _make(self, folder: Path, cache: OwnRepository, clone: Clone) -> None:
        new = self._new()
        files, commit = new / "files", clone.commit
        variables = {"GIT_WORK_TREE": str(files), "GIT_ALLOW_PROTOCOL": "file"}
        own = OwnRepository(files / ".git", self.patience, variables)
        own.make(bare=False)
        (own.directory / "info/attributes").write_text(_ATTRIBUTES)
        with (own.directory / "config").open("a") as config:
            config.write(f'[remote "origin"]\n\turl = "{self.wanted.remote.url}"\n\tpushurl = nowhere\n{_INERT}')
        refs = [f"{commit}:refs/{kind}/{clone.branch}" for kind in ("heads", "remotes/origin") if clone.branch]
        options = "--no-tags", "--no-write-fetch-head", "--update-head-ok", f"--depth={self.wanted.depth or 1}"
        own.run("fetch", f"--upload-pack={UPLOAD_PACK}", *options, str(cache.directory), *(refs or [commit]))
        (own.directory / "HEAD").write_text(f"ref: refs/heads/{clone.branch}\n" if clone.branch else f"{commit}\n")
        left_out = self._left_out(own.records("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit, end=b"\0"))
        own.run("read-tree", "-m", "-u", commit)
        replace(clone, not_copied=[*left_out, *self._tags(cache, commit), *_conversions(files), *self._hooks()]).write(
            new
        )
        folder.parent.mkdir(exist_ok=True)
        new.rename(folder)

    def _left_out(self, listing: Generator[bytes]) -> list[str]:
        """Returns sentences about submodules. Raises Invalid for a tree that is too large."""
        total, more, shown = 0, 0, list[str]()
        for entry in self._bounded(listing, "files and folders"):
            about, path = entry.split(b"\t", 1)
            size = about.split()[-1]
            total += 0 if size == b"-" else int(size)
            if total > self.wanted.max_bytes:
                raise self._too_large(self._most_bytes())
            if path.count(b"/") >= MAX_DEPTH:
                raise self._too_large(f"{MAX_DEPTH} folders inside one another")
            if not about.startswith(b"160000 "):
                continue
            if len(shown) < _MAX_NAMED:
                shown.append(f"{clip(visible(os.fsdecode(path)), 300)} is a submodule and was not copied")
            else:
                more += 1
        return [*shown, *([f"{more} more submodules were not copied"] if more else [])]

    def _tags(self, cache: OwnRepository, commit: str) -> list[str]:
        """Returns a sentence where git would bring tags: those of the commit, with more of the history all of them.

        Where the host does not answer any more there may be some.
        """
        if self.wanted.ref and is_commit(self.wanted.ref):
            return []
        options = f"--upload-pack={UPLOAD_PACK}", "--tags", self.wanted.remote.address
        is_missing = True
        with (
            suppress(RepositoryFailed),
            closing(cache.records("ls-remote", *options, end=b"\n", held=self.lock)) as records,
        ):
            tags = islice(records, MAX_ENTRIES)
            is_missing = any((self.wanted.depth or 1) > 1 or each.startswith(commit.encode()) for each in tags)
        return ["tags of the repository were not fetched, so git describe finds none"] if is_missing else []

    def _hooks(self) -> list[str]:
        """Returns a sentence about the hooks of a folder; over a network there are none to be seen."""
        state = self.wanted.remote.state
        if state is None:
            return []
        found = [path for path in (shared_by_worktrees(state) / "hooks").glob("*") if path.suffix != ".sample"]
        return ["hooks of the repository were not copied"] if found else []


def _conversions(files: Path) -> list[str]:
    """Returns a sentence per conversion that the repository's attributes name: none is applied.

    The files of Git LFS are its pointers to them.
    """
    named: set[str] = set()
    for path in files.rglob(".gitattributes"):
        for line in read_regular(path, _MAX_ATTRIBUTES).splitlines():
            words = [] if line.lstrip().startswith(b"#") else line.split()[1:]
            named |= {visible(os.fsdecode(word)) for word in words if _CONVERTS.fullmatch(word)}
    lfs = ["files of Git LFS were not copied, only its pointers to them"] if "filter=lfs" in named else []
    rest = sorted(named - {"filter=lfs"})
    shown = [f"files with {clip(each, 100)}" for each in rest[:_MAX_NAMED]]
    shown += [f"files with {len(rest) - _MAX_NAMED} more conversions"] if len(rest) > _MAX_NAMED else []
    return [*lfs, *(f"{each} were copied as the repository stores them" for each in shown)]


def _bytes_in(folder: Path) -> int:
    """Returns the bytes of the files, as far as they are there all the while."""
    total = 0
    for path in folder.glob("objects/pack/*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
