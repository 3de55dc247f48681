"""The keys of a policy file. Adding a matcher is a field here and a line in MATCHERS (``matchers.py``)."""

from __future__ import annotations

from fnmatch import fnmatchcase
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
    model_validator,
)

from ...shared.errors import ToolError
from ...shared.request import ApprovalMode
from ..search.glob_pattern import GlobPattern
from ..tools.traits import Kind
from ..trust.sources import TAINTING
from .base import Decision
from .commands import prefix_words
from .matchers import comparison


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
Depth = Annotated[str, BeforeValidator(_checked_depth)]


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
    depth: Depth | None = None
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
