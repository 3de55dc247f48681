"""A user's script: checked by mypy and pyright, which find a typo, and not disturbed by folders beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import deputize
from deputize.shared.limits import LimitFields, Limits
from deputize.shared.request import DelegationRequest, RequestFields
from tests.architecture.sources import ROOT
from tests.sampling import sampled

pytestmark = pytest.mark.system

SCRIPT = """
from pydantic import BaseModel

import deputize
from deputize import DelegationFailed, Envelope, Orchestrator, Status, SyncOrchestrator


class Size(BaseModel):
    width: int


def hear(envelope: Envelope) -> None:
    print(envelope.seq, envelope.event.type)


async def main() -> int:
    async with Orchestrator(url="http://127.0.0.1:1") as orchestrator:
        result = await orchestrator.delegate("x", workspace=".", limits={"max_turns": 5}, on_event=hear)
        words: list[str] = await orchestrator.delegate("x", output=list[str], on_event=hear, priority=3)
        size = await orchestrator.delegate("x", workspace=".", output=Size)
        print(words[0].upper(), size.width + result.output_as(Size).width)
        both = await orchestrator.gather(["a", "b"], labels={"of": "both"}, tools=["read_file"], approval_mode="auto")
        return result.turn_count + sum(each.usage.total for each in both)


def sized() -> int:
    with SyncOrchestrator() as orchestrator:
        orchestrator.start("x", output_schema=Size)
        return orchestrator.delegate("x", output=Size).width


async def looked_at() -> float:
    async with Orchestrator() as orchestrator:
        page = await orchestrator.list(status=Status.RUNNING, labels={"of": "both"})
        changed: list[str] = [file.path for item in page.items for file in (await orchestrator.files(item.id)).items]
        async for result in orchestrator.as_completed([item.id for item in page.items]):
            changed += [change.path for change in await orchestrator.apply(result.delegation_id, ".", check=True)]
        content = b"".join([chunk async for chunk in orchestrator.file(page.items[0].id, changed[0])])
        first = await orchestrator.get(page.items[0].id, wait=5)
        report = await orchestrator.cost(by="session")
        return len(content) + (report.total.usage.cost_usd or 0) + first.attempt


def looked_at_without_await() -> str:
    with SyncOrchestrator() as orchestrator:
        items = orchestrator.list(session="s", limit=3).items
        seen = [envelope.seq for envelope in orchestrator.follow(items[0].id, after=2)]
        for result in orchestrator.as_completed([item.id for item in items]):
            print(result.summary, seen, orchestrator.steps(result.delegation_id)[0].tool_name.upper())
        print(b"".join(orchestrator.file(items[0].id, "a.txt")), orchestrator.workers()[0].name.upper())
        return orchestrator.patch(items[0].id) + orchestrator.artifact(items[0].id, "report.md")


def in_one_line() -> int:
    return deputize.run("x", output=Size).width + deputize.run("x", workspace=".").turn_count


async def mapped() -> str:
    async with Orchestrator() as orchestrator:
        results = await orchestrator.map(["a", "b"], concurrency=3, on_event=hear, workspace=".")
        tool = orchestrator.as_tool(name="review", workspace=".", limits={"max_turns": 5})
        return results[0].summary + (await tool.call({"task": "x"})).text


def mapped_without_await() -> bool:
    with SyncOrchestrator() as orchestrator:
        return orchestrator.as_tool(priority=3).call("{}").is_error or orchestrator.map(["a"])[0].success


def plain() -> str:
    with SyncOrchestrator() as orchestrator:
        try:
            return orchestrator.delegate("x", model="m", priority=3).raise_for_status().summary
        except DelegationFailed as failed:
            return failed.result.summary
"""
TYPOS = ("limit={}", 'limits={"max_turn": 5}', 'approval_mode="always"', "priority='high'", "workspace=3")
WRONG_CALLS = (
    *("orchestrator.list(state='running')", "orchestrator.get(3)", "deputize.run('x', limit={})"),
    *("orchestrator.map(['x'], limit={})", "orchestrator.as_tool(limit={})"),
)
CHECKERS = {
    "pyright": ("-m", "basedpyright", "--project", ".", "--pythonpath", sys.executable),
    "mypy": ("-m", "mypy", "--strict", "--cache-dir", "cache", "."),
}
DOCUMENTS = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
EXAMPLES = {
    # That of a tool lies in `worker/tools/`.
    f"{re.sub(r'[^a-z]+', '_', path.lower())}_{number}.py": example.replace("from ..", "from deputize.worker.").replace(
        "from .", "from deputize.worker.tools."
    )
    for path in DOCUMENTS
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.M | re.S))
}


@pytest.mark.costly
@pytest.mark.parametrize("checker", sampled({each: each for each in CHECKERS}, 2))
def test_a_script_and_all_examples_are_typed_and_each_typo_is_found(checker: str, tmp_path: Path) -> None:
    """The examples of the documents, all at once, as a checker takes seconds to start: just the typos are wrong."""
    calls = (*(f"orchestrator.start('x', {typo})" for typo in TYPOS), *WRONG_CALLS)
    lines = [*SCRIPT.splitlines(), "def wrong(orchestrator: SyncOrchestrator) -> None:"]
    assert len(EXAMPLES) >= 9
    files = {"script.py": "\n".join([*lines, *(f"    {call}" for call in calls), ""]), **EXAMPLES}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    done = subprocess.run([sys.executable, *CHECKERS[checker]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {each for each in re.findall(r"\b(\w+\.py):(\d+)", done.stdout) if each[0] in files}
    wrong = range(len(lines) + 1, len(lines) + 1 + len(calls))
    assert found == {("script.py", str(line)) for line in wrong}, done.stdout


def test_the_typed_fields_are_those_of_a_request() -> None:
    assert get_type_hints(RequestFields).keys() == DelegationRequest.model_fields.keys() - {"task"}
    assert get_type_hints(LimitFields).keys() == Limits.model_fields.keys()


def test_every_public_name_is_there() -> None:
    names = [name for name in dir(deputize) if not name.startswith("__")]
    starred: dict[str, object] = {}
    exec("from deputize import *", starred)
    assert {*names} == starred.keys() - {"__builtins__"}
    assert {"Orchestrator", "SyncOrchestrator", "run", "DelegationRequest", "ToolAgentResult", "Unavailable"} <= {
        *names
    }
    assert all(getattr(deputize, name).__name__ == name for name in names)
    assert not {"Any", "import_module", "shared", "orchestrator", "annotations"} & {*names}
    with pytest.raises(AttributeError, match="no attribute 'Orchestrater'"):
        _ = deputize.Orchestrater  # pyright: ignore[reportAttributeAccessIssue]


def test_folders_of_our_names_beside_a_script_do_not_disturb_it(tmp_path: Path) -> None:
    for name in ("shared", "worker", "orchestrator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "script.py").write_text(
        "import shared, worker, orchestrator, deputize\n"
        "from deputize.worker import task\n"
        "print(deputize.Orchestrator.__module__, task.__name__, shared.__file__)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [
        "deputize.orchestrator.orchestrator",
        "deputize.worker.task",
        str(tmp_path / "shared" / "__init__.py"),
    ], done.stderr
    assert ROOT not in tmp_path.parents
