"""What further executions of a check are made of, and how several run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...shared.facts import Ground
from .grounds.ground import Candidate, Grounds
from .runners.execution import CommandRunner, Observed

T = TypeVar("T")
EXECUTIONS = 10
"""What all checks of a round may take, in times of what one execution may."""


async def beside(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Does these at the same time and returns what each returns. When it ends, none of them goes on."""
    doing = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*doing)
    finally:
        for each in doing:
            each.cancel()
        await asyncio.wait(doing)


def has_time(spent: Iterable[float], seconds: float) -> bool:
    """Whether executions have spent less than half of what all checks of a round may take.

    Args:
        spent: The seconds of each execution, as if none ran beside another.
        seconds: What one execution may take.
    """
    return sum(spent) < seconds * EXECUTIONS / 2


class OneCheck(Protocol):
    """What is needed of the check."""

    @property
    def grounds(self) -> Grounds: ...

    @property
    def candidate(self) -> Candidate: ...

    @property
    def runner(self) -> CommandRunner: ...

    @property
    def roots(self) -> Sequence[str]: ...

    @property
    def used(self) -> Path | None: ...

    @property
    def report(self) -> Callable[[Ground, Observed], None]: ...
