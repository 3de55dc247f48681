"""The walk through the syntax tree of a line: every command in it, wherever it stands, and its other effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.commands import Commands
from deputize.worker.policy.shell.functions import fork_bomb
from deputize.worker.policy.shell.judgement import Argv
from deputize.worker.policy.shell.literal_output import printed
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.parser import Node, nodes_of
from deputize.worker.policy.shell.places import HARMLESS, leaves_workspace
from deputize.worker.policy.shell.programs.forbidden import is_device
from deputize.worker.policy.shell.variables import HARMLESS as HARMLESS_VARIABLES
from deputize.worker.policy.shell.variables import Variables, is_executed
from deputize.worker.policy.shell.words import Word, expand

_READ_ONLY_NODES = names(
    "CallExpr BinaryCmd Block Subshell IfClause WhileClause ForClause WordIter CaseClause TimeClause Lit "
    "SglQuoted DblQuoted ParamExp CmdSubst ProcSubst Word ArithmExp BinaryArithm UnaryArithm ParenArithm "
    "TestClause BinaryTest UnaryTest ParenTest"
)
_CALCULATES = names("DeclClause ArithmExp ArithmCmd LetClause TestClause CStyleLoop")
_ASSIGNS = frozenset({"=", ":=", "++", "--"})
_SHOWN: Mapping[str, str] = {
    "FuncDecl": "a function",
    "CoprocClause": "a coprocess",
    "ArithmCmd": "arithmetic",
    "LetClause": "arithmetic",
    "CStyleLoop": "arithmetic",
    "DeclClause": "a declaration",
    "ExtGlob": "an extended pattern",
}


@dataclass(slots=True)
class Walk:
    """Walks through the statements of one text and adds what it finds to ``found``."""

    found: Commands
    guessed: bool
    variables: Variables = field(default_factory=Variables)

    def through(self, statements: Sequence[Node]) -> None:
        """Walks through statements."""
        nodes = list(nodes_of(statements))
        for node in nodes:
            self._note(node)
        if name := fork_bomb(nodes):
            self._effect(Decision.DENY, f"the function {name} starts itself without end")
        for node in nodes:
            self._visit(node)

    def _effect(self, decision: Decision, reason: str) -> None:
        self.found.effect(decision, reason, self.guessed)

    def _words(self, nodes: Sequence[Node]) -> list[Word]:
        return [word for node in nodes for word in expand(node, self.variables)]

    def _note(self, node: Node) -> None:
        """Notes which values the line assigns to variables, and which texts it prints."""
        kind = node.get("Type")
        if kind == "WordIter":
            self.variables.iterate(node["Name"]["Value"], self._words(node.get("Items", [])))
        for assigned in [*node.get("Assigns", []), *(node.get("Args", []) if kind == "DeclClause" else [])]:
            value, name = assigned.get("Value"), assigned.get("Name", {}).get("Value")
            if value and name:
                texts = self.variables.assign(name, expand(value, self.variables))
                if is_executed(name):
                    self.found.scripts += [(text, True) for text in texts]
        text = printed(node)
        if text:
            self.found.inputs.append(text)

    def _visit(self, node: Node) -> None:
        kind = node.get("Type")
        if kind and kind not in _READ_ONLY_NODES:
            self._effect(Decision.ASK, f"{_SHOWN.get(kind, kind)} may change what the line does")
        if kind == "CallExpr":
            self._call(node)
        elif kind == "ParamExp":
            self._parameter(node)
        elif kind in _CALCULATES:
            self._calculation(node)
        elif kind == "ExtGlob":
            self.found.expansions([node.get("Pattern", {}).get("Value", "")])
        for redirect in node.get("Redirs", ()):
            self._redirect(redirect)

    def _call(self, node: Node) -> None:
        argv: Argv = self._words(node.get("Args", []))
        for assigned in node.get("Assigns", []):
            name = assigned.get("Name", {}).get("Value", "")
            if not argv or name not in HARMLESS_VARIABLES:
                self._effect(Decision.ASK, f"sets the variable {name}")
        if argv:
            self.found.command(argv, self.guessed)

    def _parameter(self, node: Node) -> None:
        """An expansion may assign, name its variable by another one, or execute an index."""
        operator = node.get("Exp", {}).get("Op", "")
        if node.get("Excl") or operator in ("@", "=", ":="):
            self._effect(Decision.ASK, "an expansion may change what the line does")
        if node.get("Index") or node.get("Slice"):
            self._calculation({"Index": node.get("Index"), "Slice": node.get("Slice")})

    def _calculation(self, node: Node) -> None:
        """A calculation executes what stands in ``a[$(…)]``, also where it comes from a variable or a quoted text."""
        inside = list(nodes_of(node))
        texts = [each["Value"] for each in inside if isinstance(each.get("Value"), str)]
        self.found.expansions([*texts, *self.variables.all_values()])
        if any(
            each.get("Op") in _ASSIGNS or str(each.get("Op", "")).endswith("=")
            for each in inside
            if "Arithm" in str(each.get("Type"))
        ):
            self._effect(Decision.ASK, "a calculation sets a variable")
        if any(each.get("Op") in ("-v", "-R") for each in inside):
            self._effect(Decision.ASK, "a test may calculate with a text")
        if any("[" in text or "$" in text or "`" in text for text in texts):
            self._effect(Decision.ASK, "a calculation may execute a text")

    def _redirect(self, redirect: Node) -> None:
        if redirect["Op"] in ("<<", "<<-"):
            text = "".join(each.text for each in expand(redirect.get("Hdoc") or {}, self.variables))
            self.found.inputs.append(text)
            return
        for word in expand(redirect.get("Word") or {}, self.variables):
            if redirect["Op"] == "<<<":
                self.found.inputs += [word.text, *word.guesses]
            else:
                self._target(redirect["Op"], word)

    def _target(self, operator: str, word: Word) -> None:
        duplicates = operator in ("<&", ">&") and (word.text.rstrip("-").isdigit() or word.text == "-")
        if duplicates or word.text in HARMLESS:
            return
        if operator in ("<", "<&"):
            if leaves_workspace(word):
                self._effect(Decision.ASK, f"reads {word.shown}")
        elif any(map(is_device, (word.text, *word.guesses))):
            self._effect(Decision.DENY, f"writes to the device {word.shown}")
        else:
            self._effect(Decision.ASK, f"writes {word.shown}")
