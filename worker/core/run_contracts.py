"""What the turns of a run need of the packages around them: permission, messages, waits and money.

``attempts`` hands in the objects: ``permission``, ``fleet`` and ``spending`` have the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from ...shared.delegation import Step, Usage
from ...shared.message import Message
from ...shared.runs.permission_fields import KeptRequest
from ..models.base import Call, Prefix, Price, Retrying
from ..tools.base import AnyTool
from ..tools.context import ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class Accepted:
    """A call whose arguments its tool has accepted as ``params``."""

    call: Call
    tool: AnyTool
    params: Any


@dataclass(frozen=True, slots=True)
class Permitted:
    """A call that may be executed."""

    tool: AnyTool
    params: Any
    reads: tuple[str, ...] = ()
    """The programs of a command line that only reads."""
    note: str = ""
    """What the model has to know about the call besides its result."""

    @property
    def title(self) -> str:
        return self.tool.title(self.params)


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a person is asked about: its step has started, and its request is published."""

    permitted: Permitted
    """The call as it is executed if the person allows it."""
    step: Step
    kept: KeptRequest


Judged = Permitted | Asked | ToolResult
"""What becomes of a call: it may be executed, or a person is asked, or this is its result without being executed."""


class Approval(Protocol):
    """Judges the calls of one run, and asks about those that need a person's permission."""

    async def judge(self, calls: Sequence[Accepted], context: ToolContext) -> Mapping[str, Judged]:
        """Returns what becomes of each call of a turn, by its key. Publishes the turn's permission requests."""
        ...

    async def answered(
        self, asked: Asked, context: ToolContext, waiting: Callable[[], AbstractContextManager[None]]
    ) -> Permitted | ToolResult:
        """Waits for the answer; returns the call as it may be executed, or the result of one that may not.

        ``waiting`` is entered while it waits.
        """
        ...

    async def close(self) -> None:
        """Accepts no more answers to what is still asked."""
        ...


class Inbox(Protocol):
    """The messages that the caller sends to one run."""

    @property
    def unread(self) -> Sequence[Message]: ...

    def notify(self) -> None:
        """Notices that a message was sent."""
        ...

    def note(self, stored: int) -> None:
        """Notices how many messages there are."""
        ...

    def close(self) -> None:
        """Fetches nothing more."""
        ...

    async def settled(self) -> None:
        """Returns when every message that was noticed is known."""
        ...

    def read(self, ask: Callable[..., None], turn: int) -> None:
        """Adds the unread messages to the conversation by ``ask``; ``turn`` is the next one."""
        ...

    def repeated(self) -> str:
        """Returns the last messages that were read, for a conversation that begins anew."""
        ...

    def ends_work(self, waits: Callable[[], bool], check: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Cancels the block some seconds after a request to wrap up, and raises what ``check`` raises."""
        ...


class EndpointWait(Protocol):
    """Waits before model calls, as long as their endpoint has an outage."""

    @property
    def error(self) -> str:
        """The last failure, until a reply begins."""
        ...

    def call(self, endpoint: str | None, keep: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Admits one model call to its endpoint when the block is entered; ``keep`` stores the time that is used."""
        ...

    async def retry(self, turn: int, failed: Retrying, *, begun: bool) -> None:
        """Waits before the next try. ``begun``: the failed one had got the beginning of a reply."""
        ...

    async def may_pass(self, error: Exception) -> None: ...  # returns when the call may be tried again, or raises it

    def works(self) -> None:
        """Notes that the endpoint has begun to reply."""
        ...


class PrefixWait(Protocol):
    """Waits until another run has written the prefix of a prompt into the endpoint's cache."""

    def request(
        self, endpoint: str | None, find: Callable[[], Sequence[Prefix]], price: Price | None, *, hour: bool
    ) -> AbstractAsyncContextManager[None]:
        """Enters the block when the request may be sent. ``find`` returns its prefixes, the shortest first."""
        ...

    def sends(self) -> None: ...

    def works(self, usage: Usage) -> None:
        """Notes that the endpoint has begun to reply."""
        ...

    def failed(self) -> None: ...


class Repetition(Protocol):
    """Watches one run for turns that repeat each other."""

    def watch(self, calls: Sequence[Call], results: Sequence[ToolResult]) -> str:
        """Records a turn. Returns a hint for the model, or ""."""
        ...

    def check(self) -> None:
        """Raises ``LimitReached`` where the model has ignored the hint."""
        ...


class Spending(Protocol):
    """The money that one run reserves for its model calls."""

    under_way: bool
    """Whether a request was sent whose outcome is not known yet."""

    @property
    def is_capped(self) -> bool: ...

    def reserved(self, prompt_tokens: int, wanted: int) -> AbstractAsyncContextManager[int]:
        """Enters with how many output tokens the call in the block may have; then books what it cost.

        Raises ``LimitReached(BUDGET)``, ``CapReached`` and ``Fenced``.
        """
        ...

    async def room(self) -> None:
        """Waits until the cap that was reached has room again."""
        ...
