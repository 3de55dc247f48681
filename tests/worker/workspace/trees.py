"""Directory trees: their content, a patch applied to them by git, and how workspaces ask for them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from deputize.shared.request import DirectoryWorkspace
from deputize.worker.workspace.workspace import Workspace

NAMES = st.sampled_from(["a", "b", "c d", "é", 'q"', "-x", "e.txt"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(["one\n", "two\n", "three\n", "\n", "x", "é\r\n", "\\ No\n", "-- \n"]), max_size=12).map(
        lambda lines: "".join(lines).encode()
    ),
)

ENTRIES = st.one_of(
    st.tuples(st.sampled_from(["file", "program"]), CONTENTS),
    st.tuples(st.just("link"), st.sampled_from([b"gone", b"../x", b"/etc/passwd", "gone é".encode()])),
)

TREES = st.dictionaries(PATHS, ENTRIES, max_size=8).map(
    lambda found: {
        path: entry for path, entry in found.items() if not any(path.startswith(other + "/") for other in found)
    }
)

GIT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "LC_ALL": "C"}


def directory(path: Path | str, *, ignored: bool = True, exclude: Sequence[str] = ()) -> DirectoryWorkspace:
    return DirectoryWorkspace(kind="directory", path=str(path), ignored=ignored, exclude=[*exclude])


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file and link of a directory as git sees it; not git's own."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if ".git" in path.relative_to(folder).parts:
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("program" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes())
    return found


def git_apply(patch: str, onto: Path) -> str:
    """Applies a patch with the real git in a directory that is no repository; what git complained of."""
    done = subprocess.run(
        ["git", "apply", "--allow-empty", "--whitespace=nowarn", "-"],
        input=patch.encode("utf-8"),
        cwd=onto,
        env=GIT | {"GIT_CEILING_DIRECTORIES": str(onto.parent)},
        capture_output=True,
    )
    return done.stderr.decode("utf-8", "replace")


def plant(folder: Path, wanted: dict[str, tuple[str, bytes]]) -> None:
    """Makes a directory hold exactly this tree."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, (kind, data) in wanted.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(os.fsdecode(data))
        else:
            path.write_bytes(data)
            path.chmod(0o755 if kind == "program" else 0o644)


def git(folder: Path, *arguments: str) -> str:
    settings = "user.name=x", "user.email=x@y", "safe.directory=*", "protocol.file.allow=always"
    command = ["git", *(word for each in settings for word in ("-c", each)), "-C", str(folder), *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, env={**GIT, "HOME": os.environ.get("HOME", "/")}
    ).stdout.decode()


def visible(folder: Path, within: str = "") -> set[str]:
    """What git lists below a directory: what is tracked, or not ignored."""
    named = git(folder / within, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name for name in named if name and (folder / within / name).is_file()}


async def copy_of(folder: Path, root: Path) -> Workspace:
    return await Workspace.create(directory(folder, ignored=False), "dlg_1", root)
