"""`python -m deputize.worker.policy`: answers one question about the policy, JSON on stdin and stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deputize.shared.errors import DeputizeError, Invalid
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy.explanation import Explainer, Situation, try_examples
from deputize.worker.policy.rule_fields import checked_taint
from deputize.worker.policy.rule_file import load_rules


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer; ``error`` is what the user has to correct, ``usage`` whether it is the question itself."""
    try:
        settings = Settings.load()
        if "test" in question:
            return {"examples": try_examples(settings, [Path(path) for path in question["test"]])}
        workspace = question["workspace"]
        situation = Situation(
            ApprovalMode(question["mode"]),
            question["depth"],
            question["labels"],
            Path(workspace) if workspace else None,
            _sources(question.get("taint", ())),
        )
        rules = load_rules(settings.policy, settings.trusted_folder)
        return Explainer(settings, rules).explain(question["call"], situation)
    except DeputizeError as error:
        return {"error": str(error), "usage": isinstance(error, Invalid)}


def _sources(names: Sequence[str]) -> Sequence[str]:
    try:
        return [checked_taint(name) for name in names]
    except ValueError as error:
        raise Invalid(f"--taint: {error}") from None


def main() -> int:
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
