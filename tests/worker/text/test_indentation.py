"""New lines in the place of lines that are indented otherwise than they were quoted: never deeper than they belong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.worker.text.replacement import Replacement, replace
from deputize.worker.text.textfile import TextFile


def edited(text: str, old: str, new: str) -> Replacement | None:
    return replace(TextFile(text), old, new, every=False)


CLASS = "class A:\n    def f():\n        go()\n"
STOPPED = CLASS.replace("go", "stop")
GO = "func f() {\n\tgo()\n\ton()\n}\n"
DEEP_GO = "func f() {\n\tif x {\n\t\tgo()\n\t}\n}\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        # quoted without its indentation, written with it, without it, and deeper than it belongs
        (CLASS, "def f():\n    go()", "    def f():\n        stop()", STOPPED),
        (CLASS, "def f():\n    go()", "def f():\n    stop()", STOPPED),
        (CLASS, "def f():\n    go()", "        def f():\n            stop()", STOPPED),
        # the first line deeper than what follows
        ("if x:\n        go()\n    on()\n", "    go()\non()", "    off()\non()", "if x:\n        off()\n    on()\n"),
        # tabs in the file, blanks in the quote; the other way round; a step whose width is not known
        (
            DEEP_GO,
            "if x {\n    go()\n}",
            "if x {\n    if y {\n        stop()\n    }\n}",
            DEEP_GO.replace("\t\tgo()", "\t\tif y {\n\t\t\tstop()\n\t\t}"),
        ),
        (GO, "go()\n    on()", "if x {\n    go()\n}", None),
        (GO, "    go()\n    on()", "    if x {\n        go()\n    }", DEEP_GO),
        ("a:\n  b:\n    c: 1\n", "b:\n\tc: 1", "b:\n\tc:\n\t\td: 1", "a:\n  b:\n    c:\n      d: 1\n"),
        ("        go()\n        on()\n", "\tgo()\n\ton()", "\tif x:\n\t\tgo()", None),
        # the first line goes, and the others stay where they are
        ("if x:\n        go()\n    on()\n", "    go()\non()", "on()", "if x:\n    on()\n"),
        ("if x:\n        go()\n    on()\n", "    go()\non()", "    on()", "if x:\n    on()\n"),
        # quoted in other steps than the file has, written in those of the file or in the quoted ones
        (CLASS, "def f():\n  go()", "def f():\n    go()\n    on()", CLASS + "        on()\n"),
        (CLASS, "def f():\n  go()", "def f():\n  go()\n  on()", CLASS + "        on()\n"),
        (CLASS, "def f():\n  go()", "def f():\n    stop()", STOPPED),
        (CLASS, "def f():\n  go()", "def f():\n  stop()", STOPPED),
        # blank lines stay blank
        ("if x:\n    go()\n\n    on()\n", "go()\n\non()", "    go()\n\n    off()", "if x:\n    go()\n\n    off()\n"),
        # where nothing differs in indentation, it is what the model wrote
        (
            "if x:\n    say(“one”)\n    on()\n",
            '    say("one")\n    on()',
            '    if y:\n        say("one")\n    on()',
            "if x:\n    if y:\n        say(“one”)\n    on()\n",
        ),
    ],
)
def test_the_first_new_line_stands_where_the_first_found_one_stood(
    text: str, old: str, new: str, after: str | None
) -> None:
    done = edited(text, old, new)
    assert (done and done.text) == after


def test_the_answer_reports_that_it_was_indented_anew() -> None:
    done = edited("class A:\n    def f():\n        go()\n", "def f():\n    go()", "def f():\n    stop()")
    assert done is not None
    assert done.report("a.py") == (
        "Successfully edited a.py: 1 place, line 2. old_string did not match exactly: differences in indentation were "
        "ignored. new_string was re-indented to match the file.\n"
        "The lines are now:\n     2|    def f():\n     3|        stop()"
    )
    kept = edited("class A:\n    def f():\n        go()\n", "def f():\n    go()", "    def f():\n        stop()")
    assert kept is not None
    assert "re-indented" not in kept.report("a.py")


UNITS = ("    ", "  ", "\t")
texts = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["go()", "on()", "x = y", "end"])), min_size=2, max_size=6
)
places = st.integers(0, 3)


def block(lines: list[tuple[int, str]], unit: str, deeper: int) -> str:
    return "\n".join(f"{unit * (depth + deeper)}{text}_{number}" for number, (depth, text) in enumerate(lines))


def relative(text: str, unit: str) -> list[float]:
    """How many steps deeper each line stands than the first one."""
    steps = [(len(line) - len(line.lstrip())) / len(unit) for line in text.split("\n")]
    return [step - steps[0] for step in steps]


@settings(deadline=None, max_examples=200)
@given(texts, texts, places, places, places, st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_lines_keep_their_indentation_relative_to_the_first(
    old: list[tuple[int, str]], new: list[tuple[int, str]], there: int, quoted: int, given: int, unit: str, mine: str
) -> None:
    found = block(old, unit, there)
    asked = block([(depth, f"new {text}") for depth, text in new], mine, given)
    file = f"start\n{found}\nstop\n"
    wanted = block(old, mine, quoted)
    if wanted in file:
        return
    done = edited(file, wanted, asked)
    lowest = old[0][0] + there + min(relative(asked, mine))
    if done is None:  # only where a line would stand further out than at the margin, or a step is not known
        assert lowest < 0 or unit != mine
        return
    after = done.text.removeprefix("start\n").removesuffix("\nstop\n")
    lines = after.split("\n")
    assert [line.strip() for line in lines] == [line.strip() for line in asked.split("\n")]
    assert lines[0].startswith(unit * (old[0][0] + there) + "new ")
    if unit == mine or len(set(relative(found, unit))) > 1:
        assert relative(after, unit) == relative(asked, mine) or relative(after, " ") == relative(asked, " ")
    signs = [
        [(a > b) - (a < b) for a in steps for b in steps] for steps in (relative(after, unit), relative(asked, mine))
    ]
    assert signs[0] == signs[1]
    assert ("re-indented" in done.report("a.py")) == (after != asked)
