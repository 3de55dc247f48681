"""Merges over HTTP, in Python and on the command line, of a service that a test plays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize import Invalid, Orchestrator, SyncOrchestrator
from deputize.shared.checks import CommandCheck
from deputize.shared.delegation import TerminationReason
from deputize.shared.facts import MergeConflict
from deputize.shared.request import DelegationRequest
from tests.orchestrator.access_tokens import bearer, one_for_each_scope, serving
from tests.orchestrator.cli.following import called, finished_by_itself
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.shared.patches.patching import patch_of

CHECK = {"kind": "command", "run": "make test"}


def conflict(*ids: str) -> MergeConflict:
    sides = [{"id": id, "change": "modified", "text": f"-a\n+{number}\n"} for number, id in enumerate(ids)]
    return MergeConflict.model_validate({"path": "src/a.py", "sides": sides})


async def finished(service: FakeService, **fields: Any) -> str:
    id = (await service.create(DelegationRequest(task="t", **fields))).delegation.id
    service.finish(id)
    return id


@pytest.fixture
async def two(service: FakeService) -> list[str]:
    service.fleet = [worker_card()]
    return [await finished(service), await finished(service)]


async def test_a_merge_is_a_delegation_with_the_checks(
    http: httpx2.AsyncClient, service: FakeService, two: list[str]
) -> None:
    body = {"ids": [*two, two[0]], "verify": [CHECK], "protect": [], "timeoutSeconds": 60, "idempotencyKey": "k"}
    answers = [await http.post("/v1/merges", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    made = answers[0].json()["delegation"]
    assert answers[0].headers["location"] == f"/v1/delegations/{made['id']}"
    assert answers[1].json()["delegation"]["id"] == made["id"]
    request = service.runs[made["id"]].request
    assert (request.merges, request.verify[0].kind, request.protect) == (two, "command", [])
    assert request.limits.timeout_seconds == 60


async def test_a_check_of_a_merge_may_be_a_command_line(
    http: httpx2.AsyncClient, service: FakeService, two: list[str]
) -> None:
    made = await http.post("/v1/merges", json={"ids": two, "verify": ["make test"]})
    assert made.status_code == 202, made.text
    request = service.runs[made.json()["delegation"]["id"]].request
    assert request.verify == [CommandCheck(kind="command", run="make test")]


async def test_conflicts_and_dry_runs_are_only_reported(
    http: httpx2.AsyncClient, service: FakeService, two: list[str]
) -> None:
    dry = await http.post("/v1/merges", json={"ids": two, "dryRun": True})
    assert (dry.status_code, dry.json()) == (200, {"conflicts": [], "files": ["a.txt"], "delegation": None})
    service.conflicts = [conflict(*two)]
    refused = await http.post("/v1/merges", json={"ids": two})
    assert (refused.status_code, refused.json()["conflicts"]) == (200, [conflict(*two).to_dict()])
    assert len(service.runs) == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ids": []}, "/ids"),
        ({}, "/ids"),
        ({"ids": ["a"] * 101}, "/ids"),
        ({"ids": ["a"], "dry": True}, "/dry"),
        ({"ids": ["a"], "verify": [{"kind": "command"}]}, "/verify/0/run"),
        ({"ids": ["a"], "timeoutSeconds": 0}, "/timeoutSeconds"),
    ],
)
async def test_mistakes_have_pointers(http: httpx2.AsyncClient, body: dict[str, Any], pointer: str) -> None:
    answer = await http.post("/v1/merges", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_who_may_only_submit_reads_nothing_of_the_changes(
    service: FakeService, two: list[str], tmp_path: Path
) -> None:
    async with serving(service, one_for_each_scope(tmp_path)) as http:
        made = await http.post("/v1/merges", headers=bearer("submit"), json={"ids": two})
        service.conflicts = [conflict(*two)]
        refused = await http.post("/v1/merges", headers=bearer("submit"), json={"ids": two})
    assert made.status_code == 202
    assert made.json()["delegation"]["request"]["task"].startswith("withheld")
    assert (made.json()["files"], "a.py" in refused.text, "+1" in refused.text) == ([], False, False)
    assert (refused.status_code, "1 conflict; a token with the scope read can list them" in refused.text) == (409, True)


async def test_in_python_the_merge_is_awaited(url: str, service: FakeService, two: list[str]) -> None:
    async with finished_by_itself(service), Orchestrator(url=url) as orchestrator:
        report = await orchestrator.merge(two, verify=[CHECK])
        assert (report.conflicts, report.result and report.result.success) == ([], True)
        with pytest.raises(Invalid, match="ids"):
            await orchestrator.merge([])
    service.conflicts = [conflict(*two)]

    def script() -> tuple[int, object]:
        with SyncOrchestrator(url=url) as orchestrator:
            found = orchestrator.merge(two)
            return len(found.conflicts), found.result

    assert await asyncio.to_thread(script) == (1, None)


async def test_a_command_merges_checks_and_applies(
    url: str, service: FakeService, two: list[str], tmp_path: Path
) -> None:
    def finish(service: FakeService, id: str) -> None:
        service.patches[id] = patch_of("a.txt", b"one\n", b"two\n")
        service.finish(id, summary="Merged.", file_changes=[{"path": "a.txt", "change": "modified"}])

    (tmp_path / "a.txt").write_text("one\n")
    async with finished_by_itself(service, finish):
        given = ["--verify", "make test", "--protect", "x", "--timeout", "9", "--into", str(tmp_path)]
        done = await deputize("merge", two[0], "@last", *given, DEPUTIZE_URL=url)
    assert (done.code, done.out) == (0, "Merged.\n"), done.err
    assert (tmp_path / "a.txt").read_text() == "two\n"
    request = [*service.runs.values()][-1].request
    assert (request.merges, len(request.verify), request.protect) == (two, 1, ["x"])
    assert request.limits.timeout_seconds == 9


async def test_a_merge_that_fails_the_checks_is_not_applied(
    url: str, service: FakeService, two: list[str], tmp_path: Path
) -> None:
    def finish(service: FakeService, id: str) -> None:
        service.finish(id, TerminationReason.ERROR, file_changes=[{"path": "a", "change": "deleted"}])

    async with finished_by_itself(service, finish):
        done = await deputize("merge", *two, "--into", str(tmp_path), DEPUTIZE_URL=url)
    assert (done.code, [*tmp_path.iterdir()]) == (1, [])


async def test_a_command_shows_conflicts_with_both_sides(url: str, service: FakeService, two: list[str]) -> None:
    done = await called(url, "merge", *two, "--check")
    assert (done.exit_code, done.stdout) == (0, "1 file can be changed without a conflict\n  a.txt\n")
    service.conflicts = [conflict(*two), MergeConflict(path="b", sides=conflict(two[0]).sides, why="another base")]
    done = await called(url, "merge", *two)
    assert (done.exit_code, done.stdout.splitlines()) == (
        1,
        [
            "nothing can be merged: 2 conflicts",
            "  src/a.py",
            f"    modified by {two[0]}",
            "      -a",
            "      +0",
            f"    modified by {two[1]}",
            "      -a",
            "      +1",
            "  b: another base",
            f"    modified by {two[0]}",
            "      -a",
            "      +0",
        ],
    )
    done = await called(url, "merge", *two, "--json")
    assert (done.exit_code, len(json.loads(done.stdout)["conflicts"])) == (1, 2)


async def test_what_checks_put_back_is_merged_when_asked_for(url: str, service: FakeService, two: list[str]) -> None:
    service.left_out = ["tests/a.py"]
    done = await called(url, "merge", *two, "--check")
    assert (done.exit_code, done.stderr) == (
        0,
        "left out: tests/a.py, which the checks put back; --with-protected merges them, too\n",
    )
    async with finished_by_itself(service):
        assert (await deputize("merge", *two, "--with-protected", DEPUTIZE_URL=url)).code == 0
    assert [*service.runs.values()][-1].request.merge_with_protected
