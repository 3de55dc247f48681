"""Task folders of Harbor: what becomes of one that needs no container, and why others are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.evaluation.harbor import harbor_lines
from deputize.shared.errors import Invalid
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until

HELLO = {
    "task.toml": '[task]\nname = "ours/hello"\n[agent]\ntimeout_sec = 120.0\n[verifier]\ntimeout_sec = 60.0\n',
    "instruction.md": "<!-- canary GUID 1 -->\n\nCreate /app/hello.txt with the text of /app/words/greeting.txt\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\n# here\nWORKDIR /app\nCOPY . /app/\n",
    "environment/words/greeting.txt": "Hello, world!\n",
    "tests/test.sh": """\
        cmp /app/hello.txt /tests/expected.txt
        if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
        """,
    "tests/expected.txt": "Hello, world!\n",
    "solution/solve.sh": "cp words/greeting.txt hello.txt\n",
}
"""A task whose container is a copy of its folder."""


def written(folder: Path, files: Mapping[str, str] = HELLO) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(line.strip() + "\n" for line in text.splitlines()))
    return folder


def requests(folder: Path) -> list[DelegationRequest]:
    return [DelegationRequest.model_validate_json(line) for line in harbor_lines(folder).splitlines()]


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench


def test_paths_of_the_container_become_those_of_the_workspace(tmp_path: Path) -> None:
    (asked,) = requests(written(tmp_path / "hello"))
    assert asked.task == "Create hello.txt with the text of words/greeting.txt"
    assert (asked.labels, asked.limits.timeout_seconds) == ({"harbor": "ours/hello"}, 120)
    command: Any = asked.verify[0]
    assert command.files[".harbor/tests/test.sh"].startswith("cmp ./hello.txt .harbor/tests/expected.txt\n")
    assert (command.is_hidden, command.timeout_seconds) == (True, 60)
    assert "solve" not in asked.to_json()


@pytest.mark.parametrize(
    ("commands", "verdict"),
    [
        (["cp words/greeting.txt hello.txt"], "verified"),
        (["echo Hi > hello.txt"], "not"),
        (["mkdir -p .harbor/verifier", "echo 1 > .harbor/verifier/reward.txt"], "not"),
    ],
)
async def test_a_task_without_a_container_is_done_and_checked(
    bench: Bench, tmp_path: Path, commands: list[str], verdict: str
) -> None:
    (asked,) = requests(written(tmp_path / "hello"))
    model = script(tmp_path, *[[call("bash", command=line)] for line in commands], [say("Done.")])
    id = await bench.accept(asked.model_copy(update={"model": model, "max_verify_rounds": 0}))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.verification.verdict == "verified", result.success) == ((verdict == "verified"),) * 2, (
        result.verification
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("environment/Dockerfile", "FROM a\nRUN make install", "needs a container for 'RUN make install'"),
        ("environment/Dockerfile", "FROM a\nCOPY words /app", "needs a container for 'COPY words /app'"),
        ("environment/docker-compose.yaml", "services: {}", "docker-compose.yaml needs containers"),
        ("task.toml", '[environment]\ndocker_image = "a"', "[environment] docker_image needs a container"),
        ("task.toml", '[[steps]]\nname = "one"', "several steps"),
        ("task.toml", '[verifier]\nenv = { KEY = "${KEY}" }', "names variables of the machine"),
        ("task.toml", 'agent = "me"', "agent is not a table"),
        ("task.toml", "[agent", "hello: "),
        ("tests/test.sh", "pip install pytest", "uses pip, and checks have no network"),
        ("tests/test.sh", "echo > /logs/verifier/reward.json", "reward.json"),
        ("environment/Dockerfile", "FROM a\nWORKDIR /", "works in the root of a container"),
    ],
)
def test_what_needs_a_container_or_a_network_is_refused_with_the_reason(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    written(tmp_path / "good")
    written(tmp_path / "hello", {**HELLO, name: text})
    with pytest.raises(Invalid) as refused:
        harbor_lines(tmp_path)
    assert why in refused.value.detail
    assert "good" not in refused.value.detail
    assert "\n" not in refused.value.detail
    assert refused.value.detail.endswith(
        "Run it with Harbor itself, or make a task of it whose programs and files are on this machine."
    )


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no folder in it has one"):
        harbor_lines(tmp_path)


async def test_the_command_takes_a_folder_of_tasks(url: str, service: FakeService, tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "tasks" / name)
    async with started("eval", str(tmp_path / "tasks"), "--runs", "1", "--json", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        for id in [*service.runs]:
            service.finish(id)
        done = await command.done()
    assert done.code == 0, done.err
    assert [json.loads(line).get("title") for line in done.out.splitlines()][:2] == [
        "Create hello.txt with the text of words/greeting.txt"
    ] * 2
    assert {run.request.labels["harbor"] for run in service.runs.values()} == {"ours/hello"}
    (tmp_path / "tasks" / "two" / "environment" / "Dockerfile").write_text("FROM a\nRUN make\n")
    refused = await deputize("eval", str(tmp_path / "tasks"), DEPUTIZE_URL=url)
    assert (refused.code, "needs a container for 'RUN make'" in refused.err) == (2, True), refused.err
