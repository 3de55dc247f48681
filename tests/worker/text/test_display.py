"""What people are shown of a tool's work, and what becomes of it where only text travels."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.text import terminal_text
from deputize.worker.text.output import AnsiOutput, Display, FileDiff, TodoItem, TodoList
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.bounded_result import bounded
from tests.runs.toolbench import EVERYTHING, open_toolbench

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.mark.requirement("S004-037")
@pytest.mark.parametrize(
    ("display", "text"),
    [
        ("words", "words"),
        (FileDiff("a.py", DIFF, added=1, removed=1), DIFF),
        (AnsiOutput("\x1b[1;31mred\x1b[0m plain"), "red plain"),
        (
            TodoList((TodoItem("read", "completed"), TodoItem("write", "in_progress"), TodoItem("rest", "pending"))),
            "1. [x] read\n2. [>] write\n3. [ ] rest",
        ),
        (TodoList((TodoItem("no more", "cancelled"),)), "1. [-] no more"),
    ],
)
async def test_each_kind_of_display_is_text_once_it_leaves_the_tool(
    tmp_path: Path, display: Display, text: str
) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        result = await bounded(ToolResult("x", display=display), EVERYTHING["bash"], desk.context())
    assert result.display == text


@pytest.mark.requirement("S004-037")
async def test_tools_that_change_files_show_the_diff(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        write, edit = EVERYTHING["write_file"], EVERYTHING["edit_file"]
        written = await write.run(desk.context(), write.parse({"path": "a.py", "content": "one\n"}))
        edited = await edit.run(desk.context(), edit.parse({"path": "a.py", "old_string": "one", "new_string": "two"}))
    assert written.display == FileDiff("a.py", "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+one\n", 1, 0)
    assert edited.display == FileDiff("a.py", DIFF, 1, 1)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("50%\x1b[2K\r\x1b[1A100%\x1b(B", "100%"),
        ("10%\r20%\r100%\nnext", "100%\nnext"),
        ("".join(f"\r{number} of 3000" for number in range(3001)) + "\n", "3000 of 3000\n"),
        ("a long line\rshort", "shortg line"),
        ("a long line\r\x1b[Kshort", "short"),
        ("a long line\x1b[2K\rshort", "short"),
        ("a long line\rshort\x1b[0K", "short"),
        ("|\b/\b-\b\\\bdone", "done"),
        ("\b\bx", "x"),
        ("one\r\ntwo\r\n", "one\r\ntwo\r\n"),
        ("50%\r100%\r\nend", "100%\nend"),
        ("\x1b[01;31m\x1b[Kred\x1b[m\x1b[K  \n", "red  \n"),
        ("größe 1\r\U0001f680", "\U0001f680röße 1"),
        ("x" * 500_000 + "\rab" * 200_000, "ab" + "x" * 499_998),
        ("an end \x1b", "an end "),
        ("an end \x1b[", "an end "),
        ("no [31m escape", "no [31m escape"),
        ("\x1bP" * 2000, ""),
    ],
)
def test_a_text_is_what_a_terminal_shows_in_the_end(sent: str, shown: str) -> None:
    assert terminal_text(sent) == shown
