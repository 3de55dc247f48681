"""Workspaces: private copies, facts about changes, and patches that git applies."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.delegation import (
    ArchiveWorkspace,
    DirectoryWorkspace,
    EmptyWorkspace,
    FileChange,
    GitWorkspace,
    WorkspaceSpec,
)
from shared.errors import Invalid
from tests.waiting import until
from tests.worker.forked import ORDINARY_UID, home_of_an_ordinary_user, in_child, need_root
from worker.sandbox import environment
from worker.workspace.comparison import quoted
from worker.workspace.treecopy import Stopped, TreeCopy
from worker.workspace.workspace import Workspace

GIT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "LC_ALL": "C"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory to copy from, with one of everything that lies about in projects."""
    source = tmp_path / "source"
    (source / "src/deep").mkdir(parents=True)
    (source / "src/main.py").write_text("one\ntwo\nthree\n")
    (source / "src/deep/run.sh").write_text("#!/bin/sh\n")
    (source / "src/deep/run.sh").chmod(0o755)
    (source / "logo.png").write_bytes(bytes(range(256)))
    (source / "link").symlink_to("src/main.py")
    (source / "out").symlink_to("/etc/passwd")
    (source / "built.o").write_text("built")
    (source / ".gitignore").write_text("*.o\n")
    (source / "src/.gitignore").write_text("/deep/tmp\n!kept.o\n")
    (source / "src/deep/tmp").write_text("tmp")
    (source / "src/kept.o").write_text("kept")
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (source / ".deputize").mkdir()
    (source / ".deputize/secret").write_text("not yours")
    os.mkfifo(source / "fifo")
    return source


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state/workspaces"


@pytest.fixture
async def empty(root: Path) -> AsyncIterator[Workspace]:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_empty", root)
    yield workspace
    workspace.close()


@pytest.fixture
async def copied(source: Path, root: Path) -> AsyncIterator[Workspace]:
    workspace = await Workspace.create(directory(source), "dlg_copied", root)
    yield workspace
    workspace.close()


def directory(path: Path | str, *, ignored: bool = True) -> DirectoryWorkspace:
    return DirectoryWorkspace(kind="directory", path=str(path), ignored=ignored)


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


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- making ------------------------------------------------------------------------------------


@pytest.mark.requirement("P-03", "S000-007")
async def test_an_empty_workspace_is_empty_and_the_runs_own(empty: Workspace, root: Path) -> None:
    assert empty.files.scan() == []
    assert await empty.changes() == []
    assert await empty.patch() == ""
    other = await Workspace.create(EmptyWorkspace(), "dlg_other", root)
    other.files.write("mine", b"1")
    assert empty.files.scan() == []
    other.close()


async def test_a_copy_has_everything_but_what_is_no_file_and_what_is_ours(copied: Workspace, source: Path) -> None:
    expected = tree(source)
    del expected[".deputize/secret"]
    assert tree(copied.path) == expected
    assert (copied.path / ".git/HEAD").read_text() == "ref: refs/heads/main\n"
    assert not (copied.path / "fifo").exists()
    for name in ("src/main.py", "src/deep", "link"):
        ours, theirs = (copied.path / name).lstat(), (source / name).lstat()
        assert (ours.st_mode, ours.st_mtime_ns) == (theirs.st_mode, theirs.st_mtime_ns)
    assert await copied.changes() == []


async def test_what_gitignore_names_can_be_left_out(source: Path, root: Path) -> None:
    workspace = await Workspace.create(directory(source, ignored=False), "dlg_1", root)
    assert sorted(tree(workspace.path)) == [
        ".gitignore",
        "link",
        "logo.png",
        "out",
        "src/.gitignore",
        "src/deep/run.sh",
        "src/kept.o",
        "src/main.py",
    ]
    assert (workspace.path / ".git/HEAD").exists()
    await workspace.remove()


async def test_nothing_done_in_a_workspace_reaches_its_source(copied: Workspace, source: Path) -> None:
    before = tree(source)
    copied.files.write("src/main.py", b"changed")
    with (copied.path / "logo.png").open("r+b") as file:
        file.write(b"changed in place")
    copied.files.remove("built.o")
    assert tree(source) == before


async def test_links_are_copied_and_never_followed(copied: Workspace) -> None:
    assert (copied.path / "out").readlink() == Path("/etc/passwd")
    assert (copied.path / "link").readlink() == Path("src/main.py")


async def test_only_the_worker_can_enter_and_commands_own_the_files(copied: Workspace, root: Path) -> None:
    assert stat.S_IMODE((root / "dlg_copied").stat().st_mode) == stat.S_IMODE(root.stat().st_mode) == 0o700
    owner = environment.owner() or (os.geteuid(), os.getegid())
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in [copied.path, *copied.path.rglob("*")]}
    assert owners == {owner}
    assert {path.lstat().st_uid for path in (root / "dlg_copied/base").rglob("*")} == {os.geteuid()}


async def test_set_user_bits_are_not_copied(source: Path, root: Path) -> None:
    (source / "src/main.py").chmod(0o4755)
    workspace = await Workspace.create(directory(source), "dlg_1", root)
    assert stat.S_IMODE((workspace.path / "src/main.py").stat().st_mode) == 0o755
    await workspace.remove()


async def test_a_source_that_holds_our_workspaces_is_copied_without_them(source: Path) -> None:
    workspace = await Workspace.create(directory(source), "dlg_1", source / "state/workspaces")
    assert [path.name for path in (workspace.path / "state").iterdir()] == []
    await workspace.remove()


@pytest.mark.parametrize(
    ("spec", "pointer", "detail"),
    [
        (
            directory("/no/such/place"),
            "/workspace/path",
            "/no/such/place cannot be opened as a directory: No such file",
        ),
        (directory("/etc/passwd"), "/workspace/path", "/etc/passwd cannot be opened as a directory: Not a directory"),
        (directory("relative/path"), "/workspace/path", "relative/path is not absolute"),
        (directory("/etc"), "/workspace/path", "/etc may not be copied; allowed: "),
        (GitWorkspace(kind="git", url="x"), "/workspace/kind", "workspaces of kind 'git' are not built"),
        (
            ArchiveWorkspace(kind="archive", blob="x"),
            "/workspace/kind",
            "workspaces of kind 'archive' are not built",
        ),
    ],
)
async def test_a_workspace_that_cannot_be_made_is_refused_with_its_field(
    spec: WorkspaceSpec, pointer: str, detail: str, source: Path, root: Path
) -> None:
    with pytest.raises(Invalid) as caught:
        await Workspace.create(spec, "dlg_1", root, [source])
    assert caught.value.detail.startswith(detail)
    assert caught.value.errors == [{"pointer": pointer, "detail": caught.value.detail}]
    assert list(root.iterdir()) == []


async def test_a_source_is_judged_by_where_its_links_lead(source: Path, root: Path, tmp_path: Path) -> None:
    (source / "way-out").symlink_to("/etc")
    with pytest.raises(Invalid, match="may not be copied"):
        await Workspace.create(directory(source / "way-out"), "dlg_1", root, [source])
    with pytest.raises(Invalid, match="may not be copied"):
        await Workspace.create(directory(f"{source}/../workspaces-other"), "dlg_1", root, [source])
    (tmp_path / "way-in").symlink_to(source)
    workspace = await Workspace.create(directory(tmp_path / "way-in/src"), "dlg_1", root, [source])
    assert (workspace.path / "main.py").exists()
    await workspace.remove()


@pytest.fixture(autouse=True)
def other_place(tmp_path: Path) -> None:
    (tmp_path / "workspaces-other").mkdir()


async def test_without_allowed_sources_nothing_may_be_copied(source: Path, root: Path) -> None:
    with pytest.raises(Invalid, match="allowed: no directory"):
        await Workspace.create(directory(source), "dlg_1", root, [])


def test_an_unreadable_file_is_named() -> None:
    need_root()

    async def create(home: Path) -> str:
        (home / "source").mkdir()
        (home / "source/locked").write_text("x")
        (home / "source/locked").chmod(0)
        with pytest.raises(Invalid) as caught:
            await Workspace.create(directory(home / "source"), "dlg_1", home / "root")
        return caught.value.detail.replace(str(home), "HOME")

    with home_of_an_ordinary_user() as home:
        detail = in_child(lambda: asyncio.run(create(home)), ORDINARY_UID)
    assert detail == "locked below HOME/source cannot be read: Permission denied"


def test_a_copy_can_be_stopped(source: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    stop = Event()
    stop.set()
    fds = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (source, tmp_path / "target")]
    with pytest.raises(Stopped):
        TreeCopy(fds[0], fds[1], stop=stop).run()
    for fd in fds:
        os.close(fd)
    assert list((tmp_path / "target").iterdir()) == []


async def test_a_creation_that_is_cancelled_leaves_nothing_half_made(source: Path, root: Path) -> None:
    for number in range(2000):
        (source / f"src/{number}").write_text("x")
    creating = asyncio.create_task(Workspace.create(directory(source), "dlg_1", root))
    await until(root.exists)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert list(root.iterdir()) == []


async def test_a_resumed_run_finds_its_files_and_its_history_of_changes(
    copied: Workspace, source: Path, root: Path
) -> None:
    copied.files.write("z-first", b"1")
    await copied.note_changes()
    copied.files.write("a-second", b"2")
    expected = await copied.changes()
    copied.close()
    shutil.rmtree(source)
    for resumed in (
        await Workspace.create(directory(source), "dlg_copied", root),
        await Workspace.open("dlg_copied", root),
    ):
        assert await resumed.changes() == expected
        assert [change.path for change in expected] == ["z-first", "a-second"]
        resumed.close()


async def test_a_removed_workspace_is_gone_whatever_its_modes(root: Path) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    subprocess.run(["mkdir", "-p", "/".join(["d" * 10] * 300)], cwd=workspace.path, check=True)
    workspace.files.write("locked/in/f", b"x")
    (workspace.path / "locked").chmod(0)
    await workspace.remove()
    assert list(root.iterdir()) == []


# --- changes -----------------------------------------------------------------------------------


@pytest.mark.requirement("P-11", "S002-061")
async def test_every_change_is_told_once_whoever_made_it_in_order_of_first_change(copied: Workspace) -> None:
    copied.files.write("z.txt", b"one\ntwo")
    await copied.note_changes()
    copied.files.remove("src/deep/run.sh")
    await copied.note_changes()
    copied.files.write("src/main.py", b"one\n2\nthree\nfour\n")
    copied.files.write("z.txt", b"one\n")
    await copied.note_changes()
    (copied.path / "src/kept.o").rename(copied.path / "moved.o")
    original = b"one\ntwo\nthree\n"
    assert await copied.changes() == [
        FileChange(path="z.txt", change="created", new_hash=sha256(b"one\n"), added_lines=1),
        FileChange(path="src/deep/run.sh", change="deleted", base_hash=sha256(b"#!/bin/sh\n"), removed_lines=1),
        FileChange(
            path="src/main.py",
            change="modified",
            base_hash=sha256(original),
            new_hash=sha256(b"one\n2\nthree\nfour\n"),
            added_lines=2,
            removed_lines=1,
        ),
        FileChange.model_validate(
            {
                "path": "moved.o",
                "change": "renamed",
                "from": "src/kept.o",
                "base_hash": sha256(b"kept"),
                "new_hash": sha256(b"kept"),
            }
        ),
    ]


async def test_a_file_put_back_as_it_was_has_not_changed(copied: Workspace) -> None:
    data = copied.files.read("src/main.py")
    copied.files.write("src/main.py", b"other")
    await copied.note_changes()
    copied.files.write("src/main.py", data)
    assert await copied.changes() == []


async def test_a_change_is_seen_even_when_size_and_time_are_set_back(copied: Workspace) -> None:
    path = copied.path / "src/main.py"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"ONE")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [change.path for change in await copied.changes()] == ["src/main.py"]


async def test_only_modes_that_git_keeps_count(copied: Workspace) -> None:
    (copied.path / "src/main.py").chmod(0o600)
    (copied.path / "logo.png").chmod(0o755)
    assert [(change.path, change.change) for change in await copied.changes()] == [("logo.png", "modified")]
    assert await copied.patch() == "diff --git a/logo.png b/logo.png\nold mode 100644\nnew mode 100755\n"


async def test_our_own_directory_is_no_part_of_the_work(copied: Workspace) -> None:
    copied.files.write(".deputize/outputs/1.txt", b"x")
    assert await copied.changes() == []


async def test_what_is_neither_file_nor_link_is_no_change(copied: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied.path)  # a socket's whole name must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        Path("new-directory").mkdir()
        assert await copied.changes() == []


async def test_a_name_that_is_no_text_can_still_be_told_and_patched(copied: Workspace, tmp_path: Path) -> None:
    (copied.path / os.fsdecode(b"caf\xe9")).write_bytes(b"x\n")
    changes = await copied.changes()
    assert [change.path for change in changes] == ["caf\\xe9"]
    assert changes[0].to_json()
    shutil.copytree(copied.path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply(await copied.patch(), tmp_path / "again") == ""
    assert tree(tmp_path / "again") == tree(copied.path)


async def test_files_that_come_and_go_while_we_look_do_no_harm(copied: Workspace) -> None:
    stop = asyncio.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            folder = copied.path / f"d{number % 7}"
            folder.mkdir(exist_ok=True)
            (folder / "f").write_text("x" * number)
            shutil.rmtree(folder)

    churning = asyncio.create_task(asyncio.to_thread(churn))
    for _ in range(30):
        await copied.note_changes()
        await copied.changes()
        await copied.patch()
    stop.set()
    await churning
    assert await copied.changes() == []


# --- patches -----------------------------------------------------------------------------------


async def test_a_patch_looks_as_git_writes_it(copied: Workspace) -> None:
    copied.files.write("src/main.py", b"one\n2\nthree")
    await copied.note_changes()
    copied.files.write("new file.txt", b"hello\n")
    assert await copied.patch() == (
        "diff --git a/src/main.py b/src/main.py\n"
        "index 4cb29ea38f70d7c61b2a3a25b02e3bdf44905402..a623a0b003e0a9d68f0cffe69882989f57df4d00 100644\n"
        "--- a/src/main.py\n"
        "+++ b/src/main.py\n"
        "@@ -1,3 +1,3 @@\n"
        " one\n"
        "-two\n"
        "-three\n"
        "+2\n"
        "+three\n"
        "\\ No newline at end of file\n"
        'diff --git "a/new file.txt" "b/new file.txt"\n'
        "new file mode 100644\n"
        "index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a\n"
        "--- /dev/null\n"
        '+++ "b/new file.txt"\n'
        "@@ -0,0 +1 @@\n"
        "+hello\n"
    )


async def test_git_applies_a_patch_of_every_kind_of_change(copied: Workspace, tmp_path: Path) -> None:
    path = copied.path
    copied.files.write("src/main.py", b"zero\none\ntwo\nthree")
    copied.files.write('odd "name"\twith\nall\\of it é', b"x\r\ny\r\n")
    copied.files.write("empty", b"")
    copied.files.write("logo.png", bytes(range(255, -1, -1)) * 20)
    copied.files.write("noise", os.urandom(5000))
    copied.files.write("latin", b"caf\xe9\n")
    (path / "src/deep/run.sh").rename(path / "run it.sh")
    (path / "link").unlink()
    (path / "link").symlink_to("elsewhere")
    (path / "out").unlink()
    (path / "out").write_text("a file now\n")
    (path / "src/kept.o").unlink()
    (path / "src/kept.o").mkdir()
    (path / "src/kept.o/below").write_text("a directory now\n")
    (path / "built.o").chmod(0o755)
    shutil.copytree(path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply(await copied.patch(), tmp_path / "again") == ""
    assert tree(tmp_path / "again") == tree(path)


async def test_files_that_do_not_fit_are_left_out_by_name_and_the_rest_applies(
    copied: Workspace, tmp_path: Path
) -> None:
    copied.files.write("a big one", b"line\n" * 3000)
    copied.files.write("huge", b"line\n" * 2_000_000)
    copied.files.write("small", b"x\n")
    patch = await copied.patch(max_bytes=10_000)
    assert patch.startswith(
        '# left out, too large: "a big one"\n# left out, too large: huge\ndiff --git a/small b/small\n'
    )
    assert len(patch) < 10_000
    shutil.copytree(copied.path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply(patch, tmp_path / "again") == ""
    assert (tmp_path / "again/small").read_bytes() == b"x\n"


async def test_a_long_file_changed_throughout_takes_no_long_time(copied: Workspace, tmp_path: Path) -> None:
    lines = [f"{number % 3}\n" for number in range(100_000)]
    copied.files.write("long", "".join(lines).encode())
    workspace = await Workspace.create(directory(copied.path), "dlg_2", tmp_path / "more")
    workspace.files.write("long", "".join(f"{line}x\n" for line in lines).encode())
    async with asyncio.timeout(10):
        changes = await workspace.changes()
        patch = await workspace.patch()
    assert [(change.added_lines, change.removed_lines) for change in changes] == [(199_999, 99_999)]
    assert git_apply(patch, copied.path) == ""
    assert copied.files.read("long") == workspace.files.read("long")
    await workspace.remove()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain/name-1.txt", "a/plain/name-1.txt"),
        ("with space", '"a/with space"'),
        ('quo"te', '"a/quo\\042te"'),
        ("é", '"a/\\303\\251"'),
        ("new\nline", '"a/new\\012line"'),
    ],
)
def test_a_name_is_quoted_so_that_git_reads_it(path: str, expected: str) -> None:
    assert quoted("a/", path) == expected


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


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TREES, after=TREES)
def test_a_patch_turns_any_tree_into_any_other(
    before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trees")
    (folder / "source").mkdir()
    plant(folder / "source", before)

    async def work() -> tuple[list[FileChange], str]:
        workspace = await Workspace.create(directory(folder / "source"), "dlg_1", folder / "root")
        plant(workspace.path, after)
        found = await workspace.changes(), await workspace.patch()
        workspace.close()
        return found

    changes, patch = asyncio.run(work())
    assert git_apply(patch, folder / "source") == ""
    assert tree(folder / "source") == after
    told = {change.path for change in changes} | {change.from_ for change in changes} - {None}
    assert told == {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    shutil.rmtree(folder)
