"""No path leads out of a workspace: every row of the path corpus, links, and races."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.workspace.files import Files
from tests.worker.workspace.path_corpus import CORPUS, SECRET

ROWS = [json.loads(line) for line in (CORPUS / "paths.jsonl").read_text("utf-8").splitlines()]

AT_FDCWD, RENAME_EXCHANGE = -100, 2

ROUNDS = 3000


def outside(base: Path) -> dict[str, bytes]:
    """Everything around the workspace, and its content."""
    paths = [path for path in base.rglob("*") if path.is_file() and not path.is_relative_to(base / "ws")]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.requirement("S001-014", "S001-021", "S001-025", "S000-036")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS if row["op"] != "glob"])
def test_every_row_of_the_path_corpus_has_the_stated_result(row: dict[str, str], base: Path, files: Files) -> None:
    path = row["path"].replace("<base>", str(base))
    before = outside(base)
    try:
        if row["op"] == "read":
            assert files.read(path) != SECRET
        else:
            files.write(path, b"new")
            assert files.read(path) == b"new"
        verdict = "allow"
    except ToolError:
        verdict = "refuse"
    assert (verdict, outside(base)) == (row["verdict"], before), row["reason"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS if row["op"] == "glob"])
def test_a_walk_shows_no_pattern_anything_outside(row: dict[str, str], files: Files) -> None:
    found = [entry.path for entry in files.walk() if fnmatch(entry.path, row["path"])]
    assert bool(found) == (row["verdict"] == "allow")
    assert [path for path in found if "secret" in path or path.startswith(("/", ".."))] == []


def test_a_walk_names_links_and_does_not_follow_them(files: Files) -> None:
    entries = {entry.path: entry.stat.kind for entry in files.walk()}
    assert entries["rel-dir"] == entries["abs-root"] == entries["in-dir"] == "symlink"
    assert entries["a/b/c/f.txt"] == "file"
    assert entries["fifo"] == entries["sock"] == "other"
    assert not any(path.startswith(("rel-dir/", "abs-root/", "in-dir/")) for path in entries)


@pytest.mark.requirement("S002-072")
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("a/b/c/f.txt", True),
        ("/workspace/not/yet/there", True),
        ("in-dir/c/f.txt", True),
        ("/workspace-other/x", False),
        ("rel-dir/new.txt", False),
        ("a/../../ws-other", False),
        ("/etc/passwd", False),
    ],
)
def test_containment_is_judged_on_where_the_links_lead(path: str, inside: bool, files: Files) -> None:
    assert files.contains(path) is inside


@pytest.mark.requirement("S001-014", "S002-072")
def test_a_link_swapped_in_while_we_look_never_leads_out(base: Path, files: Files) -> None:
    """One thread swaps a directory with a link out of the workspace, as fast as it can."""
    libc = ctypes.CDLL(None, use_errno=True)
    (base / "ws/swap").mkdir()
    (base / "ws/swap/secret.txt").write_bytes(b"fine")
    (base / "ws/link").symlink_to("../outside")
    stop = threading.Event()
    names = [os.fsencode(base / "ws" / name) for name in ("swap", "link")]

    def swap() -> None:
        while not stop.is_set():
            assert libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = set[bytes | ErrorType]()
    try:
        for number in range(50 * ROUNDS):
            if number >= ROUNDS and len(outcomes) > 1:  # on a busy machine one side may be met late
                break
            try:
                files.write("swap/new.txt", b"%d" % number)
                outcomes.add(files.read("swap/secret.txt"))
            except ToolError as error:
                outcomes.add(error.type)
    finally:
        stop.set()
        swapper.join()
    assert outcomes == {b"fine", ErrorType.PATH_NOT_ALLOWED}
    assert [path.name for path in (base / "outside").iterdir()] == ["secret.txt"]


@given(st.text(st.sampled_from("./ab~%\\$ \0-\n"), max_size=20))
def test_no_path_text_gets_out_or_raises_anything_but_a_tool_error(text: str) -> None:
    with Files(CORPUS, mount="/workspace") as files:
        try:
            inner = files.relative(text)
        except ToolError as error:
            inner, fine = ".", error.type is ErrorType.PATH_NOT_ALLOWED
        else:
            fine = not inner.startswith("/") and "\0" not in inner
        assert fine
        assert (CORPUS / inner).resolve().is_relative_to(CORPUS.resolve())
