"""The script of the scripted model: rules that match tasks, the turns they play, and the templates in these."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import regex
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ...shared.errors import Misconfigured, ModelUnavailable
from ...shared.wire import explain
from ..text import patterns
from ..text.patterns import ComputeLimit

T = TypeVar("T")
REGEX_SECONDS = 0.5
_TEMPLATE = re.compile(
    r"""\{\{\s* (?P<command>task|calls|result|count|list|item) (?: :(?P<which>-?\d+|all) )?
        (?: \s+ /(?P<regex>(?:\\/|[^/\n])+)/ )? (?: \s+ else \s+ "(?P<otherwise>[^"]*)" )? \s*\}\}""",
    re.VERBOSE,
)
BUILTIN = "demo.yaml"
LABEL = "(This text comes from a script, not from a language model.)"


def search(pattern: str, text: str, *, lines: bool = False) -> bool:
    """Returns whether there is a match; with ``lines``, ^ and $ match at each line. Raises ModelUnavailable."""
    return _limited(patterns.search, pattern, text, lines=lines) is not None


def _limited(find: Callable[[regex.Pattern[str], str, ComputeLimit], T], pattern: str, text: str, *, lines: bool) -> T:
    try:
        return find(regex.compile(pattern, regex.MULTILINE if lines else 0), text, ComputeLimit(REGEX_SECONDS))
    except TimeoutError:
        raise ModelUnavailable(
            f"a regular expression of the script takes more than {REGEX_SECONDS} s on this text; write it without "
            "nested repetitions"
        ) from None


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """The values that templates refer to: the task, the tool results so far, and the repetition of the turn."""

    task: str
    results: tuple[str, ...]
    round: int = 0

    def text(self, which: str | None) -> str:
        """Returns the tool result of that number, from 1 or, negative, from the end; "" where there is none."""
        if which == "all":
            return "\n".join(self.results)
        number = int(which or -1)
        index = number - 1 if number > 0 else len(self.results) + number
        return self.results[index] if 0 <= index < len(self.results) else ""


def render(value: Any, context: TemplateContext) -> Any:
    """Returns the value with the templates in its strings replaced."""
    match value:
        case str():
            return _TEMPLATE.sub(lambda template: _expand(template, context), value)
        case list():
            return [render(part, context) for part in value]
        case dict():
            return {key: render(part, context) for key, part in value.items()}
        case _:
            return value


def _expand(template: re.Match[str], context: TemplateContext) -> str:
    command, regex = template["command"], template["regex"]
    if command == "calls":
        return str(len(context.results))
    source = context.task if command == "task" else context.text(template["which"])
    found = _distinct_matches(regex, source) if regex else [source] if source else []
    if command == "count":
        return str(len(found))
    if not found:
        return template["otherwise"] or ""
    if command == "list":
        return "\n".join(f"- {match}" for match in found)
    return found[context.round % len(found)] if command == "item" else found[0]


def _distinct_matches(regex: str, text: str) -> list[str]:
    """Returns each match once, in order of its first occurrence; of a pattern with groups, the first group."""
    found = _limited(patterns.matches, regex.replace("\\/", "/"), text, lines=True)
    return list(dict.fromkeys(match[1] if match.re.groups else match[0] for match in found))


def _check_regex(pattern: str) -> str:
    try:
        regex.compile(pattern, regex.MULTILINE)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_check_regex)]


class _ScriptModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_ScriptModel):
    """Matches tasks by the first user message; without a condition, all of them."""

    contains: str = ""
    regex: Pattern = ""


class Block(_ScriptModel):
    """One block of a turn: text, thinking or a call; its strings are templates (``render``)."""

    text: str | None = None
    thinking: str | None = None
    call: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    times: int = Field(default=1, ge=1)
    """Number of calls; ``{{item}}`` advances from one to the next."""
    when: Pattern | None = None
    """Only if this matches the last tool result."""
    unless: Pattern | None = None
    """Only if this does not match the last tool result."""
    tool: str | None = None
    """Only if the run has this tool."""
    no_tool: str | None = None
    """Only if the run does not have this tool."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> Block:
        if sum(part is not None for part in (self.text, self.thinking, self.call)) != 1:
            raise ValueError("a block is exactly one of text, thinking or call")
        return self


class Fault(_ScriptModel):
    """A failure before the turn: a retry (``cut``: after the first delta), an unavailable model, or, with more than
    one message, a conversation that exceeds the window."""

    kind: Literal["retry", "cut", "unavailable", "too_long"]
    message: str = "a fault of the script"
    delay: float = Field(default=0.0, ge=0)
    """Seconds until the next try."""


class Tokens(_ScriptModel):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Rates(_ScriptModel):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


class Turn(_ScriptModel):
    """One reply, played ``repeat`` times. ``delay`` is the seconds before the first delta."""

    blocks: list[Block] = Field(default_factory=list[Block])
    repeat: int = Field(default=1, ge=1)
    delay: float = Field(default=0.0, ge=0)
    stop: str | None = None
    usage: Tokens | None = None
    faults: list[Fault] = Field(default_factory=list[Fault])


def _expand_turn(turn: Any) -> Any:
    """Accepts a list of blocks as the short form of a turn."""
    return {"blocks": turn} if isinstance(turn, list) else turn


class Rule(_ScriptModel):
    """The turns for matching tasks; ``summary`` is the reply when tools are not allowed or no turn is left."""

    match: Match = Match()
    turns: list[Annotated[Turn, BeforeValidator(_expand_turn)]] = Field(min_length=1)
    summary: str = "The script has nothing more to say. Number of tool calls so far: {{calls}}."


class Script(_ScriptModel):
    """Rules in order; the first match is played. ``pace`` is the seconds between two deltas."""

    rules: list[Rule] = Field(min_length=1)
    price: Rates | None = None
    window: int = Field(default=1_000_000, ge=1)
    """Context window in tokens."""
    pace: float = Field(default=0.0, ge=0)
    label: str = LABEL
    """Appended to every final text, so that it is not mistaken for a model's; "" for none."""


def load_script(path: str) -> Script:
    """Loads a YAML or JSON file, or the built-in script for "". Raises Misconfigured with the position of the error."""
    name = path or BUILTIN
    try:
        source = Path(path) if path else files(__package__ or "").joinpath(BUILTIN)
        text = source.read_text("utf-8")
        return Script.model_validate(json.loads(text) if name.endswith(".json") else yaml.safe_load(text))
    except OSError as error:
        raise Misconfigured(f"the script {name} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        mistakes = "; ".join(f"{m['pointer'] or '/'}: {m['detail']}" for m in explain(error, Script))
        raise Misconfigured(f"the script {name} is wrong: {mistakes}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Misconfigured(f"the script {name} is not valid YAML or JSON{_position(error)}") from None


def _position(error: Exception) -> str:
    """Returns line and column without the content: the path may name a file of another kind, with secrets."""
    if isinstance(error, json.JSONDecodeError):
        return f": line {error.lineno}, column {error.colno}"
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
