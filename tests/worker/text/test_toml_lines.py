"""The lines of tables and keys, also where strings and arrays look like them."""

from __future__ import annotations

from deputize.worker.text.toml_lines import line_numbers

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
