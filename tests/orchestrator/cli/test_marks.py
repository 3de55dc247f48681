"""The mark of a result in every line of the command line that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.request import DelegationRequest
from tests.marked import MARKED
from tests.orchestrator.cli.following import called
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.terminal import on_terminal
from tests.waiting import until


async def ended(service: FakeService, parent: str | None = None) -> list[str]:
    """A delegation for each row, ended."""
    ids: list[str] = []
    for number, row in enumerate(MARKED):
        request = DelegationRequest(task=f"task {number:02}", parent_id=parent)
        ids.append((await service.create(request)).delegation.id)
        service.finish(ids[-1], row.reason, **row.fields)
    return ids


async def test_the_end_of_a_run_the_record_and_its_parent_have_the_mark(url: str, service: FakeService) -> None:
    parent = (await service.create(DelegationRequest(task="all"))).delegation.id
    ids = await ended(service, parent)
    ends = (await deputize("watch", *ids, DEPUTIZE_URL=url)).err.splitlines()
    family = (await called(url, "show", parent)).stdout.splitlines()
    for number, (id, row) in enumerate(zip(ids, MARKED, strict=True)):
        assert any(line.startswith(f"[task {number:02}] {row.sign} {row.words}: 0 turns") for line in ends), row
        shown = (await called(url, "show", id)).stdout.splitlines()
        assert any(line.startswith(f"outcome    {row.sign} {row.words}: 0 turns") for line in shown), row
        assert f"child      {row.sign} {row.headline:12}  task {number:02}  {id}" in family


async def test_the_line_of_a_batch_has_the_mark_and_the_totals_count_it(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tmp_path.joinpath("t.txt").write_text("".join(f"{row.words}\n" for row in MARKED))
    async with started("batch", str(tmp_path / "t.txt"), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == len(MARKED), 60)
        ids = [*service.runs]
        for id, row in zip(ids, MARKED, strict=True):
            service.finish(id, row.reason, **row.fields)
        done = await command.done()
    lines = done.out.splitlines()
    for number, (id, row) in enumerate(zip(ids, MARKED, strict=True), 1):
        assert any(line.startswith(f"{row.sign} line {number}  {id}  {row.words}  0.0 s") for line in lines), row


COLOURS = {"✓": "\x1b[32m✓\x1b[0m", "?": "\x1b[33m?\x1b[0m", "✗": "\x1b[31m✗\x1b[0m", "–": "–"}


async def test_the_list_has_a_verdict_column_and_on_a_terminal_the_mark(url: str, service: FakeService) -> None:
    ids = await ended(service)
    begun = (await service.create(DelegationRequest(task="begun"))).delegation.id
    listed = {line.split()[0]: line.split()[2] for line in (await called(url, "list")).stdout.splitlines()}
    assert listed == {id: row.verdict for id, row in zip(ids, MARKED, strict=True)} | {begun: "–"}
    async with on_terminal("list", lines=40, columns=120, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    for number, (id, row) in enumerate(zip(ids, MARKED, strict=True)):
        line = next(line for line in terminal.history() if f"task {number:02}" in line)
        assert line.startswith(f"{row.sign} task {number:02} ")
        assert line.split()[4:6] == [str(service.runs[id].status), row.verdict]
        assert f"{COLOURS[row.sign]} task {number:02} " in terminal.drawn


@pytest.mark.parametrize("line", ["a summary: Quoi ? Oui", "is it so?", "what?  it is"])
async def test_a_question_mark_in_a_text_is_no_mark(url: str, service: FakeService, line: str) -> None:
    service.finish((await service.create(DelegationRequest(task=line))).delegation.id)
    async with on_terminal("list", columns=120, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    assert "\x1b[33m?" not in terminal.drawn
