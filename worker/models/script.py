"""A script for the scripted model: rules that match a task, the turns to play for it, and the templates in them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import regex
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from shared.errors import Misconfigured, ModelUnavailable
from shared.wire import explain

SECONDS = 0.5
_PLACE = re.compile(
    r"""\{\{\s* (?P<verb>task|calls|result|count|list|item) (?: :(?P<which>-?\d+|all) )?
        (?: \s+ /(?P<regex>(?:\\/|[^/\n])+)/ )? (?: \s+ else \s+ "(?P<otherwise>[^"]*)" )? \s*\}\}""",
    re.VERBOSE,
)
BUILTIN = "demo.yaml"
LABEL = "(This text comes from a script, not from a language model.)"


def search(pattern: str, text: str, *, lines: bool = False) -> bool:
    """Whether there is a match; with ``lines``, ^ and $ are those of each line. Raises ModelUnavailable."""
    return bool(matches(pattern, text, lines=lines, most=1))


def matches(pattern: str, text: str, *, lines: bool = True, most: int | None = None) -> list[regex.Match[str]]:
    """The first matches. Raises ModelUnavailable where looking for them takes too long."""
    begun, seconds = time.thread_time(), SECONDS
    while time.thread_time() - begun < SECONDS:
        try:
            return list(islice(regex.finditer(pattern, text, regex.MULTILINE if lines else 0, timeout=seconds), most))
        except TimeoutError:  # the library counts what all threads compute: this may have been the work of others
            seconds *= 2
    raise ModelUnavailable(
        f"a regular expression of the script takes more than {SECONDS} s on this text; write it without nested "
        "repetitions"
    )


@dataclass(frozen=True, slots=True)
class Past:
    """What a turn can speak about: the task, the tool results so far, and how often this was played before."""

    task: str
    results: tuple[str, ...]
    round: int = 0

    def text(self, which: str | None) -> str:
        """A tool result, counted from 1 or, negative, from the end; "" where there is none."""
        if which == "all":
            return "\n".join(self.results)
        number = int(which or -1)
        index = number - 1 if number > 0 else len(self.results) + number
        return self.results[index] if 0 <= index < len(self.results) else ""


def fill(value: Any, past: Past) -> Any:
    """The value with every template in its strings filled in."""
    match value:
        case str():
            return _PLACE.sub(lambda place: _words(place, past), value)
        case list():
            return [fill(part, past) for part in value]
        case dict():
            return {key: fill(part, past) for key, part in value.items()}
        case _:
            return value


def _words(place: re.Match[str], past: Past) -> str:
    verb, regex = place["verb"], place["regex"]
    if verb == "calls":
        return str(len(past.results))
    source = past.task if verb == "task" else past.text(place["which"])
    found = _matches(regex, source) if regex else [source] if source else []
    if verb == "count":
        return str(len(found))
    if not found:
        return place["otherwise"] or ""
    if verb == "list":
        return "\n".join(f"- {match}" for match in found)
    return found[past.round % len(found)] if verb == "item" else found[0]


def _matches(regex: str, text: str) -> list[str]:
    """The different matches, in order of their first one."""
    found = matches(regex.replace("\\/", "/"), text)
    return list(dict.fromkeys(match[1] if match.re.groups else match[0] for match in found))


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern, regex.MULTILINE)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Part):
    """Which tasks a rule is for, looked for in the first user message. Nothing given: all of them."""

    contains: str = ""
    regex: Pattern = ""


class Block(_Part):
    """One piece of a turn: a text, a thought or a call; strings are templates (``fill.py``)."""

    text: str | None = None
    thinking: str | None = None
    call: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    times: int = Field(default=1, ge=1)
    """How many calls; ``{{item}}`` goes on from one to the next."""
    when: Pattern | None = None
    """Only if the last tool result has a match of this."""
    unless: Pattern | None = None
    """Only if the last tool result has none."""
    tool: str | None = None
    """Only if the run has this tool."""
    no_tool: str | None = None
    """Only if the run has not."""

    @model_validator(mode="after")
    def _one(self) -> Block:
        if sum(part is not None for part in (self.text, self.thinking, self.call)) != 1:
            raise ValueError("a block is exactly one of text, thinking or call")
        return self


class Fault(_Part):
    """A failure played before the turn: the call is made again (``cut``: after some words), the model is gone, or
    the conversation is too long for it unless it is only one message."""

    kind: Literal["retry", "cut", "unavailable", "too_long"]
    message: str = "a fault of the script"
    delay: float = Field(default=0.0, ge=0)
    """Seconds until the next try."""


class Tokens(_Part):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Rates(_Part):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


class Turn(_Part):
    """One reply. ``repeat`` plays it so many times; ``delay`` is in seconds, before the first word."""

    blocks: list[Block] = Field(default_factory=list[Block])
    repeat: int = Field(default=1, ge=1)
    delay: float = Field(default=0.0, ge=0)
    stop: str | None = None
    usage: Tokens | None = None
    faults: list[Fault] = Field(default_factory=list[Fault])


def _spelled_out(turn: Any) -> Any:
    """A list of blocks is short for a turn with only these."""
    return {"blocks": turn} if isinstance(turn, list) else turn


class Rule(_Part):
    """The turns for the tasks that match, and the words for when tools are not allowed any more."""

    match: Match = Match()
    turns: list[Annotated[Turn, BeforeValidator(_spelled_out)]] = Field(min_length=1)
    summary: str = "The script has nothing more to say. {{calls}} tool calls were made."


class Script(_Part):
    """Rules in order; the first that matches is played. ``pace`` is the seconds between two pieces of text."""

    rules: list[Rule] = Field(min_length=1)
    price: Rates | None = None
    window: int = Field(default=1_000_000, ge=1)
    """Tokens a conversation can have."""
    pace: float = Field(default=0.0, ge=0)
    label: str = LABEL
    """Put below every final text, so that nobody takes it for a model's. Empty: nothing."""


def load_script(path: str) -> Script:
    """A script from a YAML or JSON file, or the built-in one for "". Raises Misconfigured that names the place."""
    shown = path or BUILTIN
    try:
        source = Path(path) if path else files(__package__ or "").joinpath(BUILTIN)
        text = source.read_text("utf-8")
        return Script.model_validate(json.loads(text) if shown.endswith(".json") else yaml.safe_load(text))
    except OSError as error:
        raise Misconfigured(f"the script {shown} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        mistakes = "; ".join(f"{m['pointer'] or '/'}: {m['detail']}" for m in explain(error, Script))
        raise Misconfigured(f"the script {shown} is wrong: {mistakes}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Misconfigured(f"the script {shown} is not valid YAML or JSON{_place(error)}") from None


def _place(error: Exception) -> str:
    """Where it is wrong, without a word of what stands there: the file may be another one than was meant."""
    if isinstance(error, json.JSONDecodeError):
        return f": line {error.lineno}, column {error.colno}"
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
