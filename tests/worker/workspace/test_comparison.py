"""What is reported about the changes in a workspace."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
from pathlib import Path

import pytest

from deputize.shared.delegation import FileChange
from deputize.shared.patch_format import NOT_IN_GIT, parse_patch
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import git_apply, tree


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.requirement("P-11", "S002-061")
async def test_every_change_is_reported_once_for_every_origin_in_order_of_first_change(copied: Workspace) -> None:
    copied.files.write("z.txt", b"one\ntwo")
    await copied.note_changes()
    (copied.path / "src/deep/run.sh").unlink()
    await copied.note_changes()
    copied.files.write("src/main.py", b"one\n2\nthree\nfour\n")
    copied.files.write("z.txt", b"one\n")
    await copied.note_changes()
    (copied.path / "src/kept.o").rename(copied.path / "moved.o")
    original = b"one\ntwo\nthree\n"
    assert (await copied.facts()).changes == [
        FileChange(path="z.txt", change="created", new_hash=sha256(b"one\n"), added_lines=1, size=4),
        FileChange(path="src/deep/run.sh", change="deleted", base_hash=sha256(b"#!/bin/sh\n"), removed_lines=1),
        FileChange(
            path="src/main.py",
            change="modified",
            base_hash=sha256(original),
            new_hash=sha256(b"one\n2\nthree\nfour\n"),
            added_lines=2,
            removed_lines=1,
            size=17,
        ),
        FileChange.model_validate(
            {
                "path": "moved.o",
                "change": "renamed",
                "from": "src/kept.o",
                "base_hash": sha256(b"kept"),
                "new_hash": sha256(b"kept"),
                "size": 4,
            }
        ),
    ]


async def test_a_file_put_back_as_it_was_has_not_changed(copied: Workspace) -> None:
    data = copied.files.read("src/main.py")
    copied.files.write("src/main.py", b"other")
    await copied.note_changes()
    copied.files.write("src/main.py", data)
    assert (await copied.facts()).changes == []


async def test_a_change_is_seen_even_when_size_and_time_are_set_back(copied: Workspace) -> None:
    path = copied.path / "src/main.py"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"ONE")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [change.path for change in (await copied.facts()).changes] == ["src/main.py"]


async def test_only_modes_that_git_keeps_count(copied: Workspace) -> None:
    (copied.path / "src/main.py").chmod(0o600)
    (copied.path / "logo.png").chmod(0o755)
    assert [(change.path, change.change) for change in (await copied.facts()).changes] == [("logo.png", "modified")]
    assert (await copied.facts()).patch == "diff --git a/logo.png b/logo.png\nold mode 100644\nnew mode 100755\n"


async def test_our_own_directory_is_no_part_of_the_work(copied: Workspace) -> None:
    copied.files.write(".deputize/outputs/1.txt", b"x")
    assert (await copied.facts()).changes == []


async def test_what_is_neither_file_nor_link_is_no_change_but_named(
    copied: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied.path)  # a socket's whole name must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        Path("new-directory").mkdir()
        os.mkfifo("new-directory/p")
        Path(".deputize").mkdir(exist_ok=True)
        os.mkfifo(".deputize/own")
        facts = await copied.facts()
    assert (facts.changes, facts.left_out, facts.patch) == ([], [], "")
    assert sorted(facts.not_copied) == [
        "fifo is a FIFO and was not copied",
        "new-directory/p is a FIFO and is in no patch",
        "pipe is a FIFO and is in no patch",
        "socket is a socket and is in no patch",
    ]


SPELLINGS = ["sub/.GIT/x", "git~1", ".git /x", ".Git.", ".git:x", "a\\.git\\x", "moved/.GIT/main.py"]


async def test_a_file_that_git_accepts_nowhere_is_left_out_with_its_name(copied: Workspace, tmp_path: Path) -> None:
    for path in SPELLINGS[:-1]:
        copied.files.write(path, b"x\n")
    copied.files.write("a.txt", b"x\n")
    (copied.path / "moved/.GIT").mkdir(parents=True)
    (copied.path / "src/main.py").rename(copied.path / "moved/.GIT/main.py")
    facts = await copied.facts()
    assert sorted(facts.left_out) == sorted(f"{path} is not in the patch: {NOT_IN_GIT}" for path in SPELLINGS)
    assert facts.left_out == [
        f"{each.path} is not in the patch: {NOT_IN_GIT}" for each in facts.changes if not each.in_patch
    ]
    assert {change.path for change in facts.changes if change.in_patch} == {"a.txt", "src/main.py"}
    shutil.copytree(copied.path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply(facts.patch, tmp_path / "again") == ""
    assert sorted(part.path for part in parse_patch(facts.patch)) == ["a.txt", "src/main.py"]


async def test_a_name_that_is_no_text_can_still_be_shown_and_patched(copied: Workspace, tmp_path: Path) -> None:
    (copied.path / os.fsdecode(b"caf\xe9")).write_bytes(b"x\n")
    changes = (await copied.facts()).changes
    assert [change.path for change in changes] == ["caf\\xe9"]
    assert changes[0].to_json()
    shutil.copytree(copied.path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply((await copied.facts()).patch, tmp_path / "again") == ""
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
        await copied.facts()
    stop.set()
    await churning
    assert (await copied.facts()).changes == []
