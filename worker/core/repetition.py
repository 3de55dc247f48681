"""Detects a run in a loop: equal calls with equal results, turn after turn, although the model was asked to stop.

Repetition alone is not a loop. A model waits for something, runs a test several times because it may be flaky, or reads
a file again. So a turn counts once, however many equal calls it has, a turn that waits does not count, and the model
gets a hint before the run ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ...shared.delegation import TerminationReason
from ...shared.text import clip
from ..models.base import Call
from ..tools.base import ToolResult
from .limits import LimitReached
from .prompt import repeated_calls

_WAITS = re.compile(r"\bsleep\b")
"""Marks a command that waits: the same answer as before only means that it is too early."""
_MAX_SHOWN = 300
_Seen = tuple[int, str, str]
"""A call with its result: the hash of both, and the beginnings that a hint shows."""


class Repetition:
    """Watches the turns of one run: one turn, or a cycle of up to 5 turns, that is repeated 5 times in a row.

    The first time the model gets a hint; the run ends where the same turns are repeated 5 times more.
    """

    TIMES = 5
    LONGEST = 5

    def __init__(self) -> None:
        self._turns: list[frozenset[_Seen]] = []
        """The last turns: their calls, each with its result."""
        self._named = frozenset[frozenset[_Seen]]()
        """The turns that the last hint was about, until the model does something else."""
        self._ignored = False

    def watch(self, calls: Sequence[Call], results: Sequence[ToolResult]) -> str:
        """Records a turn. Returns the hint for the model that it goes in a circle, or ""."""
        if any(result.pending for result in results) or any(map(_waits, calls)):
            self._turns.clear()
            return ""
        turn = frozenset(map(_seen, calls, results))
        self._turns = [*self._turns[-self.TIMES * self.LONGEST + 1 :], turn]
        if turn not in self._named:
            self._named = frozenset()
        length = next(filter(self._is_cycle, range(1, self.LONGEST + 1)), 0)
        if not length or self._named:
            self._ignored = length > 0
            return ""
        cycle = self._turns[-length:]
        self._named = frozenset(cycle)
        self._turns.clear()
        return repeated_calls({call: result for turn in cycle for _, call, result in sorted(turn)}, self.TIMES)

    def check(self) -> None:
        """Raises ``LimitReached`` where the model has ignored the hint."""
        if self._ignored:
            raise LimitReached(TerminationReason.LOOP_DETECTED, "identical calls repeated", 2 * self.TIMES)

    def _is_cycle(self, length: int) -> bool:
        tail = self._turns[-length * self.TIMES :]
        return len(tail) == length * self.TIMES and tail == tail[:length] * self.TIMES


def _waits(call: Call) -> bool:
    return _WAITS.search(str(call.arguments.get("command"))) is not None


def _seen(call: Call, result: ToolResult) -> _Seen:
    arguments = json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)
    # A text that was saved as a whole is in a file of its own for each call.
    text = result.for_model.replace(result.metadata.get("fullOutput") or "\0", "")
    return hash((call.name, arguments, text)), f"{call.name} {clip(arguments, _MAX_SHOWN)}", clip(text, _MAX_SHOWN)
