"""Rules from the operator's TOML files: read when a worker starts, compared as all other rules are.

Adding a matcher is a field here and a line in MATCHERS (``matchers.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import regex
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    model_validator,
)

from ...shared.errors import Misconfigured, ToolError
from ...shared.request import ApprovalMode
from ...shared.settings.files import KeyPath, line_numbers, line_of, regular_bytes, syntax_error, toml_of
from ...shared.wire import explain
from ..search.glob_pattern import GlobPattern
from ..tools.base import Kind
from .base import Decision, PolicyCall, PolicyContext, Verdict
from .matchers import MATCHERS, Matches, comparison, prefix_words
from .shell import PLAINLY
from .trust import TAINTING


def _listed(value: Any) -> Any:
    if value == []:
        raise ValueError("it is empty, so nothing could match; leave the key out, or name something")
    return [value] if isinstance(value, str) else value


def _checked_regex(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from None
    return pattern


def _checked_glob(pattern: str) -> str:
    try:
        GlobPattern(pattern)
    except ToolError as error:
        raise ValueError(error.message) from None
    return pattern


def _checked_prefix(prefix: str) -> str:
    prefix_words(prefix)
    return prefix


def _checked_depth(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("it is neither a number nor a comparison such as '>= 1'")
    comparison(str(value))
    return str(value)


def checked_taint(pattern: str) -> str:
    """Returns the source, or pattern of sources. Raises ValueError for one that never taints."""
    if not any(fnmatchcase(kind, pattern.partition(":")[0]) for kind in TAINTING):
        raise ValueError(f"{pattern!r} never taints; the sources that do are web, mcp:SERVER and subagent:ID")
    return pattern


OneOrMore = BeforeValidator(_listed)
Some = Field(min_length=1)
Pattern = Annotated[str, Field(min_length=1)]
Patterns = Annotated[list[Pattern], OneOrMore]
"""Names, or patterns with ``*``, ``?`` and ``[a-z]``; one may stand without a list."""
Taint = Annotated[list[Annotated[str, AfterValidator(checked_taint)]], OneOrMore]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AnnotationFields(_Table):
    readOnlyHint: StrictBool | None = None  # noqa: N815 - as MCP names them
    idempotentHint: StrictBool | None = None  # noqa: N815


class RuleFields(_Table):
    """A rule: all matchers that are set must match."""

    name: Pattern
    decision: Decision
    reason: str = ""
    priority: StrictInt = 0
    tool: Patterns | None = None
    kind: Annotated[list[Kind], OneOrMore] | None = None
    server: Patterns | None = None
    annotations: AnnotationFields = AnnotationFields()
    argument: Annotated[dict[str, Annotated[str, AfterValidator(_checked_regex)]], Some] | None = None
    command_prefix: Annotated[list[Annotated[str, AfterValidator(_checked_prefix)]], OneOrMore] | None = None
    path: Annotated[list[Annotated[Pattern, AfterValidator(_checked_glob)]], OneOrMore] | None = None
    mode: Annotated[list[ApprovalMode], OneOrMore] | None = None
    depth: Annotated[str, BeforeValidator(_checked_depth)] | None = None
    label: Annotated[dict[str, Pattern], Some] | None = None
    host: Patterns | None = None
    taint: Taint | None = None

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.decision is Decision.DENY and not self.reason.strip():
            raise ValueError('a rule that denies needs a reason, which the model reads: reason = "…"')
        return self


class ExampleFields(_Table):
    """A call with the decision that it must get: ``deputize policy test`` compares."""

    call: Pattern
    expect: Literal["allow", "ask", "deny"]
    mode: ApprovalMode = ApprovalMode.SANDBOXED
    depth: Annotated[StrictInt, Field(ge=0)] = 0
    label: dict[str, str] = {}
    taint: Taint = []


class PolicyFields(_Table):
    rule: list[RuleFields] = []
    example: list[ExampleFields] = []


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
        looks = call.tool.kind.looks and not call.touches.hosts
        if fields.decision is Decision.ALLOW and policy_context.mode is ApprovalMode.READ_ONLY and not looks:
            return None
        try:
            if not all(matches(call, policy_context) for matches in self.matchers):
                return None
        except TimeoutError:
            reason = f"its arguments take too long to compare with the policy's rule {fields.name}; write them shorter"
            return Verdict(Decision.DENY, reason, fields.name, place=self.place)
        reason = fields.reason.strip().rstrip(".") or f"the policy's rule {fields.name} decides it"
        line = call.line if fields.decision is Decision.DENY and fields.command_prefix else None
        if line and line.hidden_in:
            reason += f". What {line.hidden_in} executes cannot be read: write the commands themselves"
        elif line and line.why:
            reason = f"{reason}. The line {line.why}: {PLAINLY}"
        return Verdict(fields.decision, reason, fields.name, remedy=call.remedy, place=self.place)


@dataclass(frozen=True, slots=True)
class RuleFile:
    rules: Sequence[FileRule] = ()
    examples: Sequence[tuple[ExampleFields, str]] = ()
    """Each with its place."""


def load_rules(paths: Iterable[Path]) -> Sequence[FileRule]:
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
