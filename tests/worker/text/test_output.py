"""The truncator: nothing too long, nothing cut silently, no character cut in two."""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.text import clip, valid
from deputize.shared.tokens import count
from deputize.worker.text.output import MAX_ERROR_CHARS, hint_of, one_line, shorten
from deputize.worker.tools.base import OutputLimit, ToolResult
from deputize.worker.tools.bounded_result import bounded
from deputize.worker.workspace.file_entries import is_private
from tests.runs.toolbench import EVERYTHING, Toolbench, open_toolbench

HEAD = OutputLimit(max_chars=8000)
ENDS = OutputLimit(max_chars=8000, keep="head_tail")
Keep = Literal["head", "head_tail"]
GAP = re.compile(r"\n\[… (\d+) characters left out …\]\n")
anything = st.text(alphabet="ab\r\n e\u0301\u200d👍🏽🇩🇪漢\u0300", max_size=80)


async def bash_result(desk: Toolbench, content: str, **more: Any) -> ToolResult:
    return await bounded(ToolResult(content, **more), EVERYTHING["bash"], desk.context())


@pytest.mark.requirement("S001-054", "S001-055")
@pytest.mark.parametrize("limit", [HEAD, ENDS])
@pytest.mark.parametrize("length", [0, 1, 7999, 8000])
def test_what_fits_is_returned_unchanged(limit: OutputLimit, length: int) -> None:
    assert shorten("x" * length, limit) == "x" * length


@pytest.mark.requirement("S001-055")
def test_too_long_a_text_keeps_its_first_8000_characters() -> None:
    text = "".join(f"{number} " for number in range(5000))
    assert shorten(text, HEAD) == text[:8000]


def test_a_commands_output_keeps_a_little_of_the_head_and_most_of_the_tail() -> None:
    text = "".join(f"{number:05d}\n" for number in range(5000))
    head, gap, tail = GAP.split(shorten(text, ENDS))
    assert (len(head), len(tail)) == (1600, 6396)  # half a word could be the end of a credential
    assert head + text[1600 : 1600 + int(gap)] + tail == text


async def test_a_call_id_from_the_model_makes_no_path(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        context = replace(desk.context(), call_id="../../evil\n/é" + "x" * 200)
        result = await bounded(ToolResult("x" * 9000), EVERYTHING["bash"], context)
        assert re.fullmatch(r"\.deputize/output/[\w-]{80}\.txt", str(result.metadata["fullOutput"]), re.ASCII)


async def test_where_nothing_can_be_saved_the_hint_names_no_file(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        desk.write(".deputize", "a file where our directory would be")
        result = await bash_result(desk, "x" * 9000)
        assert "full_output" not in result.content
        assert "Call the tool again with offset/limit or a narrower question" in result.content
        assert result.metadata["fullOutput"] is None


async def test_errors_titles_and_displays_are_bounded_too(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        result = await bash_result(desk, "", title="t\nt" * 999, display="d" * 99_999, error="e" * 99_999)
        assert result.error is not None
        assert len(result.error) == MAX_ERROR_CHARS
        assert len(result.title) <= 120
        assert "\n" not in result.title
        assert isinstance(result.display, str)
        assert len(result.display) == 32_000


async def test_what_is_no_valid_text_never_leaves_a_tool(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as desk:
        result = await bash_result(desk, "a\udcffb", title="\ud800", display="\udcff", error="\udcff")
        assert (result.content, result.title, result.display, result.error) == ("a\ufffdb", *"\ufffd\ufffd\ufffd")


@given(anything, st.integers(0, 60), st.sampled_from(["head", "head_tail"]))
def test_a_cut_keeps_two_ends_of_the_text_and_no_more_than_allowed(text: str, room: int, keep: Keep) -> None:
    limit = OutputLimit(max_chars=room, keep=keep)
    kept = shorten(text, limit)
    if len(text) <= room:
        assert kept == text
    elif keep == "head":
        assert text.startswith(kept)
        assert len(kept) <= room
    else:
        head, gap, tail = GAP.split(kept)
        assert text.startswith(head)
        assert text.endswith(tail)
        assert int(gap) == len(text) - len(head) - len(tail)
        assert len(head) + len(tail) <= room


@given(anything, st.integers(0, 60))
def test_a_cut_never_parts_what_people_see_as_one_character(text: str, room: int) -> None:
    cuts = [len(clipped) for clipped in (shorten(text, OutputLimit(max_chars=room)),) if clipped != text]
    if len(text) > room:
        head, _, tail = GAP.split(shorten(text, OutputLimit(max_chars=room, keep="head_tail")))
        cuts += [len(head), len(text) - len(tail)]
    for at in cuts:
        if 0 < at < len(text):
            assert not unicodedata.combining(text[at])
            assert "\u200d" not in (text[at - 1], text[at])
            assert text[at - 1 : at + 1] != "\r\n"
            assert not "\U0001f3fb" <= text[at] <= "\U0001f3ff"


def test_an_endless_character_is_cut_anyway() -> None:
    assert len(shorten("e" + "\u0301" * 20_000, HEAD)) == 8000


@given(st.text(max_size=300), st.integers(0, 100))
def test_a_clipped_text_has_at_most_that_many_characters(text: str, most: int) -> None:
    clipped = clip(text, most)
    assert len(clipped) <= most
    assert (clipped == text) == (len(text) <= most)


@settings(deadline=None)
@given(anything, st.integers(0, 60))
def test_a_clipped_text_begins_as_it_did_and_parts_no_character(text: str, most: int) -> None:
    head = re.sub(r"…( \[cut: \d+ characters, \d+ allowed\])?$", "", clip(text, most))
    assert text.startswith(head)
    if 0 < len(head) < len(text):
        assert not unicodedata.combining(text[len(head)])
        assert text[len(head) - 1 : len(head) + 1] != "\r\n"


@settings(deadline=None)
@given(anything, st.integers(1, 9), st.integers(0, 60), st.sampled_from(["head", "head_tail"]))
def test_a_token_bound_holds_for_any_text(text: str, times: int, most: int, keep: Keep) -> None:
    limit = OutputLimit(max_chars=400, max_tokens=most, keep=keep)
    kept = shorten(text * times, limit)
    assert count(kept) <= most or not GAP.sub("", kept)


@pytest.mark.requirement("P-19")
def test_a_clipped_text_states_what_was_cut() -> None:
    assert clip("x" * 1000, 100).endswith("… [cut: 1000 characters, 100 allowed]")
    assert clip("x" * 1000, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize("unit", ["word ", "漢字", "\U0001f680", "a", "\n", "0f3c"])
@pytest.mark.parametrize("keep", ["head", "head_tail"])
def test_a_token_bound_holds_exactly(unit: str, keep: Keep) -> None:
    limit = OutputLimit(max_chars=20_000, max_tokens=1000, keep=keep)
    kept = shorten(unit * (20_000 // len(unit)), limit)
    assert count(kept) <= 1000
    assert unit in ("a", "\n") or count(kept) > 500  # and not much is given away


async def test_a_hundred_megabytes_are_cut_in_bounded_time(tmp_path: Path) -> None:
    text = "0123456789\n" * 10_000_000
    begun = time.process_time()
    assert len(shorten(text, ENDS)) < 8100
    assert len(clip(text, 100)) == 100
    with open_toolbench(tmp_path / "w") as desk:
        result = await bash_result(desk, text)
    assert len(result.content) < 9000
    assert time.process_time() - begun < 10


def test_names_in_the_hint_cannot_leave_their_attribute() -> None:
    hint = ElementTree.fromstring(hint_of('a"><b>&', 2, 1, 'x"y<z').splitlines()[0] + "</system_hint>")
    assert (hint.attrib["tool"], hint.attrib["full_output"]) == ('a"><b>&', 'x"y<z')


def test_texts_become_valid_or_one_line_and_private_paths_are_recognized() -> None:
    assert valid("a\ud800") == "a\ufffd"
    assert one_line("a\nb\x1b\udcff") == "a\\nb\\x1b\ufffd"
    assert [is_private(path) for path in (".deputize", ".deputize/x", ".deputizes", "a/.deputize")] == [
        True,
        True,
        False,
        False,
    ]
