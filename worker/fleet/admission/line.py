"""The calls of one process that wait for their turn at an endpoint, by owner."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

NOT_FAILED = -1


@dataclass(frozen=True, slots=True)
class Order:
    """What decides when a waiting request is next. Owners take turns, whatever number of requests each has."""

    owner: str = ""
    priority: int = 5
    """Which of the owner's requests is first: the highest."""


@dataclass(slots=True, eq=False)
class PacedCall:
    """One model call on its way to the endpoint."""

    order: Order
    token: str = ""
    """Identifies the call among those that are refused; "" before its first refusal."""
    successes: int = NOT_FAILED
    """How many requests had been served when this call began to fail."""
    is_granted: bool = False
    """Whether Redis granted its request."""
    sent: float = 0.0
    turn: asyncio.Future[None] | None = None
    """Done when its request may be sent."""


@dataclass(slots=True)
class _OwnCalls:
    """The waiting calls of one owner, by priority."""

    count: int = 0
    by_priority: dict[int, OrderedDict[PacedCall, None]] = field(
        default_factory=dict[int, "OrderedDict[PacedCall, None]"]
    )


@dataclass(slots=True)
class Line:
    """The calls that wait. Of one owner's the highest priority is first, of equals the one that came first.

    No operation takes longer where more calls wait: at a slow endpoint that is most of the calls of a process.
    """

    count: int = 0
    _owners: OrderedDict[str, _OwnCalls] = field(default_factory=OrderedDict[str, _OwnCalls])

    def __bool__(self) -> bool:
        return bool(self._owners)

    def add(self, call: PacedCall) -> asyncio.Future[None]:
        """Returns the future of its turn."""
        own = self._owners.setdefault(call.order.owner, _OwnCalls())
        own.count += 1
        self.count += 1
        own.by_priority.setdefault(call.order.priority, OrderedDict())[call] = None
        call.turn = asyncio.get_running_loop().create_future()
        return call.turn

    def remove(self, call: PacedCall) -> None:
        """Removes a call that waits no more; nothing where its turn has come."""
        owner, priority = call.order.owner, call.order.priority
        own = self._owners.get(owner)
        if own is None or call not in own.by_priority.get(priority, ()):
            return
        del own.by_priority[priority][call]
        own.count -= 1
        self.count -= 1
        if not own.by_priority[priority]:
            del own.by_priority[priority]
        if not own.count:
            del self._owners[owner]

    def take(self, owner: str) -> PacedCall | None:
        """Removes and returns the owner's next call; None where none waits that is not being cancelled."""
        while own := self._owners.get(owner):
            call = next(iter(own.by_priority[max(own.by_priority)]))
            self.remove(call)
            if call.turn and not call.turn.done():
                return call
        return None

    def take_any(self) -> PacedCall | None:
        """Removes and returns the next call; owners take turns."""
        while self._owners:
            owner = next(iter(self._owners))
            self._owners.move_to_end(owner)
            if call := self.take(owner):
                return call
        return None

    def demand(self) -> dict[str, tuple[int, int]]:
        """Returns by owner how many of its calls wait, and the highest of their priorities."""
        return {owner: (own.count, max(own.by_priority)) for owner, own in self._owners.items()}
