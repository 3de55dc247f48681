"""Words: production code uses those of the glossary, and plain technical English, as all documents do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import PACKAGES, ROOT, name, nodes, python_files, tree

ROW = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \|.*\| (?P<banned>[^|]+) \|$", re.MULTILINE)
OF_STANDARDS = ("form-action 'none'", "Action", "action_id", "actions", "epoch", "epochs")
"""Literals that others prescribe: content security policies, ``go test -json``, Slack, and Inspect's logs."""
ORDINARY = {*["alert", "capability", "checkout", "epoch", "exchange", "permit", "plugin", "quota", "recipe", "wrapper"]}
"""Words that docstrings use in another sense than that of the glossary: recipes of make, plugins of pytest."""
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def glossary() -> dict[str, list[str]]:
    """Each word of the glossary, with those that must not be used for it."""
    text = (ROOT / "shared" / "README.md").read_text("utf-8")
    return {row["word"]: row["banned"].split(", ") for row in ROW.finditer(text)}


def texts(module: ast.Module) -> Iterator[str]:
    """The names and string literals of a module, without docstrings."""
    docstrings = {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
    for node in nodes(module):
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


def docstrings(module: ast.Module) -> Iterator[str]:
    """The docstrings of a module, also those of its constants and fields."""
    for node in nodes(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


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


def test_docstrings_use_the_words_of_the_glossary() -> None:
    words = {word for words in glossary().values() for word in words}
    assert words >= ORDINARY
    banned = pattern(sorted(words - ORDINARY))
    found = {
        name(path): [each for each in docstrings(tree(path)) if banned.search(each)] for path in python_files(*PACKAGES)
    }
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_every_docstring_is_read() -> None:
    code = '"""One."""\nA = 1\n"""Two."""\nclass B:\n    x: int\n    """Three."""\n    def f(): "Four."\n'
    assert [*docstrings(ast.parse(code))] == ["One.", "Two.", "Three.", "Four."]


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        *(("class HouseKeeper: ...", True), ("lock_token = 1", True), ("print('two keepers')", True)),
        *(("def f(keeper): ...", True), ("a.KEEPER", True), ("f'{x} keeper'", True), ('"""A keeper."""', False)),
        *(("# keeper", False), ("timekeepers = 1", False), ("locktoken = 1", False)),
    ],
)
def test_a_word_is_found_in_names_and_strings_but_not_in_docstrings_and_longer_words(code: str, is_found: bool) -> None:
    assert bool(found(ast.parse(code), pattern(["keeper", "lock token"]))) is is_found


UNUSUAL = re.compile(
    r"\b(?:told|(?:no|some)body|someone|whoever|shall)\b"
    r"|\b_?(?:said|telling)\b|\b_tell\b|(?<!\.)\btell\b"  # a file's ``tell()`` is Python's
    r"|(?<!there )(?<!null )\b(?:is|are) no (?!more\b|\w+er\b)"
    r"|\bsays\b|\btells\b|\bgives\b(?! up)|\bmakes way\b",
    re.IGNORECASE,
)


def unusual_words(text: str) -> list[str]:
    return [found[0] for found in UNUSUAL.finditer(text)]


def test_production_code_and_documents_use_plain_words() -> None:
    kinds = ("*.py", "*.lua", "*.md", "*.js", "*.html", "*.css")
    files = [path for package in PACKAGES for kind in kinds for path in sorted((ROOT / package).rglob(kind))]
    files += [ROOT / "README.md", *sorted((ROOT / ".github").glob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]
    assert len(files) > 100
    assert {name(path): words for path in files if (words := unusual_words(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(
            ("# the caller is told", 1),
            ("said = 1", 1),
            ("_tell = 2", 1),
            ("Nobody asks", 1),
            ("def tell(x): ...", 1),
            ("if somebody asks", 1),
        ),
        *(("it is no directory", 1), ("they are no changes", 1), ("the error says why", 1), ("it gives one", 1)),
        *(("one makes way", 1), ("# there is no folder", 0), ("it is no longer used", 0), ("file.tell()", 0)),
        *(("foretell = 1", 0), ("it gives up", 0), ("there are no files", 0)),
    ],
)
def test_an_unusual_word_is_distinguished_from_ordinary_english(text: str, count: int) -> None:
    assert len(unusual_words(text)) == count
