"""A workspace with real files and the real sandbox, and tools called in it the way the loop calls them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import FinalStatus, Status, TerminationReason, ToolAgentResult
from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings, ToolSettings
from deputize.worker.contracts import Command
from deputize.worker.sandbox.bubblewrap import Bubblewrap, NoSandbox, Sandbox
from deputize.worker.sandbox.buffers import OutputBuffer
from deputize.worker.sandbox.environment import owner
from deputize.worker.sandbox.shells import BackgroundShell
from deputize.worker.tools.base import AnyTool, Recoverable, ToolResult
from deputize.worker.tools.bounded_result import bounded
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import Outcome, Subagents, ToolContext
from deputize.worker.tools.naming import find_tool
from deputize.worker.tools.web_fetch import WebFetch
from deputize.worker.tools.web_search import WebSearch
from deputize.worker.workspace.files import Files
from tests.network.internet import sample_web
from tests.runs.skills import sample_skills

SET_UP = Settings(
    skills_dir=sample_skills(), tools=ToolSettings(search_provider="searxng", search_url="http://search.test")
)
WEB = sample_web()
ON_THIS_WEB: dict[str, AnyTool] = {tool.name: tool for tool in (WebFetch(network=WEB), WebSearch(network=WEB))}
TOOLS = [ON_THIS_WEB.get(tool.name, tool) for tool in BUILTIN]
EVERYTHING: dict[str, AnyTool] = {tool.name: tool.configured(SET_UP) or tool for tool in TOOLS}
"""Every tool, as a worker offers it whose operator has set up what it needs."""


def recoverable(name: str) -> Recoverable[Any]:
    tool = EVERYTHING[name]
    assert isinstance(tool, Recoverable)
    return tool


ENDINGS: dict[TerminationReason, FinalStatus] = {
    TerminationReason.COMPLETED: Status.SUCCEEDED,
    TerminationReason.CANCELLED: Status.CANCELLED,
    TerminationReason.WRAPPED_UP: Status.CANCELLED,
}
"""The status after each reason; after all others it is failed."""


class ImmediateSubagents:
    """Subagents that need no other run: each reports its own task, and has written it into one file."""

    def __init__(self, reason: TerminationReason = TerminationReason.COMPLETED) -> None:
        self.asked: list[tuple[DelegationRequest, bool]] = []
        self._reason = reason
        self._status: FinalStatus = ENDINGS.get(reason, Status.FAILED)

    async def delegate(self, ctx: ToolContext, request: DelegationRequest, *, copy: bool) -> Outcome:
        self.asked.append((request, copy))
        result = ToolAgentResult(
            delegation_id="dlg_01k00000000000000000000001",
            status=self._status,
            termination_reason=self._reason,
            summary=request.task,
            files_modified=["made.txt"],
            turn_count=2,
            tool_call_count=1,
        )
        blob = sha1(f"blob {len(request.task) + 1}\0{request.task}\n".encode(), usedforsecurity=False).hexdigest()
        head = f"diff --git a/made.txt b/made.txt\nnew file mode 100644\nindex {'0' * 40}..{blob}\n"
        return Outcome(result, f"{head}--- /dev/null\n+++ b/made.txt\n@@ -0,0 +1 @@\n+{request.task}\n")


@dataclass
class Toolbench:
    """``news`` is what tools reported while they ran: (title, fields)."""

    root: Path
    files: Files
    sandbox: Sandbox
    news: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    calls: int = 0
    subagents: Subagents = field(default_factory=ImmediateSubagents)

    def context(self) -> ToolContext:
        self.calls += 1
        return ToolContext(
            delegation_id="dlg_01k00000000000000000000000",
            call_id=f"call-{self.calls}",
            files=self.files,
            sandbox=self.sandbox,
            subagents=self.subagents,
            on_metadata=lambda title, fields: self.news.append((title, dict(fields))),
        )

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        return await self.call_with(name, arguments)

    async def call_with(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """What the model would get for a call."""
        context = self.context()
        tool = find_tool(EVERYTHING, name)
        try:
            result = await tool.run(context, tool.parse(arguments))
        except ToolError as error:
            result = ToolResult.failed(error)
        return await bounded(result, tool, context)

    async def refusal(self, type: ErrorType, name: str, /, **arguments: Any) -> str:
        """The error of a call that has to be refused with this type."""
        result = await self.call_with(name, arguments)
        assert result.error_type is type, result.for_model
        return result.error or ""

    async def start_shell(self, bash_id: str, command: str) -> BackgroundShell:
        """A background shell of a known id."""
        assert isinstance(self.sandbox, Bubblewrap)
        unread = OutputBuffer()
        argv = ["bash", "--noprofile", "--norc", "-c", command]
        process = await self.sandbox.start(Command(argv, 60, merged=True), unread.add, unread.add)
        shell = BackgroundShell(bash_id, command, process, unread=unread)
        self.sandbox.shells.add(shell)
        self.sandbox.shells.start_monitor(bash_id)
        return shell

    def write(self, path: str, content: str | bytes = "", *, age: float | None = None) -> None:
        """Puts a file there; ``age`` is how many seconds ago it was changed."""
        self.files.write(path, content if isinstance(content, bytes) else content.encode())
        if age is not None:
            at = 1_700_000_000 - age
            os.utime(self.root / path, (at, at))

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()


@contextmanager
def open_toolbench(root: Path, *, sandbox: Sandbox | None = None) -> Iterator[Toolbench]:
    """A toolbench over ``root``; without a sandbox, one in which commands cannot run."""
    root.mkdir(exist_ok=True)
    if ids := owner():
        os.chown(root, *ids)
    with Files(root, owner=owner()) as files:
        yield Toolbench(root, files, sandbox or NoSandbox("this test has no sandbox"))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Toolbench]:
    """A toolbench whose sandbox works; skips at home and fails in CI where it does not."""
    if reason := await Bubblewrap.selftest():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no sandbox here: {reason}")
    (tmp_path / "workspace").mkdir()
    if ids := owner():
        os.chown(tmp_path / "workspace", *ids)
    with (
        Bubblewrap(tmp_path / "workspace") as sandbox,
        open_toolbench(tmp_path / "workspace", sandbox=sandbox) as desk,
    ):
        yield desk
        await sandbox.shells.end()


@pytest.fixture
def bare_desk(tmp_path: Path) -> Iterator[Toolbench]:
    """A toolbench on a machine where commands cannot run safely."""
    with open_toolbench(tmp_path / "bare") as desk:
        yield desk
