"""Files of a workspace: reading, writing, listing, and what errors say."""

from __future__ import annotations

import resource
import signal
import stat
import threading
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.workspace.files import FileEntry, Files, Stat
from tests.worker.forked import in_child, need_root


def error_of(files: Files, method: str, path: str, *more: object) -> ToolError:
    with pytest.raises(ToolError) as caught:
        getattr(files, method)(path, *more)
    return caught.value


@pytest.mark.requirement("S000-034", "S000-036", "S002-071")
def test_relative_paths_start_at_the_workspace_wherever_the_process_is(
    plain: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert plain.write("a/b.txt", b"here")
    assert (plain.root / "a/b.txt").read_bytes() == b"here"
    assert plain.root.is_absolute()


def test_absolute_paths_count_from_the_mounts_name_and_from_the_real_root(plain: Files) -> None:
    assert plain.relative("/workspace/x/./y//z") == "x/y/z"
    assert plain.relative(f"{plain.root}/x") == "x"
    assert plain.relative("/workspace") == plain.relative("/workspace/") == plain.relative(".") == "."
    assert plain.full("x/y") == "/workspace/x/y"
    assert plain.full("/workspace") == "/workspace"


@pytest.mark.requirement("S000-037")
def test_a_missing_file_is_named_as_the_caller_named_it(plain: Files) -> None:
    error = error_of(plain, "read", "/workspace/./no/such.txt")
    assert (error.type, error.message) == (ErrorType.FILE_NOT_FOUND, "File not found: /workspace/./no/such.txt")


@pytest.mark.parametrize(
    ("method", "path", "type"),
    [
        ("read", "../x", ErrorType.PATH_NOT_ALLOWED),
        ("read", "abs-passwd", ErrorType.PATH_NOT_ALLOWED),
        ("read", "a", ErrorType.NOT_A_FILE),
        ("read", "fifo", ErrorType.NOT_A_FILE),
        ("read", "top.txt/x", ErrorType.NOT_A_DIRECTORY),
        ("scan", "top.txt", ErrorType.NOT_A_DIRECTORY),
        ("scan", "nowhere", ErrorType.FILE_NOT_FOUND),
        ("stat", "rel-file", ErrorType.PATH_NOT_ALLOWED),
        ("read", "x" * 300, ErrorType.PATH_NOT_ALLOWED),
        ("read", "\ud800", ErrorType.PATH_NOT_ALLOWED),
    ],
)
def test_each_mistake_has_its_type(method: str, path: str, type: ErrorType, files: Files) -> None:
    assert error_of(files, method, path).type is type


@pytest.mark.requirement("S001-032")
def test_a_refusal_states_what_is_allowed(plain: Files) -> None:
    error = error_of(plain, "read", "/etc/passwd")
    assert error.message == (
        "Path not allowed: '/etc/passwd': it is outside the workspace. "
        "Use a path relative to the workspace, or one below /workspace."
    )


def test_a_file_over_the_limit_is_not_read(plain: Files) -> None:
    plain.write("big", b"x" * 11)
    assert plain.read("big", 11) == b"x" * 11
    assert error_of(plain, "read", "big", 10).type is ErrorType.FILE_TOO_LARGE


def test_the_type_of_a_path_is_reported_without_opening_it(files: Files) -> None:
    found = files.stat("top.txt")
    assert found is not None
    assert found == Stat("file", 4, (files.root / "top.txt").stat().st_mtime_ns, found.mode)
    assert [each and each.kind for each in map(files.stat, ("a", "fifo", "in-file", "dangling", "top.txt/x"))] == [
        "directory",
        "other",
        "file",
        None,
        None,
    ]
    link = files.stat("in-file", follow=False)
    assert link is not None
    assert link.kind == "symlink"


@pytest.mark.requirement("S001-022")
def test_writing_makes_the_directories_above(plain: Files) -> None:
    assert plain.write("a/b/c.txt", b"1") is True
    assert plain.write("a/b/c.txt", b"2") is False
    assert [entry.path for entry in plain.walk()] == ["a", "a/b", "a/b/c.txt"]


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6711, 0o1644])
def test_no_new_content_runs_with_the_rights_of_the_old_one(plain: Files, bits: int) -> None:
    plain.write("tool", b"1")
    (plain.root / "tool").chmod(bits)
    plain.write("tool", b"2")
    assert stat.S_IMODE((plain.root / "tool").stat().st_mode) == bits & 0o777


def test_a_file_keeps_its_mode_unless_requested_otherwise(plain: Files) -> None:
    plain.write("run.sh", b"1")
    (plain.root / "run.sh").chmod(0o755)
    plain.write("run.sh", b"2")
    assert stat.S_IMODE((plain.root / "run.sh").stat().st_mode) == 0o755
    plain.write("run.sh", b"3", keep_mode=False)
    assert stat.S_IMODE((plain.root / "run.sh").stat().st_mode) == 0o644


def test_a_link_that_stays_inside_is_written_through(files: Files) -> None:
    assert files.write("in-file", b"through") is False
    assert (files.root / "in-file").is_symlink()
    assert files.read("a/b/c/f.txt") == b"through"


def test_a_file_with_two_names_stays_one_file(files: Files) -> None:
    files.write("hard-in", b"a longer text")
    assert files.read("top.txt") == b"a longer text"
    files.write("top.txt", b"mine")
    assert files.read("hard-in") == b"mine"


def test_a_reader_sees_the_old_or_the_new_file_and_never_a_part(plain: Files) -> None:
    contents = (b"a" * 300_000, b"b" * 200_000)
    plain.write("f", contents[0])

    def write() -> None:
        for number in range(60):
            plain.write("f", contents[number % 2])

    writer = threading.Thread(target=write)
    writer.start()
    seen = set[bytes]()
    while writer.is_alive():
        seen.add(plain.read("f"))
    writer.join()
    assert seen <= set(contents)


def test_a_write_that_fails_leaves_no_temporary_file(plain: Files) -> None:
    (plain.root / "taken").mkdir()
    assert error_of(plain, "write", "taken", b"x").type is ErrorType.NOT_A_FILE
    with pytest.raises(TypeError):
        plain.write("typed", "not bytes")  # pyright: ignore[reportArgumentType]
    assert [entry.path for entry in plain.walk()] == ["taken"]


def test_a_write_cut_short_by_the_system_leaves_the_old_file_and_nothing_else(plain: Files) -> None:
    plain.write("f", b"old")

    def write_too_much() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        return error_of(plain, "write", "f", b"x" * 200).message

    assert in_child(write_too_much) == "f: File too large"
    assert [entry.path for entry in plain.walk()] == ["f"]
    assert plain.read("f") == b"old"


def test_a_directory_is_listed_by_name(plain: Files) -> None:
    for name in ("b", "a/x", ".c"):
        plain.write(name, b"12")
    assert [(entry.path, entry.name, entry.stat.kind, entry.stat.size) for entry in plain.scan()][1:] == [
        ("a", "a", "directory", plain.scan()[1].stat.size),
        ("b", "b", "file", 2),
    ]
    assert [entry.path for entry in plain.scan("a")] == ["a/x"]
    assert isinstance(plain.scan()[0], FileEntry)


def test_files_belong_to_the_user_that_commands_run_as(tmp_path: Path) -> None:
    need_root()
    (tmp_path / "ws").mkdir()
    with Files(tmp_path / "ws", owner=(60900, 60900)) as files:
        files.write("new/deep/file", b"x")
    assert {path.stat().st_uid for path in (tmp_path / "ws").rglob("*")} == {60900}
