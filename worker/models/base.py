"""What a model is: it takes a prompt and gives deltas while it thinks, then one Reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from shared.delegation import TerminationReason, Usage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything the model is asked with.

    ``messages`` are JSON objects of the Messages API, each encoded once, when it joined the history. ``system`` and
    ``tools`` never change within a run: provider signatures bind to the exact prefix. ``allow_tools`` false asks for
    words only, without touching the prefix. ``key`` names the conversation for caches and scripts.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    messages: Sequence[bytes]
    max_output_tokens: int
    allow_tools: bool = True
    key: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a reply. ``problem`` says why the arguments could not be read; such a call is not executed."""

    id: str
    """What the endpoint calls it: for the answer that is sent back, and for nothing else."""
    name: str
    arguments: dict[str, Any]
    problem: str | None = None
    key: str = ""
    """What this project calls it, in files, ledger, steps and events: unique in its run, the same in every attempt."""


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    text: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The endpoint has taken the prompt: ``usage`` is owed from now on, whatever becomes of the reply."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Retrying:
    """The call failed in a passing way and is made again after ``delay`` seconds; deltas of this turn are void.

    ``wasted`` is what the failed try cost, as far as it is known.
    """

    error: str
    delay: float
    wasted: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished turn. ``content`` is the assistant message's content, verbatim, to be sent back as it came."""

    content: list[dict[str, Any]]
    stop_reason: str
    usage: Usage
    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def ending(self) -> TerminationReason:
        """Why a run ends with this reply, when it does."""
        odd = {"refusal": TerminationReason.REFUSED, "model_context_window_exceeded": TerminationReason.ERROR}
        return odd.get(self.stop_reason, TerminationReason.COMPLETED)

    def keyed(self, turn: int) -> Reply:
        """This reply, of that turn, with keys for its calls."""
        return replace(self, calls=keyed(self.calls, turn))

    @property
    def says_nothing(self) -> bool:
        """No call and no word: empty, blank, or thought and left unsaid."""
        kinds = {block.get("type") for block in self.content}
        return not self.calls and not self.text.strip() and kinds <= {"text", "thinking", "redacted_thinking"}

    def spoken(self) -> Reply:
        """This reply as it can be sent back: endpoints refuse an assistant's message without a word."""
        return replace(self, content=[{"type": "text", "text": "(no words)"}]) if self.says_nothing else self

    def without_calls(self) -> Reply:
        """This reply with its words alone: for the last turn, in which nothing is executed any more."""
        words = [block for block in self.content if block.get("type") != "tool_use"]
        return replace(self, content=words, calls=[])


def keyed(calls: Sequence[Call], turn: int) -> list[Call]:
    """The calls of one turn, in the order of asking, with their keys."""
    return [replace(call, key=f"call_{turn}_{number}") for number, call in enumerate(calls, 1)]


Part = ReplyStarted | TextPart | ThinkingPart | Retrying | Reply


class Model(Protocol):
    """One model behind one endpoint. Shared by all runs of a worker process; keeps nothing of any of them."""

    @property
    def name(self) -> str: ...

    def price(self) -> Price | None:
        """What its tokens cost, or None where that is not known: then cost is null, never 0."""
        ...

    def window(self) -> int:
        """How many tokens a conversation can have, replies included; a low guess where it is not known."""
        ...

    def reply(self, prompt: Prompt) -> AsyncGenerator[Part]:
        """Begun, deltas in order, then exactly one Reply, last. Retries of passing failures happen inside.

        Raises ``ModelUnavailable`` when trying again is of no use, and ``ContextFull`` when the conversation is longer
        than the window. Cancelling closes the stream at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens, with the higher rates that hold for the whole request above ``band`` tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    band: int | None = None
    above: Price | None = None

    def cost(self, usage: Usage) -> float:
        """The cost of one call, in US dollars."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        rate = self.above if self.above and self.band is not None and prompt > self.band else self
        return (
            usage.input_tokens * rate.input
            + usage.output_tokens * rate.output
            + usage.cache_read_tokens * rate.cache_read
            + usage.cache_write_tokens * rate.cache_write
        ) / 1_000_000
