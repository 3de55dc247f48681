"""The model protocol: a prompt in, a stream of deltas and one final reply out."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...shared.delegation import Usage

_DATE = re.compile(r"(?<=.)-\d{8}\Z")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
NO_WORDS = "(no words)"
"""Stands for an empty reply, because endpoints reject empty messages."""
MAX_NAME = 128
MAX_ID = 60
"""Characters of a call's name and id that every endpoint accepts, a number behind the id included."""


@dataclass(frozen=True, slots=True, eq=False)
class ToolSpec:
    """A tool as it is described to the model, with the JSON Schema of its arguments. As a key, equal only to itself."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to the model.

    ``messages`` are JSON objects of the Messages API, each encoded once, when it was appended to the history.
    ``system`` and ``tools`` never change within a run: provider signatures cover the exact prefix. ``allow_tools``
    false requests a reply without tool calls, ``only_tool`` one that calls that tool, as far as the endpoint can; both
    leave the prefix unchanged.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    messages: Sequence[bytes]
    max_output_tokens: int
    allow_tools: bool = True
    previous_reply: str | None = None
    """The endpoint's id of the reply before, with whose prompt the endpoint compares this one."""
    shared_end: int = 0
    """Where the block of the first message ends that other delegations may send as well: the offset of its brace."""
    sent: int = 0
    """How many of the messages the request before had; its end is in the prompt cache."""
    cached_for_an_hour: bool = False
    """Whether cache entries are kept for an hour instead of five minutes."""
    only_shared_for_an_hour: bool = False
    """Whether that holds for the entries alone that other delegations may read as well."""
    only_tool: str | None = None
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of a prompt that other delegations may send as well.

    ``key`` identifies its bytes, model, endpoint and account. ``tokens`` is an estimate.
    """

    key: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a reply. With a ``problem``, its arguments could not be parsed and it is not executed."""

    id: str
    """The endpoint's id, used only in the tool result that is sent back."""
    name: str
    arguments: dict[str, Any]
    problem: str | None = None
    key: str = ""
    """This project's id, for files, ledger, steps and events: unique in the run and the same in every attempt."""


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    text: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The endpoint has accepted the prompt: ``usage`` is billed from now on, even if the reply is never completed."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed and is sent again when the next part is requested: the reader waits ``delay`` seconds first.

    The deltas of this turn so far are void. ``wasted`` is the usage of the failed try, as far as it is known.
    """

    error: str
    delay: float
    wasted: Usage = Usage()
    retry_after: float | None = None
    """The seconds that the endpoint asks to wait, if it does; ``delay`` takes them into account."""
    most: float | None = None
    """Seconds after which the reader should not wait any longer; None: as long as it likes."""
    refused: bool = False  # the endpoint works, but takes no more requests now

    async def wait(self) -> None:
        """Waits for the delay."""
        await asyncio.sleep(self.delay)


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. ``content`` is the assistant message's content, verbatim, as it must be sent back."""

    content: list[dict[str, Any]]
    stop_reason: str
    usage: Usage
    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    id: str = ""
    """The endpoint's id of the message, or "" where it has none."""
    cache_miss: str | None = None
    """Why the prompt cache was not read as far as the previous prompt goes, as the endpoint names it."""
    refusal: str = ""
    """The category and the explanation of a refusal, as far as the endpoint states them."""
    estimated: bool = False
    """Whether the endpoint left out token counts, so that ``usage`` is an estimate."""
    refused_thinking: bool = False
    """Whether the endpoint refused the prompt until the thinking was left out of its messages."""

    def with_call_keys(self, turn: int, retries: int = 0) -> Reply:
        """Returns a copy, as the reply of that turn, whose calls have keys."""
        return replace(self, calls=with_call_keys(self.calls, turn, retries))

    @property
    def is_empty(self) -> bool:
        """Whether the reply has neither a call nor text: it is empty, blank, or thinking only."""
        kinds = {block.get("type") for block in self.content}
        return not self.calls and not self.text.strip() and kinds <= {"text", "thinking", "redacted_thinking"}

    def sendable(self, used: Set[str]) -> Reply:
        """Returns the reply in the form that endpoints accept, because they reject every later request otherwise.

        Calls have valid names in ``content`` (not in ``calls``) and ids of their own, not in ``used``; no text is
        blank, and an empty reply has a placeholder text.
        """
        if self.is_empty:
            return replace(self, content=[{"type": "text", "text": NO_WORDS}])
        ids, taken, tried, content = list[str](), set(used), Counter[str](), list[dict[str, Any]]()
        for block in self.content:
            if block.get("type") == "tool_use":
                ids.append(_unique_id(str(block.get("id") or ""), taken, tried))
                name = _NOT_IN_NAMES.sub("_", str(block["name"]))[:MAX_NAME] or "no_name"
                content.append(block | {"id": ids[-1], "name": name})
            elif block.get("type") != "text" or block["text"].strip():
                content.append(block)
        calls = [replace(call, id=id) for call, id in zip(self.calls, ids, strict=False)]
        return replace(self, content=content, calls=calls)

    def without_calls(self, tool: str | None = None) -> Reply:
        """Returns a copy without tool calls, but for those of one tool: no other is executed in the final turn."""
        content = [block for block in self.content if block.get("type") != "tool_use" or block["name"] == tool]
        return replace(self, content=content, calls=[call for call in self.calls if call.name == tool])


def with_call_keys(calls: Sequence[Call], turn: int, retries: int = 0) -> list[Call]:
    """Returns copies of one turn's calls, with keys numbered in order from 1; another try has other keys."""
    prefix = f"call_r{retries}_{turn}" if retries else f"call_{turn}"
    return [replace(call, key=f"{prefix}_{number}") for number, call in enumerate(calls, 1)]


def _unique_id(id: str, taken: set[str], tried: Counter[str]) -> str:
    """Returns a valid id that is not taken, because endpoints may send empty, duplicate and other odd ones.

    ``tried`` counts the candidates of each id, so that many equal ones do not try the same ones again.
    """
    id = _NOT_IN_NAMES.sub("_", id)[:MAX_ID]
    while True:
        tried[id] += 1
        unique = id if tried[id] == 1 and id else f"{id or 'call'}-{tried[id]}"
        if unique not in taken:
            taken.add(unique)
            return unique


Part = ReplyStarted | TextPart | ThinkingPart | Retrying | Reply


class Model(Protocol):
    """One model of one endpoint. Shared by all runs of a worker process, so it keeps no state of a run."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint_id(self) -> str | None:
        """Identifies endpoint, credentials and model without naming them; None where there is no endpoint."""
        ...

    def price(self) -> Price | None:
        """Returns the price of its tokens, or None where it is unknown: the cost is then null, not 0."""
        ...

    def window(self) -> int:
        """Returns the context window in tokens, replies included; a low estimate where it is unknown."""
        ...

    def reply(self, prompt: Prompt) -> AsyncGenerator[Part]:
        """Yields ReplyStarted, deltas in order and, last, exactly one Reply. Temporary failures are retried inside.

        Raises ModelUnavailable where retrying does not help, and ContextFull where the conversation exceeds the
        context window. Cancellation closes the stream immediately.
        """
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. ``above`` applies to the whole request if its prompt exceeds ``band`` tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    """What the cache keeps for 5 minutes."""
    band: int | None = None
    above: Price | None = None
    write_1h: float | None = None
    """What it keeps for an hour; None: twice the input."""

    @property
    def cache_write_1h(self) -> float:
        return 2 * self.input if self.write_1h is None else self.write_1h

    def rates(self, prompt_tokens: int) -> Price:
        """Returns the price of a request with so many prompt tokens, without bands."""
        return self.above if self.above and self.band is not None and prompt_tokens > self.band else self

    def highest_prompt_cost(self, prompt_tokens: int, *, hour_writes: bool = False) -> float:
        """Returns what a prompt costs at most, in US dollars; ``hour_writes``: it may be cached for an hour."""
        rates = self.rates(prompt_tokens)
        dearest = max(rates.input, rates.cache_write, rates.cache_write_1h if hour_writes else 0)
        return prompt_tokens * dearest / 1_000_000

    def cost(self, usage: Usage) -> float:
        """Returns the cost of one request, in US dollars."""
        rates = self._rates_of(usage)
        return (
            usage.input_tokens * rates.input
            + usage.output_tokens * rates.output
            + usage.cache_read_tokens * rates.cache_read
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * rates.cache_write
            + usage.cache_write_1h_tokens * rates.cache_write_1h
        ) / 1_000_000

    def cache_saved(self, usage: Usage) -> float:
        """Returns how much more the request would have cost without caching, in US dollars."""
        rates = self._rates_of(usage)
        return (
            usage.cache_read_tokens * (rates.input - rates.cache_read)
            - (usage.cache_write_tokens - usage.cache_write_1h_tokens) * (rates.cache_write - rates.input)
            - usage.cache_write_1h_tokens * (rates.cache_write_1h - rates.input)
        ) / 1_000_000

    def _rates_of(self, usage: Usage) -> Price:
        return self.rates(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)


def undated(model: str) -> str:
    """Returns the name of a model without its date."""
    return _DATE.sub("", model)


def priced(usage: Usage, price: Price | None) -> Usage:
    """Returns the usage of one request with its cost and what caching saved, both None where there is no price."""
    cost, saved = (price.cost(usage), price.cache_saved(usage)) if price else (None, None)
    return usage.model_copy(update={"cost_usd": cost, "cache_saved_usd": saved})
