"""What the documents name is there, and no file names the machine it was written on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files, texts

DOCUMENTS = (
    "README.md",
    "shared/README.md",
    "worker/README.md",
    "worker/policy/README.md",
    "worker/sandbox/README.md",
    "orchestrator/README.md",
    "orchestrator/metrics/README.md",
    *sorted(f"{path.relative_to(ROOT)}" for path in ROOT.glob("*/docs/*.md")),
    "tests/system/README.md",
    "tests/benchmarks/README.md",
    "tests/requirements/README.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    ".github/CHANGELOG.md",
    ".github/FEATURES.md",
    ".github/RECIPES.md",
)
FOLDERS = {"shared", "orchestrator", "worker", "tests", ".ci", ".github"}
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
BACKTICKED = re.compile(r"`([\w./*-]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
A_TEST = re.compile(r"\[test\]\(([\w./-]+\.py) \"(\w+)\"\)")

SOME_MACHINES = re.compile(r"(?<![\w.])/(home|Users|root|work)/\w")
A_REGISTRY = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|ghcr\.io")


def paths_named(text: str, folder: Path) -> list[str]:
    """The backticked words outside code blocks that look like a path in this repository."""
    words = BACKTICKED.findall(FENCED.sub("", text))
    below = FOLDERS | {path.name for path in folder.iterdir() if path.is_dir()}
    return [word for word in words if ("/" in word and word.split("/")[0] in below) or word.endswith(".py")]


def exists(word: str, folder: Path) -> bool:
    if "/" not in word:
        return any(path.name == word for path in files())
    return any(any(base.glob(word.rstrip("/"))) for base in (ROOT, folder))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_a_document_exists(document: str) -> None:
    path = ROOT / document
    words = paths_named(path.read_text("utf-8"), path.parent)
    assert [word for word in words if not exists(word, path.parent)] == []


def test_a_path_is_distinguished_from_another_word() -> None:
    text = "`worker/core/loop.py` `tests/system/` `read_file` `/v1/tools` `a/b`\n```\n`shared/gone.py`\n```\n`loop.py`"
    assert paths_named(text, ROOT) == ["worker/core/loop.py", "tests/system/", "loop.py"]


def missing_tests(text: str, folder: Path) -> list[str]:
    """The tests that a text links, with their names as the links' titles, and that are not there."""
    return [
        f"{path}::{test}"
        for path, test in A_TEST.findall(text)
        if not (folder / path).is_file() or not re.search(rf"^(async )?def {test}\(", (folder / path).read_text(), re.M)
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_a_document_names_exists(document: str) -> None:
    path = ROOT / document
    text = path.read_text("utf-8")
    assert missing_tests(text, path.parent) == []
    assert re.findall(r"`[\w./-]+\.py::\w+`", text) == []


def wrong_links(text: str, folder: Path) -> list[str]:
    """The links to a file or a heading of this repository that lead nowhere."""
    return [
        link for link in LINK.findall(FENCED.sub("", text)) if "://" not in link and not leads_somewhere(link, folder)
    ]


def leads_somewhere(link: str, folder: Path) -> bool:
    file, _, heading = link.partition("#")
    path = folder / file
    return path.exists() and (not heading or heading in headings(path.read_text("utf-8")))


def headings(text: str) -> set[str]:
    """The names by which links reach the headings."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_in_a_document_leads_somewhere(document: str) -> None:
    path = ROOT / document
    assert wrong_links(path.read_text("utf-8"), path.parent) == []


def test_a_link_that_leads_nowhere_is_distinguished() -> None:
    text = "[a](README.md) [b](README.md#interfaces) [c](gone.md) [d](README.md#gone) [e](https://example.org)"
    assert wrong_links(text, ROOT) == ["gone.md", "README.md#gone"]


def test_every_sentence_of_what_happens_when_names_its_test() -> None:
    text = (ROOT / "tests/system/README.md").read_text("utf-8")
    sentences = re.split(r"^- ", text.split("## What happens when")[1], flags=re.MULTILINE)[1:]
    assert len(sentences) > 10
    assert [each for each in sentences if not A_TEST.search(each)] == []


def test_a_test_that_is_gone_is_distinguished_from_one_that_is_there() -> None:
    here = "architecture/test_docs.py"
    text = f'[test]({here} "missing_tests") [test]({here} "gone") [test](gone.py "x") [test]({here})'
    assert missing_tests(text, ROOT / "tests") == [f"{here}::gone", "gone.py::x"]


PAGES = [path for path in DOCUMENTS if "/docs/" in path or (path.count("/") == 1 and path.endswith("/README.md"))]
"""Those of the three packages."""
LINES, WORDS = 120, 25
"""The most lines of a page, and words of its sentences on average."""
BETWEEN_TEXTS = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s+|^\|.*$|^#.*$", re.MULTILINE)
END_OF_SENTENCE = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z`\[\"*])")


def sentences(text: str) -> list[int]:
    """How many words the sentences have, without code, tables, headings and the targets of links."""
    plain = re.sub(r"\]\([^)]*\)", "]", FENCED.sub("", text))
    found = [each for block in BETWEEN_TEXTS.split(plain) for each in END_OF_SENTENCE.split(block)]
    return [words for each in found if (words := len(re.findall(r"[^\s\W]\S*", each))) > 2]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_so_are_its_sentences(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert len(text.splitlines()) <= LINES
    words = sentences(text)
    assert sum(words) <= WORDS * len(words), words


def test_the_words_of_a_sentence_are_counted() -> None:
    text = "# A title of five\n\nOne `two` three. Four [five](a/b c) six\nseven!\n\n| a | b | c |\n- eight nine ten"
    assert sentences(text) == [3, 4, 3]


def test_no_file_names_this_checkout() -> None:
    assert len(ROOT.parts) < 3 or [path for path, text in texts().items() if f"{ROOT}/" in text] == []


def test_no_file_names_a_home_folder_or_a_registry() -> None:
    """Tests may name home folders: they are what a path must not escape to."""
    found = []
    for path, text in texts().items():
        patterns = [A_REGISTRY] + ([] if path.startswith("tests/") else [SOME_MACHINES])
        found += [f"{path}: {match.group()}" for pattern in patterns for match in pattern.finditer(text)]
    assert found == []
