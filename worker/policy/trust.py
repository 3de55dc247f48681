"""The sources that a run's conversation has read: noted call by call, and kept for later attempts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...shared.delegation import ToolAgentResult
from ...shared.facts import Trust
from ...shared.markup import HarmlessText, harmless
from ..tools.base import AnyTool, Kind, ToolResult

PARENT, WORKSPACE, WEB = "parent", "workspace", "web"
TAINTING = (WEB, "mcp", "subagent")
"""What precedes the colon, if any, in the names of the sources that may taint."""


@dataclass(slots=True)
class ReadSources:
    """What one run's conversation has read so far.

    ``store`` is called with every change. With ``commands_reach_hosts`` the output of each command may come
    from the web.
    """

    store: Callable[[Trust], None]
    trust: Trust = field(default_factory=Trust)
    commands_reach_hosts: bool = False
    tags: Collection[str] = ()
    """Names of elements that are calls where the model writes them, besides those that always are."""

    def begin(self, inherited: Trust) -> None:
        """Notes the task, and what those had read who wrote it or the conversation that it continues."""
        self.add(Trust(sources=[PARENT]).plus(inherited))

    def note(self, tool: AnyTool, params: Any, result: ToolResult) -> None:
        """Notes what the result of a call lets the conversation read. Failures count: their errors are texts, too."""
        for read in self._read(tool, params, result):
            self.add(read)

    def harmless(self, result: ToolResult) -> ToolResult:
        """Returns the result without imitations of control markup in what the model reads; they are counted."""
        content, error = harmless(result.content, self.tags), harmless(result.error or "", self.tags)
        places = content.places + error.places
        if not places:
            return result
        self.add(Trust(neutralized=places))
        text = HarmlessText(content.text, places).noted
        return replace(result, content=text, error=None if result.error is None else error.text)

    def _read(self, tool: AnyTool, params: Any, result: ToolResult) -> Iterator[Trust]:
        if isinstance(child := result.data, ToolAgentResult):
            yield child.trust.read_from(child.delegation_id)
        elif tool.origin.server:
            source = [f"mcp:{tool.origin.server}"]
            yield Trust(sources=source, tainted_by=[] if tool.trusted else source)
        elif tool.kind is Kind.FETCH or tool.touches(params).hosts:
            yield Trust(sources=[WEB], tainted_by=[WEB])
        elif tool.kind is not Kind.THINK:
            yield Trust(sources=[WORKSPACE])
            if self.commands_reach_hosts and tool.availability.needs_sandbox:
                yield Trust(sources=[WEB], tainted_by=[WEB])

    def add(self, read: Trust) -> None:
        """Notes a source beside those of calls."""
        trust = self.trust.plus(read)
        if trust != self.trust:
            self.trust = trust
            self.store(trust)
