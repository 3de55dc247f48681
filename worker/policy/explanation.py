"""The policy's decisions about calls that are not made, their reasons, and rules that no call can match.

For the commands of ``deputize policy``, and for a worker that starts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from ...shared.errors import DeputizeError, ErrorType, Invalid, Misconfigured, ToolError
from ...shared.facts import Trust
from ...shared.fleet import MCP
from ...shared.masking import MASK
from ...shared.request import ApprovalMode
from ...shared.settings import Settings, environment
from ...shared.settings.files import configuration_folder
from ...shared.text import CUT_NOTE, did_you_mean
from ...shared.tool_traits import ToolTraits
from ..mcp.config import entries, find_config_file, prefix
from ..toolkit.registry import available_tools
from ..tools.base import AnyTool, Effect, Kind, Origin, Params, Source, Tool, ToolContext, ToolResult, Touches
from ..tools.builtin import BUILTIN
from ..tools.naming import find_tool
from . import PolicyCall, PolicyContext, Rule, Verdict, decide, matched
from .matchers import MATCHERS, is_named
from .rule_file import FileRule, RuleFields, by_priority, checked_taint, load_rules, read_file
from .shell import Decision

MCP_NAME = re.compile("mcp__.+__.+")


class AbsentTool(Tool[Any]):
    """Stands for a tool of an MCP server, which is not asked: it may do anything, with any arguments."""

    kind = Kind.OTHER
    params = Params

    def __init__(self, name: str) -> None:
        self.name = name
        _, server, *remote = name.split("__")
        self.origin = Origin("mcp", server, "__".join(remote))

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        raise ToolError(ErrorType.UNKNOWN_TOOL, f"{self.name} is only explained here, and cannot be called.")


class RecordedTool(AbsentTool):
    """Stands for a tool that is not built in, with the traits that a run has recorded."""

    def __init__(self, traits: ToolTraits) -> None:
        self.name = traits.name
        self.kind, self.effect = Kind(traits.kind), Effect(traits.effect)
        self.origin = Origin(cast(Source, traits.source), traits.server, traits.remote)
        self.trusted, self.needs_approval = traits.trusted, traits.needs_approval


def known_tools(settings: Settings) -> Mapping[str, AnyTool]:
    """Returns all tools that are built in, as configured where they are available, by name."""
    return {tool.name: tool for tool in (*BUILTIN, *available_tools(settings, BUILTIN))}


def _call(tools: Mapping[str, AnyTool], name: str, arguments: Mapping[str, Any]) -> PolicyCall:
    """Returns the policy's input for a call. Raises ToolError for an unknown tool and wrong arguments."""
    tool = find_tool(tools, name)
    return PolicyCall.of(tool, tool.parse(arguments), arguments)


TOUCHED: Mapping[str, tuple[str, Sequence[str] | None]] = {
    "command_prefix": ("has a command line", ("bash",)),
    "host": ("names hosts", ("web_fetch", "web_search")),
    "path": ("names paths", None),
}
"""What a matcher needs of a call, and the built-in tools whose calls have it; None: all others that touch anything."""


class Known:
    """What a worker knows of the tools that rules may name: a misspelt name would let through what it should deny."""

    def __init__(self, settings: Settings, tools: Sequence[AnyTool]) -> None:
        self.tools = tools
        self.servers = _servers(settings)
        self.has_others = settings.tools.discovery_command is not None
        """Whether there are tools whose names only a run knows."""

    def check(self, rules: Sequence[FileRule]) -> list[str]:
        """Returns what is wrong with rules that allow. Raises Misconfigured for those that deny or ask."""
        faults: dict[bool, list[str]] = {True: [], False: []}
        for rule in rules:
            for why in self._faults(rule.fields):
                about = f"{rule.place}: the rule {rule.fields.name!r} cannot match as it is meant: {why}"
                faults[rule.fields.decision is Decision.ALLOW].append(about)
        if faults[False]:
            raise Misconfigured("; ".join(faults[False]))
        return faults[True]

    def _faults(self, fields: RuleFields) -> Iterator[str]:
        for name in fields.tool or ():
            if not (any(is_named(tool, name) for tool in self.tools) or self._may_be_foreign(name)):
                names = [tool.name for tool in self.tools] + [prefix(server) + "*" for server in self.servers]
                yield f"there is no tool {name!r}{_near(name, names)}"
        for name in (*(fields.server or ()), *(each[4:] for each in fields.taint or () if each.startswith("mcp:"))):
            if self.servers and not any(fnmatchcase(server, name) for server in self.servers):
                yield f"there is no MCP server {name!r}{_near(name, self.servers)}"
        values = fields.model_dump(exclude_none=True)
        anywhere = PolicyContext(ApprovalMode.ASK)
        fits = [MATCHERS[key](values[key], False) for key in ("tool", "server", "kind", "annotations") if key in values]
        calls = [PolicyCall(tool, Touches()) for tool in self.tools]
        tools = [call.tool for call in calls if all(each(call, anywhere) for each in fits)]
        for key, (what, named) in TOUCHED.items():
            if key in values and not any(_touches(tool, named) for tool in tools):
                yield f"{key}: no call of {_listed(tools)} {what}"
        if not self._has_foreign(fields):
            for name in fields.argument or ():
                known = {each for tool in tools for each in _parameters(tool)}
                if name not in known and all(_parameters(tool) for tool in tools):
                    yield f"argument: {_listed(tools)} has no parameter {name!r}{_near(name, known)}"

    def _has_foreign(self, fields: RuleFields) -> bool:
        """Returns whether a tool that is not known here may have such calls."""
        if fields.tool is None:
            return fields.server is not None or bool(self.servers) or self.has_others
        return any(self._may_be_foreign(name) for name in fields.tool)

    def _may_be_foreign(self, name: str) -> bool:
        if self.has_others:
            return True
        begin = re.split(r"[*?\[]", name, maxsplit=1)[0]
        prefixes = [prefix(server) for server in self.servers] or [MCP]
        return any(begin.startswith(each) or (begin != name and each.startswith(begin)) for each in prefixes)


def _servers(settings: Settings) -> Sequence[str]:
    """Returns the names of the configured MCP servers; none where their file cannot be read, which runs report."""
    if settings.tools.enable_mcp is False:
        return ()
    try:
        own = configuration_folder(environment())
        found = find_config_file(settings.mcp_file, Path.cwd(), own)
        return [*entries(found)] if found else ()
    except (Misconfigured, OSError, RecursionError):
        return ()


def _touches(tool: AnyTool, named: Sequence[str] | None) -> bool:
    if type(tool).touches is Tool.touches and not tool.params.workspace_paths:
        return False
    if type(tool) not in map(type, BUILTIN):
        return True
    others = [name for _, names in TOUCHED.values() for name in names or ()]
    return tool.name in named if named else tool.name not in others


def _parameters(tool: AnyTool) -> Sequence[str]:
    return [*tool.params.model_fields] or [*tool.schema.get("properties", {})]


def _near(name: str, known: Sequence[str] | set[str]) -> str:
    near = did_you_mean(name[:100], sorted(known), 1)
    return f"; {near}" if near else ""


def _listed(tools: Sequence[AnyTool]) -> str:
    names = [tool.name for tool in tools]
    return " or ".join(names) if 0 < len(names) <= 4 else "any tool that it names" if names else "a tool that it names"


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer; ``error`` is what the user has to correct, ``usage`` whether it is the question itself."""
    try:
        settings = Settings.load(environ=question["settings"])
        if "test" in question:
            paths = [Path(path) for path in question["test"]]
            _, remarks = _checked(settings, paths)
            return {"examples": try_examples(settings, paths), "remarks": remarks}
        if "replay" in question:
            (old, _), (new, _) = (_checked(settings, paths) for paths in (settings.policy, question["replay"]))
            replay = Replay(settings, old, new)
            return {"runs": [replay.run(each) for each in question["runs"]]}
        workspace = question["workspace"]
        try:
            tainted_by = [checked_taint(name) for name in question.get("taint", ())]
        except ValueError as error:
            raise Invalid(f"--taint: {error}") from None
        run = PolicyContext(
            ApprovalMode(question["mode"]),
            depth=question["depth"],
            labels=question["labels"],
            workspace=Path(workspace) if workspace else None,
            trust=Trust(tainted_by=tainted_by),
        )
        return Explainer(settings, _checked(settings, settings.policy)[0]).explain(question["call"], run)
    except DeputizeError as error:
        return {"error": str(error), "usage": isinstance(error, Invalid)}


def _checked(settings: Settings, paths: Iterable[Path | str]) -> tuple[Sequence[FileRule], list[str]]:
    """Returns the rules of files, and what is wrong with those that allow. Raises Misconfigured as a worker does."""
    rules = load_rules(map(Path, paths))
    return rules, Known(settings, BUILTIN).check(rules)


def _here(run: PolicyContext, settings: Settings, rules: Sequence[Rule]) -> PolicyContext:
    """Returns the policy's input about a run on a worker with these settings and rules of files."""
    return replace(run, allowed_hosts=settings.tools.allowed_hosts, rules=rules)


class Explainer:
    """Explains calls under these settings and rules."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], tools: Mapping[str, AnyTool] | None = None) -> None:
        self.settings = settings
        self.rules = rules
        self.tools = known_tools(settings) if tools is None else tools

    def explain(self, text: str, run: PolicyContext) -> dict[str, Any]:
        """Returns the decision about a call such as ``bash {"command": "ls"}`` of such a run, here, as JSON.

        Raises Invalid.
        """
        call, run = self._call(text), _here(run, self.settings, self.rules)
        before, verdict = matched(call, run), decide(call, run)
        notes = [f"approvalMode {run.mode} turns {before.decision} into {verdict.decision}"]
        if isinstance(call.tool, AbsentTool):
            server = call.tool.origin.server
            notes.append(f"the MCP server {server} is not asked: its tool counts as one that changes something")
        return {
            **_shown(verdict),
            "ruleDecision": before.decision,
            "notes": notes if verdict.decision != before.decision else notes[1:],
            "commandLine": call.line
            and {
                "class": call.line.decision,
                "reason": call.line.reason,
                "commands": [
                    {"words": each.words, "class": each.decision, "reason": each.reason, "pattern": each.pattern}
                    for each in call.line.commands
                ],
                "effects": call.line.effects,
            },
        }

    def _call(self, text: str) -> PolicyCall:
        name, _, given = text.strip().partition(" ")
        try:
            arguments = json.loads(given or "{}")
            if not isinstance(arguments, dict):
                raise Invalid(f'the arguments of {name} are not a JSON object; write {name} {{"name": "value"}}')
            if MCP_NAME.fullmatch(name):
                return PolicyCall.of(AbsentTool(name), arguments, arguments)
            return _call(self.tools, name, arguments)
        except json.JSONDecodeError as error:
            raise Invalid(f"the arguments of {name} are not valid JSON: {error}") from None
        except ToolError as error:
            raise Invalid(error.message) from None


def try_examples(settings: Settings, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns an entry for each example of the files, judged by the rules of its own file and the built-in ones.

    Raises Misconfigured for a wrong file, and Invalid for an example whose call is none.
    """
    tried: list[dict[str, Any]] = []
    tools = known_tools(settings)
    for path in paths:
        file = read_file(path)
        rules = by_priority(file.rules)
        for example, place in file.examples:
            trust = Trust(tainted_by=example.taint)
            run = PolicyContext(example.mode, depth=example.depth, labels=example.label, trust=trust)
            try:
                found = Explainer(settings, rules, tools).explain(example.call, run)
            except Invalid as error:
                raise Invalid(f"{place}: {error}") from None
            tried.append({"example": place, "call": example.call, "expect": example.expect, **found})
    return tried


class Replay:
    """Judges recorded calls by the rules of two sets of files. Their sandbox works, their files are not there."""

    def __init__(self, settings: Settings, old: Sequence[Rule], new: Sequence[Rule]) -> None:
        self._settings = settings
        self._old, self._new = old, new
        self._tools = known_tools(settings)

    def run(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what changes in one run: each call that is decided differently, and how many could not be judged."""
        further = map(RecordedTool, map(ToolTraits.model_validate, run["furtherTools"]))
        tools = {**self._tools, **{tool.name: tool for tool in further}}
        changes: list[dict[str, Any]] = []
        not_judged: Counter[str] = Counter()
        for call in run["calls"]:
            if reason := "unknownDepth" if run["depth"] is None else _unknown(call["arguments"]):
                not_judged[reason] += 1
                continue
            try:
                old, new = self._verdicts(run, call, tools)
            except ToolError as error:
                not_judged["unknownTool" if error.type is ErrorType.UNKNOWN_TOOL else "refused"] += 1
                continue
            if old.decision is not new.decision:
                changes.append({**call, "old": _shown(old), "new": _shown(new)})
        judged = len(run["calls"]) - not_judged.total()
        return {"id": run["id"], "judged": judged, "notJudged": dict(not_judged), "changes": changes}

    def _verdicts(
        self, run: Mapping[str, Any], call: Mapping[str, Any], tools: Mapping[str, AnyTool]
    ) -> tuple[Verdict, Verdict]:
        """Returns what the old and the new rules decide. Raises ToolError where the policy was never asked."""
        known, trust = _call(tools, call["name"], call["arguments"]), Trust(tainted_by=call["taintedBy"])
        where = PolicyContext(ApprovalMode(run["mode"]), depth=run["depth"], labels=run["labels"], trust=trust)
        old, new = (decide(known, _here(where, self._settings, rules)) for rules in (self._old, self._new))
        return old, new


def _unknown(arguments: Mapping[str, Any]) -> str | None:
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
