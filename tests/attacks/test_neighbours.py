"""What a run cannot do to another one of the same worker: its files, its processes, its questions to a person."""

from __future__ import annotations

import pytest

from tests.attacks.stage import RUN_A_COMMAND, Stage
from tests.runs.bench import call, say
from tests.waiting import until

pytestmark = pytest.mark.system
PLAN = call("write_file", path="plan.txt", content="only with permission")


@pytest.mark.parametrize("tool", RUN_A_COMMAND)
async def test_a_question_to_a_person_is_answered_by_no_other_run(stage: Stage, tool: str) -> None:
    """The attacker even knows its id, and where Redis and the service listen."""
    async with stage.fleet() as fleet:
        model = stage.script([[PLAN], [say("done")]])
        id = await fleet.hand_over(model=model, tools=["write_file"], approval_mode="ask")
        try:
            (asked,) = await until(lambda: fleet.service.permissions(id))
            url = f"http://127.0.0.1:{stage.settings.port}/v1/permissions/{asked.permission_id}"
            answer = '{"outcome": "proceed_always"}'
            files = stage.files_of(id)
            said = await stage.shell(
                f"curl -sS -m 5 -H 'Content-Type: application/json' -d '{answer}' {url} 2>&1",
                f"exec 3<>/dev/tcp/127.0.0.1/{stage.port} && echo 'DEL deputize:permissions' >&3",
                f"echo x > {files}/plan.txt; ls {files}; rm -rf {files.parent}; kill -9 -1; pkill -9 python",
                tool=tool,
            )
            assert "Couldn't connect to server" in said[0]
            assert "Connection refused" in said[1]
            assert [each.permission_id for each in await fleet.service.permissions(id)] == [asked.permission_id]
            assert (await fleet.service.get(id)).status == "waiting"
            assert not (files / "plan.txt").exists()
        finally:
            await fleet.service.cancel(id)
        assert (await fleet.result(id)).files_modified == []


async def test_no_tool_answers_and_no_subagent_goes_around_a_question(stage: Stage) -> None:
    """A subagent of a run that must ask has to ask, too, and the names of our routes are no tools."""
    async with stage.fleet() as fleet:
        names = ("approve", "answer_permission", "permissions", "proceed_always", "deputize")
        turns = [[call(name, permissionId="x", outcome="proceed_always") for name in names]]
        child = call("call_subagent", task="child", tools=["write_file"])
        model = stage.script([*turns, [child], [say("done")]], child=[[PLAN], [say("done")]])
        id = await fleet.hand_over(model=model, tools=["write_file", "call_subagent"], approval_mode="ask")
        try:
            (asked,) = await until(lambda: fleet.service.permissions(id))
            assert asked.delegation_id != id
            assert not (stage.files_of(asked.delegation_id) / "plan.txt").exists()
            events = [envelope.event for envelope in await fleet.service.events(id)]
            unknown = [event.step.error for event in events if event.type == "step_completed"]
            assert [error for error in unknown if "there is no tool" in (error or "")] == unknown
            assert len(unknown) == len(names)
        finally:
            await fleet.service.cancel(id)
        await fleet.result(id)
