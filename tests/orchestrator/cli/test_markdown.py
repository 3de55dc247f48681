"""Summaries on a terminal: their Markdown is rendered, and no word of them is lost."""

from __future__ import annotations

import re

import pytest

from deputize.orchestrator.cli.markdown import rendered


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("plain words", ["plain words"]),
        ("one\ntwo", ["one", "two"]),
        ("## Fixed\n\n**above** in `a.py`", ["Fixed", "", "above in a.py"]),
        ("- one\n- two", [" • one", " • two"]),
        ("a List<String> and <b>bold</b>", ["a List<String> and <b>bold</b>"]),
        ("snake_case_name, 2 * 3 * 4, C:\\new\\file", ["snake_case_name, 2 * 3 * 4, C:\\new\\file"]),
        ("see [the page](http://e.org/x)", ["see the page (http://e.org/x)"]),
        ("x" * 50, ["x" * 40, "x" * 10]),
    ],
)
def test_each_form_is_shown_as_people_read_it(text: str, lines: list[str]) -> None:
    assert rendered(text, 40, colours=False).split("\n") == lines


def test_colours_are_only_where_the_terminal_has_them() -> None:
    text = "## Fixed\n\n**above** in `a.py`"
    assert "\x1b" not in rendered(text, 40, colours=False)
    coloured = rendered(text, 40, colours=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == rendered(text, 40, colours=False)
    assert "\x1b[1m" in coloured
