"""The order in which results are worth a review: by verdict and warnings, then by size."""

from __future__ import annotations

from collections.abc import Iterable

from ..shared.delegation import Delegation, Status, ToolAgentResult
from ..shared.facts import VERDICTS
from ..shared.text import count

REVIEWED = (Status.SUCCEEDED, Status.FAILED)
MOST = 500
"""How many of each status are looked at, the newest ones."""


def in_order_of_review(found: Iterable[Delegation]) -> list[tuple[Delegation, str]]:
    """Returns those that ended with changed files, not by being cancelled, and the reason of the place of each."""
    newest_first = sorted(found, key=lambda each: each.id, reverse=True)
    ended = [(each, each.result) for each in newest_first if each.result and each.result.mark != "cancelled"]
    changed = [(each, result) for each, result in ended if result.file_changes or result.truncated]
    return [(each, _reason(result)) for each, result in sorted(changed, key=lambda pair: _key(pair[1]))]


def _key(result: ToolAgentResult) -> tuple[int, int]:
    """Returns what results are sorted by: the verdict's rank plus the kinds of warnings, then the changed lines."""
    return VERDICTS.index(result.verification.verdict) + len(_risks(result)), sum(_lines(result))


def _reason(result: ToolAgentResult) -> str:
    """Returns the size of the change and its warnings, as `+3 -1 in 1 file, 1 claim refuted`."""
    added, removed = _lines(result)
    return ", ".join([f"+{added} -{removed} in {count(len(result.file_changes), 'file')}", *_risks(result)])


def _lines(result: ToolAgentResult) -> tuple[int, int]:
    """Returns how many lines the changes added, and how many they removed."""
    changes = result.file_changes
    return sum(each.added_lines for each in changes), sum(each.removed_lines for each in changes)


def _risks(result: ToolAgentResult) -> list[str]:
    found = result.verification
    counted = [
        (len(found.restored) + len(found.released), "protected path", "changed"),
        (len(found.suspicions), "suspicion", ""),
        (len(result.refuted_claims), "claim", "refuted"),
        (result.denied_call_count, "call", "denied"),
    ]
    risks = [f"{count(number, what)} {how}".rstrip() for number, what, how in counted if number]
    return [*risks, *(["not all compared"] if result.truncated else [])]
