"""Functions that start themselves without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deputize.worker.policy.shell.parser import Node, nodes_of
from deputize.worker.policy.shell.words import literal_text


def fork_bomb(nodes: Sequence[Node]) -> str | None:
    """Returns the name of a function that starts itself beside itself, also through others; or None."""
    bodies = {
        node["Name"]["Value"]: node["Body"] for node in nodes if node.get("Type") == "FuncDecl" and "Name" in node
    }
    calls = {name: set(_called(name, body)) for name, body in bodies.items()}
    for name, body in bodies.items():
        beside = {each for part in _beside(body) for each in _called(name, part)}
        if any(name in _reached(each, calls) for each in beside):
            return name
    return None


def _reached(name: str, calls: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = set[str](), [name]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting += calls.get(each, ())
    return reached


def _beside(tree: Any) -> Iterator[Any]:
    """Yields what runs beside something else: in the background, or in a pipeline."""
    for node in nodes_of(tree):
        if node.get("Background") or node.get("Coprocess") or node.get("Type") == "CoprocClause":
            yield node
        if node.get("Type") == "BinaryCmd" and node.get("Op") in ("|", "|&"):
            yield node


def _called(function: str, tree: Any) -> Iterator[str]:
    for node in nodes_of(tree):
        if node.get("Type") == "CallExpr" and node.get("Args"):
            word = node["Args"][0]
            named = [part.get("Param", {}).get("Value") for part in word.get("Parts", [])]
            yield function if named == ["FUNCNAME"] else literal_text(word) or ""
