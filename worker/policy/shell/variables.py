"""Variables: which a program executes, and which are harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deputize.worker.policy.shell.literal_output import printed
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.parser import Node
from deputize.worker.policy.shell.places import leaves_workspace
from deputize.worker.policy.shell.words import HOME, Word, literal_text

HARMLESS = names("LC_ALL LANG LANGUAGE LC_CTYPE LC_COLLATE LC_MESSAGES TZ NO_COLOR COLUMNS LINES CI")
"""Those that change at most the form of what is printed."""
_EXECUTED = re.compile(
    r"(?:\w*_)?(?:PAGER|EDITOR|VISUAL|SHELL|BROWSER|COMMAND|ASKPASS|SSH|DIFF|CMD|EXEC|OPENER|TERMINAL|PROXY_COMMAND)"
    r"|LESSOPEN|LESSCLOSE|BASH_ENV|ENV|PS[0-4]|PROMPT_COMMAND|GIT_CONFIG_VALUE_\d+|GIT_\w*|RUSTC_\w*|CC|CXX|LD|MAKE"
)


def is_executed(name: str) -> bool:
    """Whether a program or a shell may execute the variable's value."""
    return _EXECUTED.fullmatch(name) is not None


@dataclass(slots=True)
class Variables:
    """The values that a line assigns to variables: an expansion may have any of them, or none."""

    _values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _inside: set[str] = field(default_factory=set[str])
    """Variables of loops over paths inside the workspace."""

    def assign(self, name: str, words: Iterable[Word]) -> list[str]:
        """Notes the value of an assignment; returns its possible texts."""
        texts = [text for word in words for text in (word.text, *word.guesses)]
        self._values.setdefault(name, []).extend(texts)
        return texts

    def iterate(self, name: str, words: Sequence[Word]) -> None:
        """Notes the values of a loop."""
        self.assign(name, words)
        if words and not any(map(leaves_workspace, words)):
            self._inside.add(name)

    def all_values(self) -> list[str]:
        return [text for texts in self._values.values() for text in texts]

    def is_vague(self, name: str) -> bool:
        """Whether a variable may have any value, such as a path outside of the workspace."""
        return name not in self._inside and name not in ("PWD", "?", "#", "$", "!")

    def guesses(self, part: Node) -> Sequence[str]:
        """Returns the texts that an expansion may have."""
        if part["Type"] == "CmdSubst":
            texts = [printed(each["Cmd"]) for each in part.get("Stmts", []) if each.get("Cmd")]
            return [*(text.rstrip("\n") for text in texts if text), ""]
        if part["Type"] != "ParamExp":
            return ()
        name = part.get("Param", {}).get("Value", "")
        if name in ("IFS", "HOME"):
            return [" " if name == "IFS" else HOME]
        default = literal_text(part.get("Exp", {}).get("Word") or {})
        known = [*self._values.get(name, []), *([default] if default else [])]
        return [*dict.fromkeys(each for text in known for each in (text, text.lower())), ""][-9:]
