"""Diffs: applied to the old text they give the new one, and their counts are right."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.worker.text.diff import Diff, unified_diff

texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d"]), max_size=25).map("".join)
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def lines_of(text: str) -> list[str]:
    return [line for line in re.split(r"(?<=\n)", text) if line]


def applied(diff: str, before: str) -> str:
    """The oracle: takes a unified diff at its word, line by line."""
    old, out, at = lines_of(before), [], 0
    lines = diff.split("\n")[2:-1]
    for number, line in enumerate(lines):
        if found := HUNK.fullmatch(line):
            start = int(found[1]) - (found[2] != "0")
            out += old[at:start]
            at = start
            continue
        ended = number + 1 == len(lines) or not lines[number + 1].startswith("\\")
        content = line[1:] + "\n" * ended
        if line[0] in " -":
            assert old[at] == content
            at += 1
        if line[0] in " +":
            out.append(content)
    return "".join(out + old[at:])


@given(texts, texts)
def test_a_diff_applied_to_the_old_text_yields_the_new(before: str, after: str) -> None:
    diff = unified_diff(before, after, "a.txt")
    if before == after:
        assert diff == Diff("", 0, 0)
        return
    assert applied(diff.text, before) == after
    body = diff.text.split("\n")[2:-1]
    assert diff.added == sum(line.startswith("+") for line in body)
    assert diff.removed == sum(line.startswith("-") for line in body)
    assert len(lines_of(after)) - len(lines_of(before)) == diff.added - diff.removed


@given(texts, texts)
def test_the_numbers_of_a_hunk_say_how_many_lines_follow(before: str, after: str) -> None:
    parts = re.split(r"(?m)^(@@.*@@)\n", unified_diff(before, after, "a.txt").text)[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        found = HUNK.fullmatch(head)
        assert found is not None
        lines = body.split("\n")[:-1]
        assert int(found[2] or 1) == sum(line[0] in " -" for line in lines)
        assert int(found[4] or 1) == sum(line[0] in " +" for line in lines)


def test_changes_far_apart_are_two_hunks_with_three_lines_around_them() -> None:
    before = "".join(f"{number}\n" for number in range(1, 21))
    assert unified_diff(before, before.replace("\n5\n", "\nfive\n").replace("\n15\n", "\n"), "n.txt").text == (
        "--- a/n.txt\n+++ b/n.txt\n"
        "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        "@@ -12,7 +12,6 @@\n 12\n 13\n 14\n-15\n 16\n 17\n 18\n"
    )


def test_a_missing_last_line_end_is_shown() -> None:
    assert unified_diff("a", "a\n", "f").text == "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
    assert unified_diff("", "a\n", "f", created=True).text == "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n"


@pytest.mark.parametrize(
    ("before", "after", "added", "removed"),
    [
        ("a\n" * 4000, "b\na\n" * 2000, 2000, 2000),
        ("x\n" * 100_000, "y\n" * 100_000, 100_000, 100_000),
        ("x\nz\n" * 50_000, "y\nz\n" * 50_000, 50_000, 50_000),
        ("".join(f"{n}\n" for n in range(20_000)), "".join(f"{n}\n" for n in range(10, 20_010)), 10, 10),
        ("", "x\n" * 300_000, 300_000, 0),
    ],
)
def test_large_changes_take_bounded_time(before: str, after: str, added: int, removed: int) -> None:
    begun = time.process_time()
    diff = unified_diff(before, after, "f")
    assert time.process_time() - begun < 5
    assert diff.added - diff.removed == added - removed
    assert diff.added >= added
