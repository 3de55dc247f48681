"""Which calls of recorded runs other rules would decide differently, for ``deputize policy replay``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...shared.errors import ErrorType, ToolError
from ...shared.fleet import ToolTraits
from ...shared.masking import MASK
from ...shared.request import ApprovalMode
from ...shared.settings import Settings
from ...shared.text import CUT_NOTE
from . import Rule, Verdict, decide
from .explanation import Situation
from .known_tools import KnownTools


class Replay:
    """Judges recorded calls by the rules of two sets of files. Their sandbox works, their files are not there."""

    def __init__(self, settings: Settings, old: Sequence[Rule], new: Sequence[Rule]) -> None:
        self._settings = settings
        self._old, self._new = old, new
        self._tools = KnownTools(settings)

    def run(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what changes in one run: each call that is decided differently, and how many could not be judged."""
        self._tools.record(map(ToolTraits.model_validate, run["furtherTools"]))
        changes: list[dict[str, Any]] = []
        not_judged: Counter[str] = Counter()
        for call in run["calls"]:
            if reason := "unknownDepth" if run["depth"] is None else unknown(call["arguments"]):
                not_judged[reason] += 1
                continue
            try:
                old, new = self.verdicts(run, call)
            except ToolError as error:
                not_judged["unknownTool" if error.type is ErrorType.UNKNOWN_TOOL else "refused"] += 1
                continue
            if old.decision is not new.decision:
                changes.append({**call, "old": _shown(old), "new": _shown(new)})
        judged = len(run["calls"]) - not_judged.total()
        return {"id": run["id"], "judged": judged, "notJudged": dict(not_judged), "changes": changes}

    def verdicts(self, run: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[Verdict, Verdict]:
        """Returns what the old and the new rules decide. Raises ToolError where the policy was never asked."""
        known = self._tools.call(call["name"], call["arguments"])
        mode, labels = ApprovalMode(run["mode"]), run["labels"]
        situation = Situation(mode, run["depth"], labels, tainted_by=call["taintedBy"])
        contexts = [situation.context(self._settings, rules) for rules in (self._old, self._new)]
        return decide(known, contexts[0]), decide(known, contexts[1])


def unknown(arguments: Mapping[str, Any]) -> str | None:
    """Returns why a recording lacks a part of these arguments, or None: events are cut at their maximum size, and
    secrets are masked."""
    texts = list(_texts(arguments))
    if any(MASK in text for text in texts):
        return "masked"
    return "cut" if any(text.endswith("…") or CUT_NOTE in text for text in texts) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield key
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _shown(verdict: Verdict) -> dict[str, Any]:
    place = verdict.place or None
    return {"decision": verdict.decision, "rule": verdict.rule, "place": place, "reason": verdict.reason}
