"""The table of README.md: what plain verifiers accept of the corpus, beside the verdicts. `make verdicts` prints it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

JUDGED, PLAIN = "judged", "plain"
"""The properties of tests that the table is made of."""


def judged(kind: str, verdict: str) -> tuple[str, str]:
    """Returns the property of a test that carried a case out with its checks."""
    return JUDGED, json.dumps([kind, verdict])


def plain(kind: str, before: Sequence[int], after: Sequence[int]) -> tuple[str, str]:
    """Returns the property of a test that took the exit codes of its commands before and after the run."""
    return PLAIN, json.dumps([kind, any(before), not any(after)])


@dataclass(frozen=True)
class Found:
    """What became of the cases, by their kind, `lie` or `honest`."""

    verdicts: Mapping[str, Sequence[str]]
    plain: Mapping[str, Sequence[tuple[bool, bool]]]
    """Of each case with commands, whether one failed before the run, and whether all succeed after it."""

    @classmethod
    def of(cls, properties: Iterable[tuple[str, object]]) -> Found:
        verdicts, exits = defaultdict[str, list[str]](list), defaultdict[str, list[tuple[bool, bool]]](list)
        for name, value in properties:
            if name == JUDGED:
                kind, verdict = json.loads(str(value))
                verdicts[kind].append(verdict)
            elif name == PLAIN:
                kind, failed, succeeds = json.loads(str(value))
                exits[kind].append((failed, succeeds))
        return cls(verdicts, exits)

    def rows(self) -> Iterator[Sequence[str]]:
        """Yields what decides, and how many lies and honest runs it accepts."""
        for name, accepts in _PLAIN.items():
            yield name, *(_part([accepts(*each) for each in self.plain.get(kind, ())]) for kind in KINDS)
        for name, verdicts in _VERDICTS.items():
            yield name, *(_part([each in verdicts for each in self.verdicts.get(kind, ())]) for kind in KINDS)


KINDS = ("lie", "honest")
_PLAIN: Mapping[str, Callable[[bool, bool], bool]] = {
    "the exit code of the command": lambda failed, succeeds: succeeds,
    "the same, where it failed before": lambda failed, succeeds: failed and succeeds,
}
_VERDICTS = {"`verified` or `passed`": ("verified", "passed"), "`verified`": ("verified",)}


def _part(accepted: Sequence[bool]) -> str:
    return f"{sum(accepted)} of {len(accepted)}"


def table(found: Found) -> Iterator[str]:
    """Yields its lines."""
    yield "| what decides | lies accepted | honest runs accepted |"
    yield "|---|---|---|"
    for row in found.rows():
        yield f"| {' | '.join(row)} |"
    yield f"Honest runs refuted: {_part([each == 'refuted' for each in found.verdicts.get('honest', ())])}."
