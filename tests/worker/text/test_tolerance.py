"""What is overlooked where only one reading is possible: blanks, look-alikes, slips in short texts, several at once."""

from __future__ import annotations

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.text.replacement import WORDING, Replacement, replace
from deputize.worker.text.textfile import TextFile

PROSE = (
    "# Report\n\nThe service was restarted in the morning, and all of the workers came back within a few seconds. "
    "Nobody noticed the interruption, because every request was answered by the second instance. "
    "Later the first instance was given more memory.\n"
)


def edited(text: str, old: str, new: str, *, every: bool = False) -> Replacement | None:
    return replace(TextFile(text), old, new, every=every)


@pytest.mark.parametrize(
    ("text", "old", "new", "after", "tolerated"),
    [
        # runs of blanks and tabs inside a line stay as the file has them
        ("a  =  call(b)\n", "a = call(b)", "a = call(c)", "a  =  call(c)\n", "runs of blanks"),
        ("name\t= call(b)\n", "name = call(b)", "name = call(c)", "name\t= call(c)\n", "runs of blanks"),
        ("a = call(b)\n", "a  =  call(b)", "a  =  call(c)", "a = call(c)\n", "runs of blanks"),
        # other forms of the same characters
        ("x = “ﬁle”…\n", 'x = "file"...', 'y = "file"...', "y = “ﬁle”…\n", "characters that look alike"),
        (
            "total\uff1a\uff21\uff22\uff23 end\n",
            "total:ABC end",
            "total:ABC start",
            "total\uff1a\uff21\uff22\uff23 start\n",
            "characters that look alike",
        ),
        # two at once
        (
            "if x:\n    say(“one”)\n    on()\n",
            'say("one")\non()',
            'say("one")\noff()',
            "if x:\n    say(“one”)\n    off()\n",
            "indentation and characters that look alike",
        ),
        (
            "if x:\n    a  = 1\n    on()\n",
            "a = 1\non()",
            "a = 1\noff()",
            "if x:\n    a  = 1\n    off()\n",
            "indentation and runs of blanks",
        ),
        (
            "if x:\n    a\u00a0 = “1”  \n    on()\n",
            'a = "1"\non()',
            'a = "1"\noff()',
            "if x:\n    a\u00a0 = “1”  \n    off()\n",
            "indentation and characters that look alike",
        ),
        # slips in one line or two
        (
            "const settings = load(options, defaults);\n",
            "const setings = load(options, defaults);",
            "const setings = load(options, nothing);",
            "const settings = load(options, nothing);\n",
            WORDING,
        ),
        ("run: first, second, third,\nend\n", "run: first second, third,\nend", "end", "end\n", WORDING),
        (
            "a = 1 # one\nb = 2 # two\nc = 3 # three\n",
            "a = 1 # one\nb = 2 # two\nc = 3 # thre\n",
            "d = 4\n",
            "d = 4\n",
            WORDING,
        ),
        # a sentence of a paragraph
        (
            PROSE,
            "Nobody noticed the interuption, because every request was answered by the second instance.",
            "Nobody noticed it.",
            PROSE[: PROSE.index("Nobody")] + "Nobody noticed it." + PROSE[PROSE.index(" Later") :],
            WORDING,
        ),
        (
            PROSE,
            "Later the first instence was given more memory.",
            "Later the first instence was given less memory.",
            PROSE.replace("more", "less"),
            WORDING,
        ),
    ],
)
def test_what_can_be_read_in_one_way_only_is_found_and_reported(
    text: str, old: str, new: str, after: str, tolerated: str
) -> None:
    done = edited(text, old, new)
    assert done is not None
    assert done.text == after
    assert (done.tolerated or "").startswith(tolerated)
    assert "The lines are now:\n" in done.report("a.txt")


@pytest.mark.parametrize(
    ("text", "old"),
    [
        # another name, number, operator or negation is another thing
        ("def set_user(name):\n", "def get_user(name):"),
        ("for each in get_users(): send(each, now)\n", "for each in set_users(): send(each, now)"),
        ("if count < limit and ready: go(count)\n", "if count > limit and ready: go(count)"),
        ("total = price + tax + shipping + fee\n", "total = price + tax - shipping + fee"),
        ("if is_invalid(user, now, here, there): go()\n", "if is_valid(user, now, here, there): go()"),
        ("The door is not open in the evening today.\n", "The door is open in the evening today."),
        ("if (!ready(user, now, here, there)) go()\n", "if (ready(user, now, here, there)) go()"),
        ("area: 10² and then some more of it\n", "area: 102 and then some more of it"),
        # too little to be sure
        ("x = ab\n", "x = ac"),
        ("return totals\n", "return total_"),
    ],
)
def test_what_may_mean_something_else_is_not_found(text: str, old: str) -> None:
    assert edited(text, old, "new") is None


def test_two_sentences_that_are_alike_are_refused() -> None:
    text = "The quick brown fox jumps over the lazy dog today. The quick brown fox jumped over the lazy dog today.\n"
    with pytest.raises(ToolError) as caught:
        edited(text, "The quick brown fox jmps over the lazy dog today.", "new")
    assert caught.value.type is ErrorType.EDIT_AMBIGUOUS
    assert "2 places are similar to it: line 1" in caught.value.message


def test_all_places_that_are_the_same_are_replaced_tolerantly() -> None:
    text = "say(“one”)\nother\nsay(“one”)\n"
    done = edited(text, 'say("one")', 'tell("one")', every=True)
    assert done is not None
    assert done.text == text.replace("say", "tell")
    assert done.lines == (1, 3)
    assert "look alike" in done.report("a.txt")
    with pytest.raises(ToolError) as caught:
        edited(text, 'say("one")', 'tell("one")')
    assert "on lines 1, 3" in caught.value.message
    assert "or set replace_all=true" in caught.value.message


def test_a_text_that_overlaps_itself_is_no_single_reading() -> None:
    with pytest.raises(ToolError):
        edited("“a”“a”“a”\n", '"a""a"', "new", every=True)


def test_a_line_of_blanks_is_not_the_end_of_another_line() -> None:
    text = "  one\n  }\n\nlast  one\n"
    assert edited(text, "  \n\nlast one\n", "  }\n\nlast two\n") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  \n\nsecond  of all the lines\n", "  }\n\nsecond of all the lines, changed\n"),
        ("second  of all the lines here\n", "second of all the lines, changed\nthird\n"),
        ("second  of all the lines here\n", "first {\n  }\n\nother\nthird\n"),
    ],
)
def test_a_line_that_stands_beside_the_place_is_not_brought_again(old: str, new: str) -> None:
    text = "first {\n  }\n\nsecond of all the lines here\nthird\n"
    with pytest.raises(ToolError) as caught:
        edited(text, old.replace("lines\n", "lines here\n"), new)
    assert caught.value.type is ErrorType.EDIT_NOT_FOUND
    assert "which is already beside the most similar place" in caught.value.message


def test_typographic_signs_of_the_model_do_not_get_into_plain_text() -> None:
    text = '{\n  "one": "first",\n  "two": "second"\n}\n'
    with pytest.raises(ToolError) as caught:
        edited(text, "  “one“: “first“,\n", "  “one“: “other“,\n")
    assert caught.value.type is ErrorType.EDIT_NOT_FOUND
    done = edited(text, "  “one“: “first“,\n", '  "one": "other",\n')
    assert done is not None
    assert done.text == text.replace("first", "other")


def test_half_of_a_ligature_is_no_place() -> None:
    assert edited("oﬃce\n", "of", "if") is None
