"""Directories that the operator shows: tools read there what commands can read, and write nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Step, StepStatus
from deputize.shared.errors import ToolError
from deputize.worker.workspace.files import ShownFiles
from tests.runs.bench import call, open_bench, say, script
from tests.worker.workspace.path_corpus import CORPUS, SECRET, base

__all__ = ["base"]
ROWS = [json.loads(line) for line in (CORPUS / "paths.jsonl").read_text("utf-8").splitlines()]
TOOLS = ["read_file", "list_directory", "glob", "grep", "write_file", "edit_file", "bash"]


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    folder = tmp_path / "shown"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/note.txt").write_text("a Needle here\n")
    (tmp_path / "secret.txt").write_text("SECRET needle\n")
    (folder / "out").symlink_to("../secret.txt")
    (folder / "closed").mkdir(mode=0o700)
    (folder / "closed/note.txt").write_text("SECRET needle\n")
    (folder / "closed.txt").touch(mode=0o600)
    if os.geteuid():
        (folder / "closed").chmod(0)
        (folder / "closed.txt").chmod(0)
    for path in (tmp_path, *tmp_path.parents):  # pytest closes them to other users
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    return folder


async def steps(redis_url: str, home: Path, show: list[Path], *calls: Any, rules: str = "") -> list[Step]:
    (home / "rules.toml").write_text(rules)
    settings: dict[str, Any] = {"sandbox": {"show": show}, "policy": [home / "rules.toml"]}
    async with open_bench(redis_url, home / "home", **settings) as bench:
        result = await bench.run(model=script(home, [*calls], [say("done")]), tools=TOOLS, approval_mode="auto")
        ended = await bench.steps(result)
        assert result.trust.sources == ["parent", "workspace"]
    return sorted(ended, key=lambda step: int(step.id.rpartition("_")[2]))


async def test_what_is_shown_is_read_by_absolute_paths_that_answers_name(
    redis_url: str, tmp_path: Path, shown: Path
) -> None:
    calls = [
        call("read_file", path=f"{shown}/sub/note.txt"),
        call("list_directory", path=f"{shown}/sub/"),
        call("glob", pattern="**/*.txt", path=str(shown)),
        call("grep", pattern="Needle", path=str(shown)),
        call("grep", pattern="needle", path=f"{shown}/sub"),
        call("grep", pattern="Needle", path=f"{shown}/sub/note.txt", output_mode="files"),
        call("bash", command=f"cat {shown}/sub/note.txt"),
    ]
    read, listed, found, hits, near, file, printed = await steps(redis_url, tmp_path, [shown], *calls)
    assert read.result == "     1|a Needle here"
    assert listed.result == "note.txt  (14 bytes)"
    assert f"{shown}/sub/note.txt" in (found.result or "").splitlines()
    assert "out" not in (found.result or "")
    assert (hits.result or "").startswith(f"{shown}/sub/note.txt\n     1|a Needle here")
    assert f"Nothing matches 'needle' in {shown}/sub." in (near.result or "")
    assert f"in {shown}/sub/note.txt." in (near.result or "")
    assert file.result == f"{shown}/sub/note.txt"
    assert printed.result == "a Needle here"


async def test_nothing_else_is_read_and_nothing_is_written(redis_url: str, tmp_path: Path, shown: Path) -> None:
    note, beside = f"{shown}/sub/note.txt", f"{shown}/../secret.txt"
    outside = [f"{tmp_path}/secret.txt", beside, f"{shown}/out", f"{shown}-not/x", f"{shown}/sub/../../secret.txt"]
    calls = [call("read_file", path=path) for path in outside]
    calls += [call("list_directory", path=str(tmp_path)), call("grep", pattern="SECRET", path=beside)]
    calls += [call("write_file", path=note, content="x"), call("write_file", path=f"{shown}/new", content="x")]
    calls += [call("edit_file", path=note, old_string="Needle", new_string="x")]
    refused = await steps(redis_url, tmp_path, [shown], *calls)
    assert all((step.error or "").startswith("Path not allowed") for step in refused)
    named = ["(sandbox.show)" in (step.error or "") for step in refused]
    assert named == [True, True, False, True, True, True, True, False, False, False]
    assert sorted(path.name for path in shown.iterdir()) == ["closed", "closed.txt", "out", "sub"]
    assert Path(note).read_text() == "a Needle here\n"


async def test_what_commands_cannot_open_tools_cannot_and_a_rule_about_reads_counts(
    redis_url: str, tmp_path: Path, shown: Path
) -> None:
    rule = f'[[rule]]\nname = "sub"\ndecision = "deny"\nreason = "not here"\npath = "{shown}/sub/**"\n'
    paths = ["closed.txt", "closed/note.txt"]
    calls = [call("read_file", path=f"{shown}/{path}") for path in paths]
    calls += [call("bash", command=f"cat {shown}/{path}") for path in paths]
    calls += [call("list_directory", path=f"{shown}/closed"), call("read_file", path=f"{shown}/sub/note.txt")]
    calls += [call("grep", pattern="SECRET", path=str(shown))]
    *closed, listed, denied, searched = await steps(redis_url, tmp_path, [shown], *calls, rules=rule)
    assert ["ermission denied" in f"{step.error} {step.result}" for step in (*closed, listed)] == [True] * 5
    assert denied.error == "denied: not here."
    assert "SECRET needle" not in (searched.result or "")


async def test_without_the_setting_nothing_outside_is_read(redis_url: str, tmp_path: Path, shown: Path) -> None:
    (step,) = await steps(redis_url, tmp_path, [], call("read_file", path=f"{shown}/sub/note.txt"))
    assert step.status is StepStatus.FAILED
    assert "The operator can show further directories for reading (sandbox.show)" in (step.error or "")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS if row["op"] != "glob"])
def test_every_path_of_the_corpus_stays_in_a_shown_directory_and_none_is_written(
    row: dict[str, str], base: Path
) -> None:
    before = {str(path): path.lstat().st_mtime_ns for path in base.rglob("*")}
    path = row["path"].replace("<base>", str(base)).replace("/workspace", f"{base}/ws")
    with ShownFiles(base / "ws") as files:
        try:
            if row["op"] == "read":
                assert files.read(path) != SECRET
            else:
                files.write(path, b"new")
            verdict = "allow"
        except ToolError:
            verdict = "refuse"
    assert verdict == ("refuse" if row["op"] != "read" else row["verdict"])
    assert {str(path): path.lstat().st_mtime_ns for path in base.rglob("*")} == before
