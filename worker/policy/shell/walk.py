"""The walk through the syntax tree of a line: every command in it, wherever it stands, and its other effects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.classified import SubCommand
from deputize.worker.policy.shell.judgement import Argv, Judgement
from deputize.worker.policy.shell.literal_output import printed
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.parser import Node
from deputize.worker.policy.shell.places import HARMLESS, leaves_workspace
from deputize.worker.policy.shell.programs import judge
from deputize.worker.policy.shell.programs.forbidden import is_device, why_forbidden
from deputize.worker.policy.shell.words import HOME, UNKNOWN, Word, expand, literal_text

_READ_ONLY_NODES = names(
    "CallExpr BinaryCmd Block Subshell IfClause WhileClause ForClause WordIter CaseClause TimeClause Lit SglQuoted "
    "DblQuoted ParamExp CmdSubst ProcSubst Word ArithmExp BinaryArithm UnaryArithm ParenArithm TestClause BinaryTest "
    "UnaryTest ParenTest File"
)
_HARMLESS_VARIABLES = names("LC_ALL LANG LANGUAGE LC_CTYPE LC_COLLATE LC_MESSAGES TZ NO_COLOR COLUMNS LINES CI")
_ASSIGNING = frozenset({"@", "=", ":="})
_MAX_VARIANTS = 64
_MAX_DEPTH = 30
"""Commands that start each other, such as ``env nice timeout 5 ls``; deeper ones are only searched."""
_LONG = 300
"""Words: longer commands of launchers are only searched."""


@dataclass(slots=True)
class Walk:
    """What one walk finds. ``guessed``: only what is forbidden counts, because it may never be executed."""

    guessed: bool = False
    commands: list[SubCommand] = field(default_factory=list[SubCommand])
    effects: list[tuple[Decision, str]] = field(default_factory=list[tuple[Decision, str]])
    scripts: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    """Texts that a shell executes, and whether that is only a guess."""
    inputs: list[str] = field(default_factory=list[str])
    """Texts that a command of the line may get as input, or as a file."""
    reads_script: bool = False
    variables: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    loop_variables: set[str] = field(default_factory=set[str])

    def through(self, statements: Sequence[Node]) -> None:
        """Walks through statements."""
        nodes = list(_nodes(statements))
        for node in nodes:
            self._note_values(node)
        for node in nodes:
            self._visit(node)

    def effect(self, decision: Decision, reason: str) -> None:
        if not self.guessed or decision is Decision.DENY:
            self.effects.append((decision, reason))

    def words_of(self, nodes: Sequence[Node]) -> list[Word]:
        return [word for node in nodes for word in expand(node, self._guesses)]

    def command(self, argv: Argv, guessed: bool) -> None:
        """Judges a command, then those that it starts."""
        queue, seen = [(argv, guessed, 0)], set[tuple[str, ...]]()
        while queue:
            argv, guessed, depth = queue.pop()
            texts = tuple(word.text for word in argv[:_LONG])
            if not argv or texts in seen:
                continue
            seen.add(texts)
            if depth > _MAX_DEPTH or (depth and len(argv) > _LONG):
                self._search(argv)
                continue
            judged = judge(argv)
            self._record(argv, judged, guessed)
            queue += [(each, guessed, depth + 1) for each in judged.starts]
            queue += [(each, True, depth + 1) for each in (*judged.may_start, *_variants(argv))]

    def _search(self, argv: Argv) -> None:
        """Denies what begins with a forbidden command anywhere, where too many commands start each other."""
        self.effect(Decision.ASK, "too many commands start each other")
        for at in range(len(argv)):
            if why := why_forbidden(argv[at : at + 8]):
                self.effect(Decision.DENY, f"{argv[at].shown} {why}")

    def _record(self, argv: Argv, judged: Judgement, guessed: bool) -> None:
        if judged.decision is Decision.DENY or not guessed:
            shown = tuple(word.shown for word in argv)
            pattern = () if judged.decision is Decision.DENY else shown[: judged.remembered]
            self.commands.append(SubCommand(shown, judged.decision, judged.reason, pattern))
        self.scripts += [(text, guessed) for text in judged.scripts]
        self.scripts += [(text, True) for text in judged.may_execute]
        self.scripts += [(_as_expansion(text), True) for text in judged.expands if "$" in text or "`" in text]
        self.reads_script = self.reads_script or judged.reads_script

    def _note_values(self, node: Node) -> None:
        """Notes which values the line assigns to variables, and which texts it prints."""
        if "Items" in node and node.get("Type") == "WordIter":
            name = node["Name"]["Value"]
            words = self.words_of(node["Items"])
            self.variables.setdefault(name, []).extend(word.text for word in words)
            if words and not any(map(leaves_workspace, words)):
                self.loop_variables.add(name)
        for assigned in [*node.get("Assigns", []), *(node.get("Args", []) if node.get("Type") == "DeclClause" else [])]:
            value = assigned.get("Value")
            if value and assigned.get("Name"):
                texts = [each for word in expand(value, self._guesses) for each in (word.text, *word.guesses)]
                self.variables.setdefault(assigned["Name"]["Value"], []).extend(texts)
        text = printed(node)
        if text:
            self.inputs.append(text)

    def _guesses(self, part: Node) -> Sequence[str]:
        if part["Type"] == "CmdSubst":
            texts = [printed(each["Cmd"]) for each in part.get("Stmts", []) if each.get("Cmd")]
            return [*(text.rstrip("\n") for text in texts if text), ""]
        if part["Type"] != "ParamExp":
            return ()
        name = part.get("Param", {}).get("Value", "")
        if name == "IFS":
            return [" "]
        default = literal_text(part.get("Exp", {}).get("Word") or {})
        known = [*self.variables.get(name, []), *([default] if default else [])]
        return [*dict.fromkeys(each for text in known for each in (text, text.lower())), ""][:8]

    def _visit(self, node: Node) -> None:
        kind = node.get("Type")
        if kind and kind not in _READ_ONLY_NODES:
            self.effect(Decision.ASK, f"{_NAMES.get(kind, kind)} may change what the line does")
        if kind == "ParamExp" and (node.get("Excl") or node.get("Exp", {}).get("Op") in _ASSIGNING):
            self.effect(Decision.ASK, "an expansion may change what the line does")
        if kind == "CallExpr":
            self._call(node)
        if "Redirs" in node:
            for redirect in node["Redirs"]:
                self._redirect(redirect)

    def _call(self, node: Node) -> None:
        argv = self.words_of(node.get("Args", []))
        for assigned in node.get("Assigns", []):
            name = assigned.get("Name", {}).get("Value", "")
            if not argv or name not in _HARMLESS_VARIABLES:
                self.effect(Decision.ASK, f"sets the variable {name}")
        if argv:
            self.command(argv, self.guessed)

    def _redirect(self, redirect: Node) -> None:
        if redirect["Op"] in ("<<", "<<-"):
            text = "".join(each.text for each in expand(redirect.get("Hdoc") or {}, self._guesses))
            self.inputs.append(text)
            return
        for word in expand(redirect["Word"], self._guesses):
            if redirect["Op"] == "<<<":
                self.inputs += [word.text, *word.guesses]
            else:
                self._target(redirect["Op"], word)

    def _target(self, operator: str, word: Word) -> None:
        if operator in ("<", "<&"):
            if not (operator == "<&" and word.text.rstrip("-").isdigit()) and leaves_workspace(word):
                self.effect(Decision.ASK, f"reads {word.shown}")
        elif is_device(word.text):
            self.effect(Decision.DENY, f"writes to the device {word.text}")
        elif not (word.text in HARMLESS or (operator == ">&" and word.text.rstrip("-").isdigit()) or word.text == "-"):
            self.effect(Decision.ASK, f"writes {word.shown}")


_NAMES: Mapping[str, str] = {
    "FuncDecl": "a function",
    "CoprocClause": "a coprocess",
    "ArithmCmd": "arithmetic",
    "LetClause": "arithmetic",
    "DeclClause": "a declaration",
    "ExtGlob": "an extended pattern",
}


def _nodes(tree: Any) -> Iterator[Node]:
    """Yields every object of a tree, however deep, in no particular order."""
    stack = [tree]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            yield found
            stack.extend(found.values())
        elif isinstance(found, list):
            stack.extend(found)


def _variants(argv: Argv) -> Iterator[list[Word]]:
    """Yields the commands that this one may be if its expansions have the texts that they may have."""
    if not any(word.guesses for word in argv):
        return
    options = [word.guesses or (word.text,) for word in argv]
    for texts in itertools.islice(itertools.product(*options), _MAX_VARIANTS):
        words: list[Word] = []
        for word, text in zip(argv, texts, strict=True):
            if not word.guesses:
                words.append(word)
            else:
                words += [Word.literal(each) for each in (text.split() if word.splits else [text])]
        if words:
            yield words


def _as_expansion(text: str) -> str:
    """Returns a line in which a shell replaces what it would replace in the text."""
    return ': "' + text.replace(UNKNOWN, "").replace(HOME, "~").replace('"', "") + '"'
