"""Rules from the operator's TOML files: read when a worker starts, compared as all other rules are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ...shared.errors import Misconfigured
from ...shared.request import ApprovalMode
from ...shared.settings.files import regular_bytes, toml_of
from ...shared.toml_lines import KeyPath, line_numbers, line_of, syntax_error
from ...shared.wire import explain
from .base import Decision, PolicyCall, PolicyContext, Verdict
from .matchers import MATCHERS, Matches
from .rule_fields import ExampleFields, PolicyFields, RuleFields
from .shell import PLAINLY

_LEAVES = "a delegation with approvalMode auto may do it"
_STAYS = "a delegation with approvalMode sandboxed or auto may do it"


@dataclass(frozen=True, slots=True)
class FileRule:
    """One rule of a file, at ``place`` (``file:line``)."""

    fields: RuleFields
    place: str
    matchers: Sequence[Matches]

    @classmethod
    def of(cls, fields: RuleFields, place: str) -> FileRule:
        values = fields.model_dump(exclude_none=True)
        allows = fields.decision is Decision.ALLOW
        return cls(fields, place, [make(values[key], allows) for key, make in MATCHERS.items() if key in values])

    def __call__(self, call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
        fields = self.fields
        if fields.decision is Decision.ALLOW and _read_only_forbids(call, policy_context):
            return None
        try:
            if not all(matches(call, policy_context) for matches in self.matchers):
                return None
        except TimeoutError:
            reason = f"its arguments take too long to compare with the policy's rule {fields.name}; write them shorter"
            return Verdict(Decision.DENY, reason, fields.name, place=self.place)
        reason = fields.reason.strip().rstrip(".") or f"the policy's rule {fields.name} decides it"
        if fields.decision is Decision.DENY and fields.command_prefix and call.classified and call.classified.why:
            reason = f"{reason}. The line {call.classified.why}: {PLAINLY}"
        remedy = _STAYS if call.contained else _LEAVES
        return Verdict(fields.decision, reason, fields.name, remedy=remedy, place=self.place)


def _read_only_forbids(call: PolicyCall, policy_context: PolicyContext) -> bool:
    """Whether no file can allow the call, because its run is read-only."""
    looks = call.tool.kind.looks and not call.touches.hosts
    return policy_context.mode is ApprovalMode.READ_ONLY and not looks


@dataclass(frozen=True, slots=True)
class RuleFile:
    rules: Sequence[FileRule] = ()
    examples: Sequence[tuple[ExampleFields, str]] = ()
    """Each with its place."""


def load_rules(paths: Sequence[Path]) -> Sequence[FileRule]:
    """Returns the rules of all files by priority, then in their order. Raises Misconfigured as ``read_file`` does."""
    return by_priority([rule for path in paths for rule in read_file(path).rules])


def by_priority(rules: Sequence[FileRule]) -> Sequence[FileRule]:
    """Returns the rules with the highest priority first, those of the same one in their order."""
    return sorted(rules, key=lambda rule: -rule.fields.priority)


def read_file(path: Path) -> RuleFile:
    """Reads a file of rules. Raises Misconfigured with the file, the line and the correction of each mistake."""
    data = regular_bytes(path)
    if data is None:
        raise Misconfigured(f"the policy file {path} does not exist; correct DEPUTIZE_POLICY or the key policy")
    try:
        values = toml_of(data)
        text = data.decode().replace("\r\n", "\n")
    except ValueError as error:
        line, what = syntax_error(error)
        raise Misconfigured(f"{path}{f':{line}' if line else ''}: it is not valid TOML: {what}") from None
    lines = line_numbers(text)
    try:
        fields = PolicyFields.model_validate(values)
    except ValidationError as error:
        mistakes = (_located(path, lines, mistake) for mistake in explain(error, PolicyFields))
        raise Misconfigured("; ".join(mistakes)) from None
    return RuleFile(
        [FileRule.of(each, f"{path}:{line_of(lines, ('rule', at))}") for at, each in enumerate(fields.rule)],
        [(each, f"{path}:{line_of(lines, ('example', at))}") for at, each in enumerate(fields.example)],
    )


def _located(path: Path, lines: Mapping[KeyPath, int], mistake: Mapping[str, str]) -> str:
    """Returns `file:line: key: what`."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in mistake["pointer"].split("/")[1:]]
    keys: KeyPath = tuple(int(part) if part.isdigit() else part for part in parts)
    key = ".".join(map(str, keys[2:]))
    return f"{path}:{line_of(lines, keys)}: {key + ': ' if key else ''}{mistake['detail']}"
