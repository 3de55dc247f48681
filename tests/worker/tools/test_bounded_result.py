"""What becomes of an answer that is too long: cut with a hint, and kept where the model can read it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.runs.toolbench import Toolbench


@pytest.mark.requirement("S001-053", "S001-056", "S001-057", "S001-058")
async def test_a_cut_answer_ends_with_the_hint_and_the_whole_of_it_can_be_read(desk: Toolbench) -> None:
    result = await desk.call("bash", command="seq 1 5000; echo the end")
    hint = ElementTree.fromstring(result.content[result.content.index("<system_hint") :])
    assert hint.attrib == {
        "type": "tool_output_omitted",
        "tool": "bash",
        "reason": "too_long",
        "actual_chars": "23900",
        "max_chars": "8000",
        "full_output": ".deputize/output/call-1.txt",
    }
    assert "cut automatically" in (hint.text or "")
    assert "read_file (offset, limit)" in (hint.text or "")
    assert result.content.index("the end") < result.content.index("<system_hint")
    assert result.metadata["truncated"] is True
    saved = await desk.call("read_file", path=hint.attrib["full_output"], offset=3000, limit=1)
    assert saved.content.startswith("  3000|3000\n")
    found = await desk.call("grep", pattern="^4321$", path=hint.attrib["full_output"])
    assert "  4321|4321" in found.content


async def test_what_we_keep_for_ourselves_is_seen_by_no_search_and_not_by_git(desk: Toolbench) -> None:
    desk.write("mine.txt", "4321\n")
    await desk.call("bash", command="seq 1 5000")
    assert (await desk.call("glob", pattern="**/*", respect_gitignore=False)).content == "mine.txt"
    assert (await desk.call("list_directory")).content == "mine.txt  (5 bytes)"
    assert (await desk.call("grep", pattern="4321", output_mode="files")).content == "mine.txt"
    assert desk.read(".deputize/.gitignore") == b"*\n"
    assert (await desk.call("glob", pattern="*", path=".deputize/output")).content == ".deputize/output/call-1.txt"
    assert (await desk.call("grep", pattern="^999$", path=".deputize", output_mode="count")).success


async def test_two_calls_do_not_overwrite_each_others_output(desk: Toolbench) -> None:
    await desk.call("bash", command="seq 1 5000")
    await desk.call("bash", command="seq 5001 9999")
    assert len(list((desk.root / ".deputize/output").iterdir())) == 2
