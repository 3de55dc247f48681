"""The glossary's words: names and string literals of production code use no word of its column "not"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import PACKAGES, ROOT, name, python_files, tree

ROW = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \|.*\| (?P<banned>[^|]+) \|$", re.MULTILINE)
OF_STANDARDS = ("form-action 'none'",)
"""Literals that a standard prescribes: here a directive of content security policies."""
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def glossary() -> dict[str, list[str]]:
    """Each word of the glossary, with those that must not be used for it."""
    text = (ROOT / "shared" / "README.md").read_text("utf-8")
    return {row["word"]: row["banned"].split(", ") for row in ROW.finditer(text)}


def texts(module: ast.Module) -> Iterator[str]:
    """The names and string literals of a module, without docstrings."""
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def pattern(words: list[str]) -> re.Pattern[str]:
    """Matches any of the words in text, ``snake_case`` or, with its humps split, ``CamelCase``."""
    each = "|".join(re.escape(word).replace(r"\ ", "[ _-]") for word in words)
    return re.compile(rf"(?<![a-z])(?:{each})s?(?![a-z])", re.IGNORECASE)


def found(module: ast.Module, banned: re.Pattern[str]) -> list[str]:
    return [text for text in texts(module) if text not in OF_STANDARDS and banned.search(HUMP.sub("_", text))]


def test_every_word_of_the_glossary_names_those_that_are_not_used_for_it() -> None:
    rows = glossary()
    lines = (ROOT / "shared" / "README.md").read_text("utf-8").splitlines()
    assert len(rows) == sum(line.startswith("| **") for line in lines) > 0
    assert set(rows) & {word for banned in rows.values() for word in banned} == set()


def test_production_code_uses_the_words_of_the_glossary() -> None:
    banned = pattern([word for words in glossary().values() for word in words])
    wrong = {name(path): texts for path in python_files(*PACKAGES) if (texts := found(tree(path), banned))}
    assert wrong == {}


@pytest.mark.parametrize(
    "code",
    [
        "class HouseKeeper: ...",
        "lock_token = 1",
        "print('two keepers')",
        "def f(keeper): ...",
        "a.KEEPER",
        "f'{x} keeper'",
    ],
)
def test_a_word_is_found_in_every_kind_of_name_and_in_strings(code: str) -> None:
    assert found(ast.parse(code), pattern(["keeper", "lock token"]))


@pytest.mark.parametrize("code", ['"""A keeper."""', "# keeper", "timekeepers = 1", "locktoken = 1"])
def test_docstrings_comments_and_longer_words_are_not_searched(code: str) -> None:
    assert not found(ast.parse(code), pattern(["keeper", "lock token"]))
