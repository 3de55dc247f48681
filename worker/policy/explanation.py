"""What the policy decides about calls that are not made, and why: for the commands of ``deputize policy``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...shared.errors import DeputizeError, ErrorType, Invalid, ToolError
from ...shared.facts import Trust
from ...shared.fleet import ToolTraits
from ...shared.masking import MASK
from ...shared.request import ApprovalMode
from ...shared.settings import Settings
from ...shared.text import CUT_NOTE
from ..tools import BUILTIN
from . import PolicyCall, PolicyContext, Rule, Verdict, decide, matched
from .known_tools import MCP_NAME, AbsentTool, Known, KnownTools
from .rule_file import by_priority, checked_taint, load_rules, read_file
from .shell.classify import CommandLine


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


@dataclass(frozen=True, slots=True)
class Situation:
    """The run that a call would belong to; its sandbox works."""

    mode: ApprovalMode = ApprovalMode.SANDBOXED
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    workspace: Path | None = None
    tainted_by: Sequence[str] = ()

    def context(self, settings: Settings, rules: Sequence[Rule]) -> PolicyContext:
        """Returns the policy's input about such a run, on a worker with these settings and rules of files."""
        return PolicyContext(
            self.mode,
            allowed_hosts=settings.tools.allowed_hosts,
            rules=rules,
            depth=self.depth,
            labels=self.labels,
            workspace=self.workspace,
            trust=Trust(tainted_by=list(self.tainted_by)),
        )


class Explainer:
    """Explains calls under these settings and rules."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], tools: KnownTools | None = None) -> None:
        self.settings = settings
        self.rules = rules
        self.tools = tools or KnownTools(settings)

    def explain(self, text: str, situation: Situation) -> dict[str, Any]:
        """Returns the decision about a call such as ``bash {"command": "ls"}`` as JSON. Raises Invalid."""
        call, where = self._call(text), situation.context(self.settings, self.rules)
        before, verdict = matched(call, where), decide(call, where)
        notes = [f"approvalMode {situation.mode} turns {before.decision} into {verdict.decision}"]
        if isinstance(call.tool, AbsentTool):
            server = call.tool.origin.server
            notes.append(f"the MCP server {server} is not asked: its tool counts as one that changes something")
        return {
            **_shown(verdict),
            "ruleDecision": before.decision,
            "notes": notes if verdict.decision != before.decision else notes[1:],
            "commandLine": _explained(call.line) if call.line else None,
        }

    def _call(self, text: str) -> PolicyCall:
        name, _, given = text.strip().partition(" ")
        try:
            arguments = json.loads(given or "{}")
            if not isinstance(arguments, dict):
                raise Invalid(f'the arguments of {name} are not a JSON object; write {name} {{"name": "value"}}')
            if MCP_NAME.fullmatch(name):
                return self.tools.absent(name, arguments)
            return self.tools.call(name, arguments)
        except json.JSONDecodeError as error:
            raise Invalid(f"the arguments of {name} are not valid JSON: {error}") from None
        except ToolError as error:
            raise Invalid(error.message) from None


def _explained(line: CommandLine) -> dict[str, Any]:
    """Returns the class of a command line, with that of each of its commands, as JSON."""
    commands = [
        {"words": each.words, "class": each.decision, "reason": each.reason, "pattern": each.pattern}
        for each in line.commands
    ]
    return {"class": line.decision, "reason": line.reason, "commands": commands, "effects": line.effects}


def try_examples(settings: Settings, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns an entry for each example of the files, judged by the rules of its own file and the built-in ones.

    Raises Misconfigured for a wrong file, and Invalid for an example whose call is none.
    """
    tried: list[dict[str, Any]] = []
    tools = KnownTools(settings)
    for path in paths:
        file = read_file(path)
        rules = by_priority(file.rules)
        for example, place in file.examples:
            situation = Situation(example.mode, example.depth, example.label, tainted_by=example.taint)
            try:
                found = Explainer(settings, rules, tools).explain(example.call, situation)
            except Invalid as error:
                raise Invalid(f"{place}: {error}") from None
            tried.append({"example": place, "call": example.call, "expect": example.expect, **found})
    return tried


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
    return {
        "decision": verdict.decision,
        "rule": verdict.rule,
        "place": verdict.place or None,
        "reason": verdict.reason,
    }
