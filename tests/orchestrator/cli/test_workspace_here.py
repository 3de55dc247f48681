"""Which files a command's work begins with, and what is printed about them at its end."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.request_options import workspace_here
from deputize.shared.delegation import TerminationReason
from deputize.shared.events import Envelope
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import settings
from tests.processes.preloaded import COMMAND as PROGRAM
from tests.waiting import until

GIVEN: dict[str, Any] = {"workspace": None, "git": None, "no_workspace": False, "continues": None, "from_turn": None}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("given", "url", "place", "copied"),
    [
        ({}, None, ".", True),
        ({}, None, "sub", True),
        ({}, None, "..", False),
        ({}, "http://127.0.0.1:1", ".", False),
        ({"no_workspace": True}, None, ".", False),
        ({"git": "https://example.org/x.git"}, None, ".", False),
        ({"continues": "dlg_x"}, None, ".", False),
        ({"from_turn": 2}, None, ".", False),
    ],
)
def test_inside_a_repository_the_current_directory_is_copied(
    given: dict[str, Any], url: str | None, place: str, copied: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / place)
    assert workspace_here(settings(url=url), GIVEN | given) == (Path() if copied else None)
    assert workspace_here(settings(url=url), GIVEN | given | {"workspace": project}) == project


def test_a_repository_that_is_the_home_directory_is_not_a_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.chdir(project / "sub")
    assert workspace_here(settings(), GIVEN) is None


@pytest.mark.costly
@pytest.mark.system
async def test_run_and_batch_in_a_repository_work_on_a_copy_of_it(project: Path, tmp_path: Path) -> None:
    (project / "tasks.txt").write_text("one\n")
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": "scripted", "cwd": project}
    async with started("up", "--port", "0", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        for arguments in (["run", "one"], ["batch", "tasks.txt"], ["run", "two", "--no-workspace"]):
            assert "in an empty directory" not in (await deputize(*arguments, **here)).err
        listed = (await deputize("list", "--json", **here)).out.splitlines()
        asked = [json.loads((await deputize("show", json.loads(each)["id"], "--json", **here)).out) for each in listed]
        stack.interrupt()
        await stack.done()
    spaces = [each["request"]["workspace"] for each in asked]
    assert [each.get("path") for each in spaces] == [None, str(project), str(project)]


async def test_an_empty_directory_is_reported_before_the_work_begins(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(url, service, "x", cwd=tmp_path)
    assert done.err.splitlines()[0].startswith("note: in an empty directory; -w . is for a copy of this one")
    for arguments in (["--no-workspace"], ["-w", "."]):
        assert "empty directory" not in (await run(url, service, "x", *arguments, cwd=tmp_path)).err
    for wrong in (["-w", "."], ["--with-ignored"], ["--exclude", "x"]):
        done = await deputize("run", "x", "--no-workspace", *wrong, DEPUTIZE_URL=url)
        assert (done.code, "--no-workspace excludes" in done.err) == (2, True)


async def test_a_request_that_names_an_empty_workspace_or_a_directory_keeps_it(
    url: str, service: FakeService, project: Path
) -> None:
    for workspace in ({"kind": "empty"}, {"kind": "directory", "path": "/srv"}):
        (project / "r.json").write_text(json.dumps({"task": "x", "workspace": workspace}))
        await run(url, service, "--request", "r.json", cwd=project)
        asked = next(reversed(service.runs.values())).request.workspace
        assert asked.kind == workspace["kind"]


async def test_apply_that_cannot_work_is_refused_before_the_run(url: str, service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("missing", "file"):
        done = await deputize("run", "x", "-w", str(tmp_path / place), "--apply", DEPUTIZE_URL=url)
        assert (done.code, "`deputize apply ID --into DIR`" in done.err) == (2, True)
    assert service.runs == {}


def ends(service: FakeService, **fields: Any) -> Callable[[str], Envelope]:
    return lambda id: service.finish(id, **fields)


@pytest.mark.parametrize(
    ("fields", "said", "unsaid"),
    [
        ({"file_changes": [{"path": "a", "change": "modified"}]}, ["to take this over: {apply}"], ["--into", "pull"]),
        (
            {"file_changes": [{"path": "big", "change": "created", "inPatch": False, "size": 9_000_000}]},
            ["not in the patch: big; to fetch: {pull}"],
            ["{apply}"],
        ),
        (
            {"file_changes": [{"path": ".git", "change": "modified", "inPatch": False}]},
            ["modified .git (its commits stay in its copy)"],
            ["{apply}", "{pull}", "not in the patch"],
        ),
        ({"reason": TerminationReason.TIMEOUT}, ["to go on: {continue} 'go on' --timeout N"], ["{apply}"]),
        ({"reason": TerminationReason.BUDGET}, [], ["{apply}", "{continue}"]),
        ({}, [], ["{apply}", "{continue}", "{pull}"]),
    ],
    ids=["changed", "too large", "commits", "timeout", "budget", "nothing"],
)
async def test_the_end_names_what_can_be_done_then(
    fields: dict[str, Any], said: list[str], unsaid: list[str], url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(url, service, "x", "-w", str(tmp_path), then=ends(service, **fields))
    (id,) = service.runs
    names = {name: f"deputize {name} {id}" for name in ("apply", "pull", "continue")}
    written = done.err.replace(PROGRAM, "deputize")
    assert [each for each in said if each.format(**names) not in written] == []
    assert [each for each in unsaid if each.format(**names) in written] == []


@pytest.mark.parametrize(
    ("given", "fields", "option"),
    [
        (["--max-tokens", "100"], {"summary": "Stopped: maxTokens 100 reached. 0 steps were made."}, "--max-tokens"),
        (["--max-cost", "1"], {"summary": "Stopped: maxCostUsd 1 reached. 0 steps were made."}, "--max-cost"),
        (["--max-tokens", "9"], {"summary": "Stopped: spend.daily_usd 0.001 reached. 1 step was made."}, ""),
        (["--max-tokens", "9"], {"summary": "Stopped: sandbox.disk_bytes 5 reached. 1 step was made."}, ""),
        (["--max-tokens", "9"], {"usage": {"inputTokens": 8}}, "--max-tokens"),
        (["--max-tokens", "90", "--max-cost", "1"], {"usage": {"inputTokens": 8, "costUsd": 0.9}}, "--max-cost"),
        (["--max-tokens", "9", "--max-cost", "1"], {"usage": {"inputTokens": 8, "costUsd": 0.1}}, "--max-tokens"),
        ([], {"usage": {"inputTokens": 8, "costUsd": 0.1}}, ""),
        ([], {"reason": "timeout", "summary": "No attempt has ended by itself: deadline 2021 reached."}, ""),
        ([], {"reason": "timeout", "summary": "Stopped: timeoutSeconds 9 reached while it was set up."}, "--timeout"),
        (["--max-turns", "3"], {"reason": "max_turns", "summary": "My report."}, "--max-turns"),
        (["--max-turns", "999"], {"reason": "max_turns", "summary": "My report."}, ""),
        ([], {"reason": "completed", "summary": "Stopped: maxTokens 100 reached"}, ""),
    ],
)
async def test_only_an_option_that_raises_the_limit_is_named(
    given: list[str], fields: dict[str, Any], option: str, url: str, service: FakeService, tmp_path: Path
) -> None:
    fields = {"reason": "budget", **fields}
    reason = TerminationReason(fields.pop("reason"))
    done = await run(url, service, "x", *given, "-w", str(tmp_path), then=ends(service, reason=reason, **fields))
    found = re.findall(r"to go on: .* (--\S+) N", done.err)
    assert found == ([option] if option else []), done.err


async def test_a_directory_that_is_not_here_is_named_with_a_command_that_works(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    changed = ends(service, file_changes=[{"path": "a", "change": "modified"}])
    done = await run(url, service, "x", "-w", str(tmp_path / "elsewhere"), then=changed)
    assert f"{PROGRAM} apply {next(iter(service.runs))} --into DIR\n" in done.err


async def test_show_and_apply_without_an_id_take_the_last_one(url: str, service: FakeService, tmp_path: Path) -> None:
    await run(url, service, "x", "-w", str(tmp_path))
    (id,) = service.runs
    assert f"id         {id}\n" in (await deputize("show", DEPUTIZE_URL=url)).out
    assert (await deputize("apply", DEPUTIZE_URL=url)).out == f"nothing to do in {tmp_path}: no file was changed\n"
