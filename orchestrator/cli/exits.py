"""Exit codes: the one table."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from shared.errors import DeputizeError, Refused, Unauthorized

if TYPE_CHECKING:
    from shared.delegation import ToolAgentResult


class Exit(IntEnum):
    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    """The service cannot be reached, or the configuration is wrong."""
    CANCELLED = 4
    LIMIT = 5
    """A limit or budget ended it; the result is partial."""
    WAITED = 124
    """The wait ran out; the delegation goes on."""
    INTERRUPTED = 130


def of_result(result: ToolAgentResult) -> Exit:
    if result.success:
        return Exit.SUCCEEDED
    if result.status == "cancelled":
        return Exit.CANCELLED
    return Exit.LIMIT if result.termination_reason.is_limit else Exit.FAILED


def of_results(results: Iterable[ToolAgentResult]) -> Exit:
    """What all that did not succeed have in common; where they differ, that something failed."""
    codes = {of_result(result) for result in results} - {Exit.SUCCEEDED}
    if len(codes) > 1:
        return Exit.FAILED
    return codes.pop() if codes else Exit.SUCCEEDED


def of_error(error: DeputizeError) -> Exit:
    if isinstance(error, Refused) and not isinstance(error, Unauthorized):
        return Exit.USAGE
    return Exit.UNREACHABLE
