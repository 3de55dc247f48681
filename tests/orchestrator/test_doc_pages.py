"""The pages of the three packages have one shape, short sentences, and names that exist."""

from __future__ import annotations

import re

import click
import pytest

from deputize.orchestrator.cli import cli
from deputize.shared.settings import Settings
from deputize.shared.settings.listing import setting_lines
from tests.orchestrator.doc_pages import FOLDERS, INDEXES, OTHERS, PAGES, pages, sentences

ALL = {**PAGES, **OTHERS}
WITH_INDEXES = {**ALL, **{f"{folder}/README": text for folder, text in INDEXES.items()}}
WORDS = 20
"""What a sentence of a page has at most, on average."""


@pytest.mark.parametrize("page", ALL)
def test_a_page_begins_with_an_example_and_a_table_and_is_short(page: str) -> None:
    parts = re.findall(r"^(# |## |```(?=\w)|\|---)", ALL[page], re.MULTILINE)
    before_sections = parts[: parts.index("## ")] if "## " in parts else parts
    assert before_sections[:2] == ["# ", "```"]
    assert "|---" in parts
    assert len(ALL[page].splitlines()) <= 120


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_index_is_short_and_leads_to_each_page_once(folder: str) -> None:
    lines = [line for line in INDEXES[folder].splitlines() if not line.startswith("| **")]  # words of the glossary
    assert len(lines) <= 80
    assert sorted(re.findall(r"\(docs/([\w-]+)\.md\)", INDEXES[folder])) == sorted(pages(folder))


def test_no_two_pages_have_one_name() -> None:
    assert len(ALL) == sum(len(pages(folder)) for folder in FOLDERS)


@pytest.mark.parametrize("page", WITH_INDEXES)
def test_its_sentences_are_short(page: str) -> None:
    lengths = [len(each.split()) for each in sentences(WITH_INDEXES[page])]
    assert sum(lengths) / len(lengths) <= WORDS
    assert max(lengths) <= 30


def test_the_settings_that_pages_name_exist() -> None:
    known = {line.variable for line in setting_lines(Settings.load(environ={}))}
    named = {name for text in WITH_INDEXES.values() for name in re.findall(r"(?<!\w)DEPUTIZE_[A-Z_]+", text)}
    of_others = {"DEPUTIZE_CONFIG", "DEPUTIZE_EXTRAS", "DEPUTIZE_TOOLS_"}  # the command line, compose, a table's head
    assert {name.removesuffix("_FILE") for name in named - known} - known - of_others == set()


def options(command: click.Command) -> set[str]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return own.union(*map(options, below))


def test_the_options_that_pages_name_exist() -> None:
    context = click.Context(cli)
    known = {"--config"}.union(*(options(cli.get_command(context, name) or cli) for name in cli.list_commands(context)))
    of_containers = {"--scale", "--no-deps", "--build-arg"}
    of_git = {"--branches", "--stat", "--export-secret-keys"}
    of_clients = {"--index-url", "--ca-certificate"}
    of_services = {"--auth", "--bind", "--save", "--dir"}
    of_others = {
        "--default-non-nullable",
        "--transport",
        "--header",
        "--repository",
        *of_containers,
        *of_git,
        *of_clients,
        *of_services,
    }
    named = {name for text in WITH_INDEXES.values() for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named - known - of_others == set()
