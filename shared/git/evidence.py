"""What the body of a pull request states about a run: the worker's findings, and below a line the model's summary.

Commands, paths and the summary are untrusted text. The body is rendered as Markdown, and a squash makes a commit
message of it as it is. So every character that means something to either is written as a reference to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlsplit

from ..checks import CommandCheck
from ..delegation import ToolAgentResult
from ..facts import Check, FileChange
from ..text import clip, count, visible, visible_block

T = TypeVar("T")

MAX_BODY = 65_000
"""Characters; GitHub refuses a body of more than 65,536."""
_MAX_NAME = 200
_MAX_LINE = 1000
_MAX_SECTION = 8_000
_CHECKS = "| check | outcome | base | candidate | canary |\n|---|---|---|---|---|"
_BREAK = "\u200b"
_PLAIN = re.compile(r"[^\w ./,-]|_|^-")
_REFERENCE = re.compile(
    r"[@#]|[!~$%&^](?=[\w\"{])|:(?=[/\d\"])|\b(?:gh|[a-z][a-z0-9]+)(?=-\d)|\bwww(?=\.)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What is known of a run beside its request and its result."""

    model: str = ""
    refusals: Sequence[str] = ()
    """A sentence for each host that it could not reach, as that was not allowed."""
    url: str | None = None
    """Where the service is found, whose page shows the run."""


def evidence_of(
    result: ToolAgentResult, changes: Sequence[FileChange], notes: RunNotes, mask: Callable[[str], str]
) -> str:
    """Returns Markdown about a result and its changes. ``mask`` hides secrets in untrusted text."""
    found, cost = result.verification, result.usage.cost_usd
    verdict = f"**Verdict: {found.verdict}**"
    if found.why and not any(map(_is_hidden, found.checks)):  # it may name their commands
        verdict += f": {_code(mask(found.why), _MAX_LINE)}"
    facts = [
        f"model {_code(mask(notes.model))}" if notes.model else "",
        count(result.turn_count, "turn"),
        count(result.tool_call_count, "tool call"),
        f"{result.denied_call_count} denied",
        "cost not known" if cost is None else f"{cost:.4f} USD",
    ]
    sections = [
        "## Evidence\n\nThe worker found this, not the model.",
        verdict,
        _listed(_CHECKS, [*enumerate(found.checks, 1)], lambda each: _row(*each, mask)),
        _listed("Protected files that the checks put back:\n", found.restored, lambda path: f"- {_code(mask(path))}"),
        _listed("Changed files:\n", changes, lambda change: _line_of(change, mask)),
        _listed("Refused hosts:\n", notes.refusals, lambda refusal: f"- {_code(mask(refusal))}"),
        f"{', '.join(filter(None, facts))}. {_linked(result.delegation_id, notes.url)}.",
        f"If the fleet has a key: `deputize show {result.delegation_id} --proof`, then `deputize prove`."
        if found.verdict == "verified"
        else "",
    ]
    if result.summary.strip():
        sections += ["---", "The model's summary, which nothing has checked:", _quoted(mask(result.summary))]
    return "\n\n".join(filter(None, sections))


def executed_by_hosts(paths: Sequence[str]) -> str:
    """Returns a warning about changed files, as Markdown; "" without any."""
    return _listed("**A git host may execute these changed files:**\n", paths, lambda path: f"- {_code(path)}")


def _linked(id: str, url: str | None) -> str:
    """Returns the id, as a link to the page of the service where that is found."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return f"Delegation {id}"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return f"Delegation {id}"
    return f"[Delegation {id}]({parts.scheme}://{parts.netloc}{quote(parts.path.rstrip('/'))}/#{id})"


def _row(number: int, check: Check, mask: Callable[[str], str]) -> str:
    line = check.item.get("run")
    label = _code(mask(str(line))) if line and not _is_hidden(check) else f"check {number}"
    grounds = " | ".join(state or "" for state in (check.base, check.candidate, check.canary))
    return f"| {label} | {check.outcome} | {grounds} |"


def _is_hidden(check: Check) -> bool:
    item = check.item  # of an earlier version, perhaps, so it is not validated
    return CommandCheck.model_construct(hidden=item.get("hidden"), files=item.get("files") or {}).is_hidden


def _line_of(change: FileChange, mask: Callable[[str], str]) -> str:
    return f"- {_code(mask(change.path))} {change.change}, +{change.added_lines} -{change.removed_lines}"


def _listed(head: str, items: Sequence[T], line_of: Callable[[T], str]) -> str:
    """Returns a line for each item as far as there is room, and how many are left out; "" without any."""
    lines = [head]
    size = 0
    for number, item in enumerate(items):
        line = line_of(item)
        size += len(line) + 1
        if size > _MAX_SECTION:
            lines.append(f"\n{len(items) - number} more: not listed.")
            break
        lines.append(line)
    return "\n".join(lines) if items else ""


def _code(text: str, most: int = _MAX_NAME) -> str:
    return f"<code>{_escaped(clip(visible(clip(text, most)), most))}</code>"


def _quoted(text: str) -> str:
    shown = visible_block(clip(text, _MAX_SECTION)).strip()
    return _listed("", shown.split("\n"), lambda line: f"> {_escaped(clip(line.strip(), _MAX_LINE))}  ").lstrip("\n")


def _escaped(text: str) -> str:
    """Returns words that neither Markdown, a git host nor a reader of commit messages takes for more than words."""
    broken = _REFERENCE.sub(lambda found: found[0] + _BREAK, text)
    return _PLAIN.sub(lambda found: found[0] if found[0] == _BREAK else f"&#x{ord(found[0]):x};", broken)
