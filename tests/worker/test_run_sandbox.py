"""Runs and their sandbox: its profiles, its limits, and the tests of the project that run in it."""

from __future__ import annotations

import shutil
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import ErrorSeen
from deputize.shared.request import DirectoryWorkspace
from deputize.worker.sandbox.project_tools import NO_TOOLS
from deputize.worker.sandbox.usage import disk_bytes
from deputize.worker.workspace.workspace import Workspace
from tests.network.internet import response
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.nesting import by_task, carrying_out, children_of, delegate
from tests.worker.parents import run
from tests.worker.run_history import history_of
from tests.worker.web.servers import saying, serving

PAGE = saying(response("the page", "text/plain"))
LOOK = "curl -sS --noproxy '' http://{at}/ 2>&1; echo; ls -d {kit}; cat /opt/setup/made"
AGENTS = {"surfer": {"sandbox": "online"}, "clerk": {"sandbox": "offline"}, "reader": {"description": "Reads."}}


def settings_of(kit: Path, at: str) -> dict[str, Any]:
    online = {"allowed_hosts": ["localhost"], "show": [kit], "setup": "echo made >/opt/setup/made"}
    profiles = {"online": online, "offline": {"command_seconds": 7}}
    return {"sandbox": {"profiles": profiles}, "agents": AGENTS, "tools": {"private_hosts": [at]}}


@pytest.mark.long
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


# The limits of the sandbox in a run: the model, the step and the result state which one ended a command.


HOLD = "python3 -c 'import signal; b = b\"x\" * (400 << 20); signal.pause()'"
MEMORY = {"memory_bytes": 256 << 20}


@pytest.mark.requirement("S004-042")
async def test_a_command_killed_for_a_limit_is_a_failed_step_that_names_it(redis_url: str, tmp_path: Path) -> None:
    asked = [call("bash", command=f"echo so far; {HOLD}")]
    async with open_bench(redis_url, tmp_path / "home", sandbox=MEMORY) as bench:
        result = await bench.run(model=script(tmp_path, asked, [say("done")]))
        answer = (await history_of(bench, result))[2]["content"][0]
        (step,) = await bench.steps(result)
    assert result.termination_reason == "completed"
    for text in (answer["content"], step.error or "", *result.errors):
        assert "the limit is 256 MiB (sandbox.memory_bytes)" in text
    assert "so far" in answer["content"]
    assert len(result.errors) == 1


async def test_a_background_command_killed_for_a_limit_is_an_error_of_the_delegation(
    redis_url: str, tmp_path: Path
) -> None:
    read = call("bash_output", bash_id=r"{{result:1 /Bash ID: (\w+)/}}")  # waits 5 s for the line that it is killed
    turns = [call("bash", command=HOLD, run_in_background=True)], *[[read]] * 4, [say("done")]
    async with open_bench(redis_url, tmp_path / "home", sandbox=MEMORY) as bench:
        result = await bench.run(model=script(tmp_path, *turns))
        (error,) = [event for event in await bench.seen(result, ErrorSeen) if event.kind == "limit"]
    assert error.message in result.errors
    assert error.message.startswith("python3 -c")
    assert "(sandbox.memory_bytes)" in error.message


async def test_a_set_up_command_that_takes_too_much_disk_refuses_the_run(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    line = "head -c 9M /dev/zero >/opt/scratch/a; exec sleep 1000"
    settings = {"setup": line, "setup_disk_bytes": 4 << 20}
    async with open_bench(redis_url, tmp_path / "home", sandbox=settings) as bench:
        workspace = {"kind": "directory", "path": str(tmp_path / "project")}
        result = await bench.run(model=script(tmp_path, [say("done")]), workspace=workspace)
    assert result.termination_reason == "refused"
    assert "the limit is 4 MiB (sandbox.setup_disk_bytes)" in result.summary


async def test_what_a_copy_takes_is_known_before_the_first_command_of_its_run(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "project/sub").mkdir(parents=True)
    (tmp_path / "project/sub/a").write_bytes(bytes(100_000))
    (tmp_path / "project/link").symlink_to("sub/a")
    spec, home = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project")), tmp_path / "home"
    offer = bench.services.offers.of([None])
    for attempt in (1, 2):
        workspace = await Workspace.create(spec, "dlg_1", home, attempt=attempt)
        async with offer.sandbox(workspace, NO_TOOLS) as sandbox:
            assert sandbox.bounds
            known = sandbox.bounds.begin()
            assert known.done() is (attempt == 1)  # a later attempt's files are measured meanwhile
            assert await known == disk_bytes([workspace.path]) > 100_000
        workspace.close()


# A run carries out the tests of the project it works on, with the project's own pytest.


PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose environment git ignores, with pytest in it and the project itself as an editable install."""
    root = tmp_path / "project"
    venv.create(root / ".venv", symlinks=True)
    site = next((root / ".venv/lib").glob("python3*")) / "site-packages"
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if (origin := Path(spec.origin)).name == "__init__.py":
            shutil.copytree(origin.parent, site / name)
        else:
            shutil.copy(origin, site)
    (site / "_counting.pth").write_text(f"{root}/src\n")
    (root / ".venv/bin/pytest").write_text(
        f"#!{root}/.venv/bin/python\nimport pytest; raise SystemExit(pytest.main())\n"
    )
    (root / ".venv/bin/pytest").chmod(0o755)
    (root / "src").mkdir()
    (root / "src/counting.py").write_text("ONE = 0\n")
    (root / "tests").mkdir()
    (root / "tests/test_counting.py").write_text("import counting\ndef test_one(): assert counting.ONE == 1\n")
    (root / ".gitignore").write_text(".venv/\n__pycache__/\n.pytest_cache/\n")
    return root


async def test_a_run_passes_the_projects_own_tests_on_what_it_has_changed(
    bench: Bench, project: Path, tmp_path: Path
) -> None:
    model = script(
        tmp_path,
        [call("write_file", path="src/counting.py", content="ONE = 1\n")],
        [call("bash", command="pytest -q -p no:cacheprovider && ls -d .venv/bin/pytest")],
        [say("The tests pass.")],
    )
    workspace = {"kind": "directory", "path": str(project), "ignored": False}
    result = await bench.run(model=model, workspace=workspace)
    steps = [line.split(" ", 3)[3] for line in result.details.splitlines()]
    assert [step[0] for step in steps] == ["✓", "✓"], await bench.events(result.delegation_id)
    assert [path for path in result.files_modified if "pycache" not in path] == ["src/counting.py"]
    assert (project / "src/counting.py").read_text() == "ONE = 0\n"
