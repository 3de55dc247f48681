"""The lines of tables and keys, also where strings and arrays look like them."""

from __future__ import annotations

import tomllib

import pytest

from deputize.shared.settings.files import line_numbers, line_of, syntax_error

DOCUMENT = '''# [[rule]]
top = 1

[[rule]]  # the first
name = """
[[rule]]
fake = 1 \\""" still
"""
list = [
  "a = b", 'c', # [x]
  ["nested"]
]
"quoted key" = { inner = "]", more = [1] }

[[ rule ]]
a.b = \'\'\'
key = 2\'\'\'
[rule.argument]
path = "[[rule]]"
[[rule.step]]
x = 1
[[rule.step]]
x = ""
'''


def test_each_table_and_key_has_its_line() -> None:
    assert line_numbers(DOCUMENT) == {
        ("top",): 2,
        ("rule", 0): 4,
        ("rule", 0, "name"): 5,
        ("rule", 0, "list"): 9,
        ("rule", 0, "quoted key"): 13,
        ("rule", 1): 15,
        ("rule", 1, "a", "b"): 16,
        ("rule", 1, "argument"): 18,
        ("rule", 1, "argument", "path"): 19,
        ("rule", 1, "step", 0): 20,
        ("rule", 1, "step", 0, "x"): 21,
        ("rule", 1, "step", 1): 22,
        ("rule", 1, "step", 1, "x"): 23,
    }


def test_what_has_no_line_of_its_own_has_that_of_what_surrounds_it() -> None:
    lines = line_numbers(DOCUMENT)
    assert line_of(lines, ("rule", 0, "quoted key", "inner")) == lines["rule", 0, "quoted key"]
    assert line_of(lines, ("rule", 0, "missing")) == lines["rule", 0]
    assert line_of(lines, ("missing",)) == 1


def test_an_error_of_the_parser_is_split_into_its_line_and_its_message() -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads("a = 1\nb = = 2\n")
    assert syntax_error(caught.value) == (2, "Invalid value")
    assert syntax_error(ValueError("it is nested too deeply")) == (None, "it is nested too deeply")
