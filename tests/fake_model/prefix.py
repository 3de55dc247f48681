"""A request as the cache sees it: blocks in the order tools, system, messages, and the breakpoints among them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

Part = Literal["tools", "system", "messages"]


@dataclass(frozen=True)
class Block:
    """One position: a tool, a block of the system prompt, or a block of a message.

    What lies inside a block (the content of a tool_result) is a part of it.
    """

    part: Part
    path: str
    role: str
    sent: Mapping[str, Any]

    @property
    def control(self) -> Any:
        return self.sent.get("cache_control")

    @property
    def bare(self) -> dict[str, Any]:
        """The block without its ``cache_control``, which is not part of any hash."""
        return {key: self.sent[key] for key in sorted(self.sent) if key != "cache_control"}

    @cached_property
    def canonical(self) -> str:
        """Its JSON. Below its own keys their order counts: the endpoint renders a tool's input as it was sent."""
        return json.dumps(self.bare, ensure_ascii=False, separators=(",", ":"))

    @property
    def tokens(self) -> int:
        return len(self.canonical) // 4

    @property
    def is_thought(self) -> bool:
        return self.sent.get("type") in ("thinking", "redacted_thinking")

    @property
    def is_empty(self) -> bool:
        return self.sent.get("type") == "text" and not self.sent.get("text")


def blocks(body: Mapping[str, Any]) -> list[Block]:
    """All blocks of a request; a string is one text block."""
    found = [Block("tools", f"tools.{at}", "", tool) for at, tool in enumerate(body.get("tools") or [])]
    found += _contents("system", "system", "", body.get("system"))
    for number, message in enumerate(body["messages"]):
        found += _contents("messages", f"messages.{number}.content", message["role"], message["content"])
    return found


def _contents(part: Part, path: str, role: str, content: Any) -> Iterator[Block]:
    if isinstance(content, str):
        yield Block(part, path, role, {"type": "text", "text": content})
        return
    for at, sent in enumerate(content or []):
        yield Block(part, f"{path}.{at}", role, sent)


def last_cacheable(listed: list[Block]) -> int | None:
    """Where the top-level ``cache_control`` puts its breakpoint."""
    fit = [at for at, block in enumerate(listed) if not block.is_thought and not block.is_empty]
    return fit[-1] if fit else None


def breakpoints(body: Mapping[str, Any], listed: list[Block]) -> dict[int, str]:
    """The time to live of each breakpoint, by its position."""
    found = {at: time_to_live(block.control) for at, block in enumerate(listed) if block.control}
    automatic, last = body.get("cache_control"), last_cacheable(listed)
    if automatic and last is not None:
        found.setdefault(last, time_to_live(automatic))
    return dict(sorted(found.items()))


def time_to_live(control: Mapping[str, Any]) -> str:
    return control.get("ttl") or "5m"
