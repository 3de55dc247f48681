"""edit_file through the tool: its four refusals, its messages, and what of a file it leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType
from tests.runs.bench import Bench, call, script
from tests.runs.toolbench import EVERYTHING, Toolbench

SOURCE = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"


@pytest.mark.requirement("S000-051", "S000-056", "S000-058", "S001-009", "S001-029", "S004-014")
async def test_one_place_is_replaced_and_shown_as_a_diff(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    result = await desk.call("edit_file", path="a.py", old_string="g():\n    return 1", new_string="g():\n    return 2")
    assert result.content == "Successfully edited a.py: 1 place, line 5."
    assert desk.read("a.py").decode() == SOURCE[:-2] + "2\n"
    assert result.display == (
        "--- a/a.py\n+++ b/a.py\n@@ -3,4 +3,4 @@\n \n \n def g():\n-    return 1\n+    return 2\n"
    )
    assert result.metadata == {
        "path": "a.py",
        "replacements": 1,
        "lines": [5],
        "addedLines": 1,
        "removedLines": 1,
        "tolerated": None,
    }


@pytest.mark.requirement("S001-026", "S001-028", "S001-031")
async def test_a_text_that_stands_twice_changes_nothing_and_names_the_lines(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    error = await desk.refusal(
        ErrorType.EDIT_AMBIGUOUS, "edit_file", path="a.py", old_string="return 1", new_string="return 2"
    )
    assert error == (
        "old_string occurs 2 times, on lines 2, 6. Nothing was changed. "
        "Add lines around it until it is unique, or set replace_all=true to replace all of them."
    )
    assert desk.read("a.py").decode() == SOURCE


@pytest.mark.requirement("S000-055")
async def test_replace_all_replaces_all_and_counts_them(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    result = await desk.call("edit_file", path="a.py", old_string="return 1", new_string="return 2", replace_all=True)
    assert result.content == "Successfully edited a.py: 2 places, lines 2, 6."
    assert desk.read("a.py").decode() == SOURCE.replace("return 1", "return 2")


@pytest.mark.requirement("S000-053", "S001-030")
async def test_a_missing_file_points_to_write_file_and_is_not_created(desk: Toolbench) -> None:
    error = await desk.refusal(ErrorType.FILE_NOT_FOUND, "edit_file", path="b.py", old_string="a", new_string="b")
    assert error == "File not found: b.py. edit_file creates no files: use write_file for that."
    assert not (desk.root / "b.py").exists()


@pytest.mark.requirement("S001-032")
async def test_each_reason_to_change_nothing_is_a_different_error(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    asked = {
        ErrorType.INVALID_TOOL_PARAMS: {"path": "a.py", "old_string": "", "new_string": "x"},
        ErrorType.EDIT_NO_CHANGE: {"path": "a.py", "old_string": "def f", "new_string": "def f"},
        ErrorType.EDIT_NOT_FOUND: {"path": "a.py", "old_string": "def h", "new_string": "x"},
        ErrorType.FILE_NOT_FOUND: {"path": "b.py", "old_string": "def h", "new_string": "x"},
        ErrorType.EDIT_AMBIGUOUS: {"path": "a.py", "old_string": "def", "new_string": "x"},
        ErrorType.NOT_A_FILE: {"path": ".", "old_string": "def", "new_string": "x"},
    }
    answers = [await desk.call_with("edit_file", arguments) for arguments in asked.values()]
    assert [answer.error_type for answer in answers] == list(asked)
    assert len({answer.error for answer in answers}) == len(asked)
    assert desk.read("a.py").decode() == SOURCE


@pytest.mark.requirement("S000-054", "S001-027")
async def test_a_text_that_is_not_there_is_answered_with_the_closest_lines(desk: Toolbench) -> None:
    desk.write("a.py", "import os\n\n\ndef total(prices):\n    return sum(prices)\n")
    result = await desk.call(
        "edit_file", path="a.py", old_string="def total(price):\n    return sum(price)\n", new_string="x"
    )
    assert result.error == (
        "Text not found in a.py: 'def total(price):\\n    return sum(price)\\n'. "
        "Check whitespace, indentation and line ends, or read the file again: it may have changed.\n"
        "The closest lines are:\n     4|def total(prices):\n     5|    return sum(prices)"
    )


@pytest.mark.parametrize(
    "pasted", ["     2|    return 1\n     3|", "2\t    return 1\n3\t", "  2→    return 1\n  3→", "     2|    return 1"]
)
async def test_pasted_line_numbers_are_named(desk: Toolbench, pasted: str) -> None:
    desk.write("a.py", SOURCE)
    error = await desk.refusal(ErrorType.EDIT_NOT_FOUND, "edit_file", path="a.py", old_string=pasted, new_string="x")
    assert "It begins every line with a line number, as read_file prints them." in error
    assert desk.read("a.py").decode() == SOURCE


async def test_line_numbers_in_the_new_text_alone_are_refused(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    numbered = "     1|def f():\n     2|    return 3"
    result = await desk.call("edit_file", path="a.py", old_string="def f():\n    return 1", new_string=numbered)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert desk.read("a.py").decode() == SOURCE


async def test_a_table_that_looks_like_line_numbers_is_edited_as_it_stands(desk: Toolbench) -> None:
    desk.write("table.txt", "1|one\n2|two\n")
    result = await desk.call("edit_file", path="table.txt", old_string="1|one\n2|two", new_string="1|eins\n2|zwei")
    assert result.success
    assert desk.read("table.txt") == b"1|eins\n2|zwei\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('a = \\"x\\"\\nb', "y", "It is escaped twice"),
        ("gone()", "def f():", "new_string is already in the file (line 1): perhaps this edit was made before."),
        ("caf\ufffd", "cafe", "\ufffd stands for bytes of the file that are not valid UTF-8"),
        ("\u00a7\u00a7\u00a7", "x", "Check whitespace, indentation and line ends"),
    ],
)
async def test_known_mistakes_are_named(desk: Toolbench, old: str, new: str, said: str) -> None:
    desk.write("a.py", b'def f():\na = "x"\nb\n# caf\xe9\n')
    error = await desk.refusal(ErrorType.EDIT_NOT_FOUND, "edit_file", path="a.py", old_string=old, new_string=new)
    assert said in error


async def test_what_had_to_be_overlooked_is_reported(desk: Toolbench) -> None:
    desk.write("a.py", "def f():  \n    return 1\n")
    result = await desk.call("edit_file", path="a.py", old_string="f():\n    return 1", new_string="f():\n    return 2")
    assert result.content == (
        "Successfully edited a.py: 1 place, line 1. "
        "old_string did not match exactly: differences in blanks at line ends were ignored."
    )
    assert desk.read("a.py") == b"def f():  \n    return 2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\nthree", b"\xef\xbb\xbfone\r\n2\r\n2b\r\nthree"),
        (b"one\ntwo\nthree\n", b"one\n2\n2b\nthree\n"),
        (b"one\r\ntwo\nthree\n", b"one\r\n2\n2b\nthree\n"),
        (b"\xe9\ntwo\n\xff\n", b"\xe9\n2\n2b\n\xff\n"),
        ("\ufeffone\ntwo\nü".encode("utf-16-le"), "\ufeffone\n2\n2b\nü".encode("utf-16-le")),
        ("\ufeffone\r\ntwo\r\nü".encode("utf-16-be"), "\ufeffone\r\n2\r\n2b\r\nü".encode("utf-16-be")),
    ],
)
async def test_encoding_line_ends_and_the_last_line_stay_as_they_were(
    desk: Toolbench, before: bytes, after: bytes
) -> None:
    desk.write("a.txt", before)
    assert (await desk.call("edit_file", path="a.txt", old_string="two\n", new_string="2\n2b\n")).success
    assert desk.read("a.txt") == after


@pytest.mark.requirement("S000-052", "S001-025")
async def test_old_names_of_the_parameters_are_accepted(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    result = await desk.call("edit_file", file_path="/workspace/a.py", old_str="def f", new_str="def h")
    assert result.success


async def test_a_new_text_in_which_nothing_really_changes_is_no_change(desk: Toolbench) -> None:
    desk.write("a.txt", "one  \ntwo\n")
    result = await desk.call("edit_file", path="a.txt", old_string="one\ntwo", new_string="one\r\ntwo")
    assert result.error_type is ErrorType.EDIT_NO_CHANGE


async def test_deleting_a_text_is_replacing_it_by_nothing(desk: Toolbench) -> None:
    desk.write("a.txt", "one\ntwo\n")
    assert (await desk.call("edit_file", path="a.txt", old_string="one\n", new_string="")).success
    assert desk.read("a.txt") == b"two\n"


async def test_an_edit_reports_only_as_many_lines_as_help(desk: Toolbench) -> None:
    desk.write("a.txt", "x\n" * 5000)
    result = await desk.call("edit_file", path="a.txt", old_string="x", new_string="y", replace_all=True)
    assert result.content.endswith(
        "5000 places, lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, …."
    )
    assert len(result.metadata["lines"]) == 100
    assert (result.metadata["addedLines"], result.metadata["removedLines"]) == (5000, 5000)


async def test_a_text_that_is_nearly_right_is_found_and_the_answer_quotes_it(desk: Toolbench) -> None:
    text = "\ufeffdef total(prices):\r\n    tax = 0.19\r\n    return sum(prices) * (1 + tax)"
    desk.write("a.py", text)
    old = "def total(price):\n    tax = 0.19\n    return sum(price) * (1 + tax)\n"
    result = await desk.call("edit_file", path="a.py", old_string=old, new_string=old.replace("0.19", "0.2"))
    assert result.success
    assert result.content == (
        "Successfully edited a.py: 1 place, line 1. old_string is not in the file: lines 1-3, 98 % alike, were "
        "replaced instead. The parts of old_string that new_string keeps were left as they are in the file. "
        "These lines differed: "
        "line 1 of the file was 'def total(prices):', not 'def total(price):'; "
        "line 3 of the file was 'return sum(prices) * (1 + tax)', not 'return sum(price) * (1 + tax)'.\n"
        "The lines are now:\n     1|def total(prices):\n     2|    tax = 0.2\n     3|    return sum(prices) * (1 + tax)"
    )
    assert result.metadata["tolerated"] == "wording"
    assert desk.read("a.py").decode() == text.replace("0.19", "0.2")


async def test_an_edit_that_was_made_before_is_no_change_even_if_it_is_nearly_found(desk: Toolbench) -> None:
    text = "def total(prices):\n    tax = rate_of(country)\n    return sum(prices) * tax\n"
    desk.write("a.py", text)
    result = await desk.call("edit_file", path="a.py", old_string=text.replace("rate_of", "rates"), new_string=text)
    assert result.error_type is ErrorType.EDIT_NO_CHANGE


async def test_a_placeholder_never_replaces_the_code_it_stands_for(desk: Toolbench) -> None:
    desk.write("a.py", SOURCE)
    new = "def f():\n    return 3\n# ... rest of the code ...\n"
    error = await desk.refusal(
        ErrorType.INVALID_TOOL_PARAMS, "edit_file", path="a.py", old_string=SOURCE, new_string=new
    )
    assert error == (
        "new_string has a placeholder: '# ... rest of the code ...'. It would be written to the file instead of the "
        "lines that it stands for. Write these lines out, or change less at once: unchanged lines can be left out. "
        "Nothing was changed."
    )
    assert desk.read("a.py").decode() == SOURCE
    error = await desk.refusal(ErrorType.EDIT_NOT_FOUND, "edit_file", path="a.py", old_string=new, new_string=SOURCE)
    assert "It has a placeholder, '# ... rest of the code ...': send the lines that it stands for" in error


async def test_what_looks_like_a_placeholder_in_the_file_is_text_like_any_other(desk: Toolbench) -> None:
    desk.write("a.md", "An example:\n\n    // ... rest of code\n")
    result = await desk.call(
        "edit_file", path="a.md", old_string="An example:\n", new_string="// ... rest of code\nis an example:\n"
    )
    assert result.success


async def test_edits_of_one_file_in_one_turn_are_all_made_in_their_order(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    edits = [
        call("edit_file", path="a.txt", old_string=f"line {number}\n", new_string=f"line {number}\nafter {number}\n")
        for number in range(20)
    ]
    edits += [call("edit_file", path="a.txt", old_string="after 7\nline 8", new_string="one\nafter the other")]
    result = await bench.run(model=script(tmp_path, edits), workspace={"kind": "directory", "path": str(source)})
    assert result.errors == []
    [change] = result.file_changes
    assert (change.path, change.added_lines, change.removed_lines) == ("a.txt", 21, 1)
    patch = await bench.store.patch(result.delegation_id)
    assert "+after 6\n line 7\n-line 8\n+one\n+after the other\n+after 8\n line 9\n+after 9\n" in patch


@pytest.mark.requirement("S001-008")
def test_the_description_demands_a_unique_text() -> None:
    said = EVERYTHING["edit_file"].description
    assert "old_string must stand in the file exactly once, otherwise nothing is changed" in said
    assert "without the line\nnumbers" in said
