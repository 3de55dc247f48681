"""Templates of scripts: ``{{…}}`` puts what tools really returned into the script's words and arguments.

{{task}}                    the first user message
{{calls}}                   how many tool results there are so far
{{result}}  {{result:2}}    the last tool result, the second one; ``all`` is all of them
{{result:1 /re/}}           the first match in it: its first group, or all of it
{{count:1 /re/}}            how many different matches
{{list:1 /re/}}             the different matches, a line ``- match`` each
{{item:1 /re/}}             the match whose turn it is in repeated turns and calls; after the last the first
{{… else "words"}}          what to put where there is no match; otherwise nothing
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from worker.models.patterns import finditer

_PLACE = re.compile(
    r"""\{\{\s* (?P<verb>task|calls|result|count|list|item) (?: :(?P<which>-?\d+|all) )?
        (?: \s+ /(?P<regex>(?:\\/|[^/\n])+)/ )? (?: \s+ else \s+ "(?P<otherwise>[^"]*)" )? \s*\}\}""",
    re.VERBOSE,
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
    found = finditer(regex.replace("\\/", "/"), text)
    return list(dict.fromkeys(match[1] if match.re.groups else match[0] for match in found))
