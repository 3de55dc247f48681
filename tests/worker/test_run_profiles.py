"""Runs in profiles of the sandbox: each in its own, in everything, and a subagent never in a wider one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.internet import response
from tests.nesting import by_task, carrying_out, children_of, delegate
from tests.running import Bench, call, open_bench, say, script
from tests.worker.parents import run
from tests.worker.web.servers import saying, serving

PAGE = saying(response("the page", "text/plain"))
LOOK = "curl -sS --noproxy '' http://{at}/ 2>&1; echo; ls -d {kit}; cat /opt/setup/made"
AGENTS = {"surfer": {"sandbox": "online"}, "clerk": {"sandbox": "offline"}, "reader": {"description": "Reads."}}


def settings_of(kit: Path, at: str) -> dict[str, Any]:
    online = {"allowed_hosts": ["localhost"], "show": [kit], "setup": "echo made >/opt/setup/made"}
    profiles = {"online": online, "offline": {"command_seconds": 7}}
    return {"sandbox": {"profiles": profiles}, "agents": AGENTS, "tools": {"private_hosts": [at]}}


async def test_each_run_has_the_sandbox_of_its_agent_and_a_subagent_the_stricter_of_two(
    redis_url: str, tmp_path: Path
) -> None:
    for name in ("kit/bin", "project"):
        (tmp_path / name).mkdir(parents=True)
    workspace = {"kind": "directory", "path": str(tmp_path / "project")}
    async with serving(PAGE) as at:
        look = call("bash", command=LOOK.format(at=at, kit=tmp_path / "kit"))
        named = [delegate("child", agent=agent, workspace="copy") for agent in ("clerk", "reader", "surfer")]
        model = by_task(
            tmp_path, parent=[[look], *[[each] for each in named], [say("ok")]], child=[[look], [say("ok")]]
        )
        async with (
            open_bench(redis_url, tmp_path / "home", **settings_of(tmp_path / "kit", at)) as bench,
            carrying_out(bench),
        ):

            async def found(agent: str | None) -> list[str]:
                id = await run(bench, model=model, agent=agent, workspace=workspace)
                children = await children_of(bench.store, id)
                assert [child.request.agent for child in children] == ["clerk", "reader", "surfer"]
                return [(await bench.answers(each))[0] for each in (id, *(child.id for child in children))]

            of_root, of_clerk, of_reader, of_surfer = await found("surfer")
            assert of_root == of_reader == of_surfer == f"the page\n{tmp_path}/kit\nmade"
            assert "Failed to connect" in of_clerk
            assert f"cannot access '{tmp_path}/kit'" in of_clerk
            assert "\nmade" in of_clerk
            for nothing in (*await found("clerk"), *await found(None)):
                assert "Failed to connect" in nothing
                assert "\nmade" not in nothing


async def result_of(bench: Bench, folder: Path, command: str, agent: str | None) -> ToolAgentResult:
    model = script(folder, [call("bash", command=command)], [say("ok")])
    return await bench.run(model=model, agent=agent, limits={"timeout_seconds": 20})


async def test_limits_taint_and_words_are_those_of_the_runs_own_profile(redis_url: str, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    chosen = settings_of(kit, "localhost:1")
    chosen["sandbox"]["profiles"]["online"]["disk_bytes"] = 4 << 20
    async with open_bench(redis_url, tmp_path / "home", **chosen) as bench:
        write = "head -c 9M /dev/zero >a; until [ -e b ]; do sleep 0.1; done"
        surfer = await result_of(bench, tmp_path, write, "surfer")
        clerk = await result_of(bench, tmp_path, "head -c 9M /dev/zero >a; sleep 0.5", "clerk")
        assert "the limit is 4 MiB (sandbox.disk_bytes)" in surfer.errors[0]
        assert surfer.termination_reason == "budget"
        assert (clerk.errors, clerk.success) == ([], True)
        assert (surfer.trust.tainted_by, clerk.trust.tainted_by) == (["web"], [])
        for agents, words in ((["surfer"], ("localhost", "600")), (["clerk"], ("no network", "7"))):
            (bash,) = (tool for tool in bench.services.offers.of(agents).tools if tool.name == "bash")
            assert bash in bench.services.offers.of(agents).tools  # the same object: models encode it once
            assert words[0] in bash.description
            assert f"after {words[1]} seconds at the latest" in " ".join(bash.description.split())
        gone = await result_of(bench, tmp_path, "true", "gone")
    assert (gone.termination_reason, gone.turn_count) == ("refused", 0)
    assert "all workers need the same agents" in gone.summary
