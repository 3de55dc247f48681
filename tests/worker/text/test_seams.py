"""What a new text repeats of the line that it comes into is written once."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.worker.text.replacement import replace
from deputize.worker.text.rewrite import Replacement
from deputize.worker.text.textfile import TextFile

REPEATED = "new_string repeats text around its place in the file, which was not written twice."


def edit(text: str, old: str, new: str) -> Replacement:
    done = replace(TextFile(text), old, new, every=False)
    assert done is not None
    return done


@pytest.mark.parametrize(
    ("line", "old", "new", "written"),
    [
        ("  enableFeature: true,", "enableFeature: true", "enableFeature: false,", "  enableFeature: false,"),
        ("const a = 1;", "const a = 1", "const a = 2;", "const a = 2;"),
        ("func main() {", "func main()", "func start() {", "func start() {"),
        ("  return load(id);", "load(id)", "return store(id);", "  return store(id);"),
        ("x = await load()", "load()", "await store()", "x = await store()"),
        ("name: 'app',", "name: 'app", "name: 'web'", "name: 'web',"),
        ("f(a, b)", "f(a", "g(a,", "g(a, b)"),
        ("go(timeout=10)", "go(timeout=10", "go(timeout=20)", "go(timeout=20)"),
        ("  - DEBUG=true", "DEBUG=true", "- DEBUG=false", "  - DEBUG=false"),
        ("x = 1  # one", "x = 1", "x = 2  # one", "x = 2  # one"),
        ("x = f(1);", "x = f(1)", "x = f(2); // two", "x = f(2); // two"),
        ("    return 1", "return 1", "    return 2", "    return 2"),
        ("\treturn 1", "return 1", "    return 2", "\treturn 2"),
        ("    if a:", "if a:", "  if b:\n    go()\n  if a:", "    if b:\n      go()\n    if a:"),
    ],
)
def test_what_the_line_has_already_is_not_added_again(line: str, old: str, new: str, written: str) -> None:
    done = edit(f"top\n{line}\nlow\n", old, new)
    assert done.text == f"top\n{written}\nlow\n"
    assert REPEATED in done.report("a.txt")
    assert f"     2|{written.splitlines()[0]}" in done.report("a.txt")


LONG = "self.width * self.height_of_the_shape + self.margin_around_it"
BLOCKS = {
    "as if at the margin": f"if self.width:\n    return {LONG}\nreturn 0",
    "as in the file": f"if self.width:\n            return {LONG}\n        return 0",
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("step", ["    ", "\t"])
@pytest.mark.parametrize(
    ("there", "quoted"),
    [("height", "heigth"), (" * self", "  *  self"), ("self", "\uff53elf")],
    ids=["wording", "blanks", "characters"],
)
def test_lines_after_the_first_one_are_as_deep_as_the_line_that_they_come_into(
    block: str, step: str, there: str, quoted: str
) -> None:
    file = f"class A:\n    def area(self):\n        return {LONG}\n    x = 1\n".replace("    ", step)
    new = block if block is BLOCKS["as if at the margin"] else block.replace("    ", step)
    done = edit(file, f"return {LONG}".replace(there, quoted), new)
    body = BLOCKS["as in the file"].replace("    ", step)
    assert done.text == file.replace(f"return {LONG}", body)
    assert done.tolerated


@pytest.mark.parametrize("new", ["call(\n    first,\n    2,\n)", "call(\n        first,\n        2,\n    )"])
def test_lines_after_a_part_in_the_middle_of_a_line_hang_below_it(new: str) -> None:
    file = "def f():\n    result = call_with(first_of_all, \u201csecond\u201d)\n"
    done = edit(file, 'call_with(first_of_all, "second")', new)
    assert done.text == "def f():\n    result = call(\n        first,\n        2,\n    )\n"


@pytest.mark.parametrize(
    ("line", "old", "new", "written"),
    [
        ("y = f(x)", "x", "g(x)", "y = f(g(x))"),
        ('y = ["a", "b"]', '"b"', '"b", ["c"]', 'y = ["a", "b", ["c"]]'),
        ("  !ready", "ready", "!ready", "  !!ready"),
        ("x = -1", "1", "-2", "x = --2"),
        ("a b", "a", "c b", "c b b"),
        ('  "a",', '"a"', '"a", "b"', '  "a", "b",'),
        ("getname", "name", "getname", "getgetname"),
        ("a,", "a,", "b,,", "b,,"),
    ],
)
def test_what_is_meant_twice_is_written_twice(line: str, old: str, new: str, written: str) -> None:
    done = edit(f"top\n{line}\nlow\n", old, new)
    assert done.text == f"top\n{written}\nlow\n"
    assert REPEATED not in done.report("a.txt")


def test_every_place_of_replace_all_is_replaced_exactly() -> None:
    done = replace(TextFile("a,\na\n"), "a", "b,", every=True)
    assert done is not None
    assert done.text == "b,,\nb,\n"


@pytest.mark.parametrize("new", ["if b:\n    go()", "go()\nstop()"])
def test_new_lines_whose_indentation_is_doubtful_are_shown(new: str) -> None:
    done = edit("def f():\n    go()\n", "go()", new)
    assert "The lines are now:" in done.report("a.py")


CODE = st.sampled_from(["a = 1", "f(x)", "go(1, 2)", "'text'", '{"k": [1]}', "name: true", "return x"])
ENDS = st.sampled_from([",", ";", ")", "]", " {", ",)", "',", '"', " // note", "  # note"])


@given(CODE, CODE, ENDS)
def test_an_end_that_the_new_line_has_too_stands_there_once(code: str, other: str, end: str) -> None:
    """Where the quoted text is the line without its end, and the new line has the same end."""
    done = edit(f"top\n{code}{end}\n", code, other + end)
    assert done.text in (f"top\n{other}{end}\n", f"top\n{other}{end}{end}\n")
    if not re.search(r"[\"'`()\[\]{}]", end):
        assert done.text == f"top\n{other}{end}\n"


def test_an_endless_line_takes_no_endless_time() -> None:
    size = 100_000
    begun = time.process_time()
    done = edit("y " + "ba" * size + "x" + "ab" * size, "x", "ab" * size + "z" + "ba" * size)
    assert time.process_time() - begun < 5
    assert len(done.text) == 8 * size + 3
