"""What `deputize doctor` finds on a worker's machine: promises that are broken, and what a project's commands find."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.shared.promises import PROMISES, Finding
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import SandboxSettings, Settings
from deputize.worker.policy.explanation import Explainer
from deputize.worker.promises.__main__ import (
    _PROGRAMS,
    Report,
    _versions,
    find,
    memory_rows,
    program_rows,
    project_rows,
    sandbox_row,
    traces_rows,
)
from deputize.worker.promises.calls import ASKS, FORBIDDEN, plant, try_decisions, try_file_tools, try_planted
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.project_tools import tools_for
from deputize.worker.sandbox.setup_command import SetupCache
from deputize.worker.sandbox.trials import Canaries
from deputize.worker.workspace.files import Files
from tests.processes.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.worker.forked import in_child


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    with Canaries(tmp_path) as made:
        yield made


def test_a_policy_that_lets_a_forbidden_command_run_or_asks_no_person_is_found() -> None:
    for calls, wanted, modes in ((FORBIDDEN, "deny", tuple(ApprovalMode)), (ASKS, "ask", (ApprovalMode.ASK,))):
        assert try_decisions(Explainer(Settings(), ()).explain, calls, wanted, modes) == []
        found = try_decisions(lambda call, situation: {"decision": "allow"}, calls, wanted, modes)
        assert found == [f"the decision about {call} ({mode}) is allow" for call in calls for mode in modes]
    assert len(FORBIDDEN) * len(ApprovalMode) >= 40


class Following(Files):
    """Opens every path, as a program does that knows of no workspace."""

    def relative(self, path: str) -> str:
        return path

    def open_fd(self, path: str, flags: int = os.O_RDONLY) -> int:
        with self._tool_errors(path):
            return os.open(self.root / path, flags)


async def test_file_tools_that_follow_a_link_or_a_name_are_found(canaries: Canaries) -> None:
    with Files(canaries.workspace("whole")) as files:
        assert await try_file_tools(files, canaries.private) == []
    with Following(canaries.workspace("tools")) as files:
        found = await try_file_tools(files, canaries.private)
    opened = {each.removeprefix("read_file opened ") for each in found if each.startswith("read_file")}
    names = ["absolute", "relative", "magic", "chain", f"folder/{canaries.private.name}", str(canaries.private)]
    assert {*names} <= opened


async def test_configuration_that_applies_is_found(canaries: Canaries, tmp_path: Path) -> None:
    """It does where the operator's own settings name it."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    folder, empty = canaries.workspace("planted"), canaries.workspace("empty")
    plant(folder, folder.with_name("executed"))
    assert await try_planted(folder, empty, environ) == []
    (empty / "deputize.toml").touch()
    (tmp_path / "deputize").mkdir()
    (tmp_path / "deputize/mcp.json").symlink_to(folder / "mcp.json")
    named = {"DEPUTIZE_CONFIG": "deputize.toml", "DEPUTIZE_SKILLS_DIR": "skills"}
    found = await try_planted(folder, empty, environ | named)
    names = ("policy", "sandbox", "mcp_config", "skills_dir")
    assert {f"the setting {name} of a file in a workspace applies" for name in names} <= {*found}
    assert found[-2:] == ["a skill in a workspace is offered", "a program that a workspace names was executed"]


TRIED = [promise for promise in PROMISES if not promise.by_service]


def row_of(report: Report, name: str) -> Finding:
    (row,) = (row for row in report.rows() if row.name == name)
    return row


@pytest.mark.parametrize("name", [promise.name for promise in TRIED])
def test_a_promise_that_is_broken_is_named_with_all_that_was_found_and_what_to_do(name: str) -> None:
    report = Report()
    report.add({promise.name: list[str]() for promise in TRIED} | {name: ["one thing", "another"]})
    row = row_of(report, name)
    assert (row.state, "run no foreign code" in row.remedy) == ("✗", True)
    assert row.detail.endswith(": one thing; another")
    assert {other.state for other in report.rows() if other.name != name} == {"✓"}


def test_a_promise_that_could_not_be_tried_has_the_reason() -> None:
    report = Report(problems={"links": []})
    with report.attempting("kernel"):
        raise Misconfigured("no Python")
    assert (row_of(report, "kernel").state, row_of(report, "kernel").remedy) == ("!", "no Python")
    assert (row_of(report, "files").state, row_of(report, "links").state) == ("!", "✓")


@pytest.mark.parametrize("row", ["sandbox", "settings"])
def test_one_cause_is_one_row_with_a_remedy_and_the_rows_without_commands_name_it(row: str) -> None:
    report = Report(problems={promise.name: [] for promise in TRIED if not promise.by_command}, no_commands=row)
    untried = {found for found in report.rows() if found.state == "!"}
    assert {found.name for found in untried} == {promise.name for promise in TRIED if promise.by_command}
    assert all(found.detail.startswith(f"not tried, see {row}: ") for found in untried)
    assert {found.remedy for found in report.rows()} == {""}


@pytest.mark.parametrize("is_there", [True, False])
def test_each_program_that_tools_need_has_a_row(*, is_there: bool) -> None:
    rows = [*program_rows(lambda: is_there, lambda name: name if is_there else None)]
    assert [(row.name, row.state) for row in rows] == [(name, "✓" if is_there else "!") for name in ("ripgrep", "pdf")]
    assert [row.remedy.startswith("install ") for row in rows] == [not is_there] * 2
    assert {row.state for row in program_rows()} == {"✓"}  # the lock has both


def test_memory_that_others_can_read_is_a_warning() -> None:
    assert [[row.state for row in memory_rows(is_private=each)] for each in (True, False, None)] == [["✓"], ["!"], []]


def test_traces_have_a_row_where_an_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}  # nothing is sent there
    assert [*traces_rows({})] == []
    assert [row.state for row in traces_rows(variables)] == ["✓"]
    monkeypatch.delitem(sys.modules, "deputize.worker.tracing.exporter")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    (row,) = traces_rows(variables)
    assert (row.state, "pip install '.[otel]'" in row.detail) == ("!", True)


@pytest.mark.parametrize(
    ("enabled", "for_project", "state", "remedy"),
    [
        (True, False, "!", "no bwrap"),
        ("required", False, "✗", "no bwrap"),
        (True, True, "✗", "no bwrap"),
        (False, False, "!", "unset DEPUTIZE_SANDBOX"),
    ],
    ids=["broken", "required", "for a project", "switched off"],
)
def test_a_sandbox_that_does_not_work_has_a_remedy(enabled: Any, for_project: bool, state: str, remedy: str) -> None:
    row = sandbox_row(SandboxSettings(enabled=enabled), "no bwrap", for_project=for_project)
    assert (row.name, row.state, row.remedy) == ("sandbox", state, remedy)


@pytest.mark.system
def test_an_ordinary_user_tries_all_of_it_and_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    need_ordinary_user()
    monkeypatch.setenv("CANARY", f"deputize-canary-{'0' * 16}")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # this user's may lead where an ordinary one cannot go

    def work(home: Path) -> list[Any]:
        settings = Settings(home=home)
        with Canaries(home) as canaries:
            return [asdict(row) for row in asyncio.run(find(settings, canaries))]

    with home_of_an_ordinary_user() as home:
        found = in_child(lambda: work(home), ordinary=True)
        assert list(home.iterdir()) == []
    assert [row for row in found if row["state"] != "✓"] == []
    assert {promise.name for promise in TRIED} <= {row["name"] for row in found}


async def of_project(tmp_path: Path, project: Path, **sandbox: Any) -> dict[str, Finding]:
    settings = Settings.load(environ={}, home=tmp_path / "home", sandbox=sandbox)
    assert await Bubblewrap.selftest() is None
    with Canaries(tmp_path) as canaries:
        return {row.name: row for row in await project_rows(settings, project, canaries.workspace("project"))}


async def test_it_shows_what_set_up_would_run_which_hosts_it_reaches_and_the_limits(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    line = "touch /opt/setup/x"
    sandbox = {"setup": line, "setup_hosts": ["example.org", "*.example.com"], "command_seconds": 45}
    found = await of_project(tmp_path, project, **sandbox)
    assert found["set-up"].detail == f"{line} (runs before the next run; network: only example.org, *.example.com)"
    assert found["limits"].detail == (
        "a run has 2 GiB of memory, 2 processors and 2 GiB of disk; a command ends after 45 s, and has 256 processes, "
        "files of 1 GiB each, and 256 MiB in /tmp"
    )
    settings = Settings.load(environ={}, home=tmp_path / "home", sandbox=sandbox)
    tools = tools_for(settings, project)
    await SetupCache(settings).add_to(tools, project, project, build=True)
    assert (await of_project(tmp_path, project, **sandbox))["set-up"].detail.startswith(f"{line} (done already; ")


async def test_the_files_with_instructions_are_named_as_a_run_reads_them(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for path, text in {
        "AGENTS.md": "@docs/style.md",
        "CLAUDE.md": "not the first",
        "docs/style.md": "words",
        "web/CLAUDE.md": "words",
        "build/AGENTS.md": "ignored",
        ".gitignore": "build\n",
    }.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    found = await of_project(tmp_path, project)
    assert found["instructions"].detail == "AGENTS.md, docs/style.md; web/CLAUDE.md"
    (project / "AGENTS.md").unlink()
    (project / "CLAUDE.md").unlink()
    (project / "web/CLAUDE.md").unlink()
    assert "instructions" not in await of_project(tmp_path, project)


async def test_what_is_missing_and_what_stays_hidden_has_a_remedy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / "setup.py").touch()
    (tmp_path / "own/bin").mkdir(parents=True)
    (tmp_path / "own/bin/python3").touch(0o755)
    (tmp_path / "own/lib/python3.11").mkdir(parents=True)
    (tmp_path / "own/lib/python3.11/os.py").touch()
    (project / ".venv/bin/python").symlink_to(tmp_path / "own/bin/python3")
    found = await of_project(tmp_path, project)
    assert (found["venv"].state, "python -m venv" in found["venv"].remedy) == ("!", True)
    (project / ".venv/pyvenv.cfg").touch()
    hidden = (await of_project(tmp_path, project))["hidden"]
    assert hidden.state == "!"
    assert f"is {tmp_path}/own, " in hidden.detail
    assert "sandbox.show" in hidden.detail


class Breaking:
    """A sandbox that breaks with the last of the programs, while all others run."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    async def run(self, command: object) -> None:
        self.started += 1
        try:
            if self.started == len(_PROGRAMS):
                raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, "it broke")
            await asyncio.Event().wait()
        finally:
            self.ended += 1


async def test_a_program_that_cannot_be_asked_ends_the_others_and_its_error_is_reported() -> None:
    sandbox: Any = Breaking()
    with pytest.raises(ToolError, match="it broke"):
        await _versions(sandbox)
    assert sandbox.ended == sandbox.started == len(_PROGRAMS)
