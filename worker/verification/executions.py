"""What further executions of a check are made of, and how several run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...shared.facts import Ground
from .commands import CommandRunner, Observed
from .ground import Candidate, Grounds

T = TypeVar("T")


async def beside(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Does these at the same time and returns what each returns. When it ends, none of them goes on."""
    doing = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*doing)
    finally:
        for each in doing:
            each.cancel()
        await asyncio.wait(doing)


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
