"""The prompt cache of the provider, as documented in October 2026: what a request reads, writes and is billed for.

It sees a request as blocks in the order tools, system, messages, and the breakpoints among them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

LOOK_BACK = 20
"""Positions that are looked at from a breakpoint, its own included."""
SECONDS = {"5m": 300.0, "1h": 3600.0}
MINIMUMS = {"claude-opus-5": 512, "claude-fable-5": 512, "claude-sonnet-5": 1024, "claude-haiku-4-5": 4096}
"""The shortest prefix that is cached, in tokens, by the beginning of a model's name."""
OTHER_MINIMUM = 1024

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


Key = tuple[str, str, str]
"""Workspace, model, and the hash of the exact prefix."""


@dataclass(frozen=True)
class Position:
    """A block with all before it: their hash and their tokens."""

    part: Part
    digest: str
    tokens: int


@dataclass(frozen=True)
class Fingerprint:
    """What is kept of a request, to compare a later one with it."""

    model: str
    settings: str
    positions: list[Position]

    def part(self, part: Part) -> list[Position]:
        return [position for position in self.positions if position.part == part]


@dataclass(frozen=True)
class Bill:
    """What one request is billed for, and what becomes readable with the first event of its reply.

    ``answer`` are the fields that the cache adds to the reply's message.
    """

    usage: Mapping[str, Any]
    answer: Mapping[str, Any]
    writes: Mapping[Key, str]
    workspace: str
    fingerprint: Fingerprint | None


@dataclass
class Entry:
    ttl: str
    expires: float


class PromptCache:
    """``bill = cache.look_up(key, body)``, and ``cache.begin(bill, id)`` when the first event of the reply is sent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Key, Entry] = {}
        self._fingerprints: dict[tuple[str, str], Fingerprint] = {}

    def look_up(self, workspace: str, body: Mapping[str, Any]) -> Bill:
        """Reads the longest match of a valid request, and refreshes every entry that a breakpoint matches."""
        listed = blocks(body)
        positions = _positions(body, listed)
        keys = [(workspace, body["model"], position.digest) for position in positions]
        least = minimum(body["model"])
        marks = {at: ttl for at, ttl in breakpoints(body, listed).items() if positions[at].tokens >= least}
        matches = [match for at in marks if (match := self._match(keys, at)) is not None]
        for match in matches:
            entry = self._entries[keys[match]]
            entry.expires = self._clock() + SECONDS[entry.ttl]
        read = max(matches, default=None)
        fingerprint = Fingerprint(body["model"], _settings(body), positions)
        return Bill(
            usage=_usage(positions, marks, read),
            answer=self._answer(workspace, body, fingerprint),
            writes={keys[at]: ttl for at, ttl in marks.items() if read is None or at > read},
            workspace=workspace,
            fingerprint=fingerprint if body.get("diagnostics") is not None else None,
        )

    def begin(self, bill: Bill, reply: str) -> None:
        """The first event of this reply is sent: from now on its request's entries can be read."""
        for key, ttl in bill.writes.items():
            # Of two requests that wrote the same prefix at once, the longer time to live counts.
            other = self._entries[key].ttl if self._is_alive(key) else ttl
            longer = max(ttl, other, key=SECONDS.__getitem__)
            self._entries[key] = Entry(longer, self._clock() + SECONDS[longer])
        if bill.fingerprint:
            self._fingerprints[bill.workspace, reply] = bill.fingerprint

    def _match(self, keys: list[Key], at: int) -> int | None:
        looked_at = range(at, max(at - LOOK_BACK, -1), -1)
        return next((position for position in looked_at if self._is_alive(keys[position])), None)

    def _is_alive(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and self._clock() < entry.expires

    def _answer(self, workspace: str, body: Mapping[str, Any], now: Fingerprint) -> dict[str, Any]:
        if body.get("diagnostics") is None:
            return {}
        previous = body["diagnostics"].get("previous_message_id")
        if previous is None:
            return {"diagnostics": None}
        earlier = self._fingerprints.get((workspace, previous))
        reason = miss(earlier, now) if earlier else {"type": "previous_message_not_found"}
        return {"diagnostics": {"cache_miss_reason": reason} if reason else None}


def minimum(model: str) -> int:
    return next((least for name, least in MINIMUMS.items() if model.startswith(name)), OTHER_MINIMUM)


def _positions(body: Mapping[str, Any], listed: list[Block]) -> list[Position]:
    """Every prefix of a request: a chain of hashes, and a running sum of tokens."""
    found: list[Position] = []
    settings = _settings(body)
    digest, tokens = "", 0
    for block in listed:
        # Another tool_choice invalidates the messages, but neither the tools nor the system prompt.
        links = [digest, block.part, block.role, settings if block.part == "messages" else "", block.canonical]
        digest = hashlib.sha256("\0".join(links).encode("utf-8", "surrogatepass")).hexdigest()
        tokens += block.tokens
        found.append(Position(block.part, digest, tokens))
    return found


def miss(earlier: Fingerprint, now: Fingerprint) -> dict[str, Any] | None:
    """Where two requests diverge first, hit or not; None if the earlier one is a prefix of this one."""
    whole = earlier.positions[-1].tokens
    missed = whole - _common(earlier, now)
    if earlier.model != now.model:
        return {"type": "model_changed", "cache_missed_input_tokens": whole}
    if earlier.part("tools") != now.part("tools"):
        return {"type": "tools_changed", "cache_missed_input_tokens": missed}
    if earlier.part("system") != now.part("system"):
        return {"type": "system_changed", "cache_missed_input_tokens": missed}
    if earlier.settings != now.settings:
        return {"type": "unavailable"}
    if earlier.positions != now.positions[: len(earlier.positions)]:
        return {"type": "messages_changed", "cache_missed_input_tokens": missed}
    return None


def _common(earlier: Fingerprint, now: Fingerprint) -> int:
    pairs = zip(earlier.positions, now.positions, strict=False)
    return max((before.tokens for before, after in pairs if before == after), default=0)


def _settings(body: Mapping[str, Any]) -> str:
    return json.dumps([body.get("tool_choice"), body.get("thinking")])


def _usage(positions: list[Position], marks: Mapping[int, str], read: int | None) -> dict[str, Any]:
    written = dict.fromkeys(SECONDS, 0)
    cached = read_tokens = 0 if read is None else positions[read].tokens
    for at, ttl in marks.items():
        if positions[at].tokens > cached:
            written[ttl] += positions[at].tokens - cached
            cached = positions[at].tokens
    return {
        "input_tokens": positions[-1].tokens - cached,
        "cache_read_input_tokens": read_tokens,
        "cache_creation_input_tokens": sum(written.values()),
        "cache_creation": {f"ephemeral_{ttl}_input_tokens": tokens for ttl, tokens in written.items()},
    }
