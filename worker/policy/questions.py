"""Questions about the policy, as the command line asks them: explanations, examples of files, replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...shared.errors import DeputizeError, Invalid
from ...shared.request import ApprovalMode
from ...shared.settings import Settings
from ..tools import BUILTIN
from .explanation import Explainer, Situation, try_examples
from .known_tools import Known
from .replay import Replay
from .rule_fields import checked_taint
from .rule_file import load_rules


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer; ``error`` is what the user has to correct, ``usage`` whether it is the question itself."""
    try:
        settings = Settings.load(environ=question["settings"])
        if "test" in question:
            paths = [Path(path) for path in question["test"]]
            remarks = Known(settings, BUILTIN).check(load_rules(paths))
            return {"examples": try_examples(settings, paths), "remarks": remarks}
        if "replay" in question:
            return {"runs": _replayed(settings, question["replay"], question["runs"])}
        workspace = question["workspace"]
        situation = Situation(
            ApprovalMode(question["mode"]),
            question["depth"],
            question["labels"],
            Path(workspace) if workspace else None,
            _sources(question.get("taint", ())),
        )
        rules = load_rules(settings.policy)
        return Explainer(settings, rules).explain(question["call"], situation)
    except DeputizeError as error:
        return {"error": str(error), "usage": isinstance(error, Invalid)}


def _replayed(settings: Settings, files: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    old = load_rules(settings.policy)
    replay = Replay(settings, old, load_rules([Path(file) for file in files]))
    return [replay.run(each) for each in runs]


def _sources(names: Sequence[str]) -> Sequence[str]:
    try:
        return [checked_taint(name) for name in names]
    except ValueError as error:
        raise Invalid(f"--taint: {error}") from None
