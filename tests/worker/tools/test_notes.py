"""record_note and recall_notes: what is written down, how it is read, and what happens to a file that is broken."""

from __future__ import annotations

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.events import StepCompleted
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.tools.base import Kind, Touches
from deputize.worker.workspace.files import Files
from deputize.worker.workspace.locks import file_lock
from deputize.worker.workspace.notes import MAX_BYTES, MEMORY_FILE, Notes
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.toolbench import EVERYTHING, Toolbench, recoverable


@pytest.mark.requirement("S000-085", "S000-086", "S000-087", "S000-090", "S000-093", "S004-023")
async def test_what_was_recorded_is_recalled_numbered_with_category_and_time(bare_desk: Toolbench) -> None:
    first = await bare_desk.call("record_note", content="The build needs make.", category="project_info")
    await bare_desk.call("record_note", content="Prefers short answers.\nAlways.")
    assert first.content == "Recorded note: The build needs make. (category: project_info)."
    kept = json.loads(bare_desk.read(MEMORY_FILE))
    assert [list(note) for note in kept] == [["timestamp", "category", "content"]] * 2
    assert [note["category"] for note in kept] == ["project_info", "general"]
    times = [note["timestamp"] for note in kept]
    assert all(datetime.fromisoformat(time).tzinfo for time in times)
    assert (await bare_desk.call("recall_notes")).content == (
        "Recorded Notes:\n"
        f"1. [project_info] The build needs make.\n   (recorded at {times[0]})\n"
        f"2. [general] Prefers short answers.\nAlways.\n   (recorded at {times[1]})"
    )
    only = await bare_desk.call("recall_notes", category="general")
    assert only.content == (
        f"Recorded Notes:\n1. [general] Prefers short answers.\nAlways.\n   (recorded at {times[1]})"
    )


@pytest.mark.requirement("S000-088")
async def test_the_file_is_indented_json_in_the_notes_own_letters(bare_desk: Toolbench) -> None:
    await bare_desk.call("record_note", content="Größe: 漢字 🚀", category="ключ")
    text = bare_desk.read(MEMORY_FILE).decode()
    assert '\n    "category": "ключ",\n    "content": "Größe: 漢字 🚀"\n  }\n]' in text
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)


@pytest.mark.requirement("S000-089", "S000-091", "S000-092")
async def test_looking_for_notes_that_are_not_there_makes_no_file(bare_desk: Toolbench) -> None:
    none = await bare_desk.call("recall_notes")
    assert (none.success, none.content) == (True, "No notes recorded yet.")
    assert list(bare_desk.root.iterdir()) == []
    bare_desk.write(MEMORY_FILE, "[]")
    assert (await bare_desk.call("recall_notes", category="x")).content == "No notes recorded yet."
    await bare_desk.call("record_note", content="something")
    other = await bare_desk.call("recall_notes", category="decision")
    assert (other.success, other.content) == (True, "No notes found in category: decision")


@pytest.mark.requirement("S000-094")
async def test_notes_of_others_may_lack_fields_and_keep_what_they_have(bare_desk: Toolbench) -> None:
    bare_desk.write(MEMORY_FILE, '[{}, {"content": "old", "by": "someone"}]')
    assert (await bare_desk.call("recall_notes", category="general")).content == (
        "Recorded Notes:\n1. [general] \n   (recorded at unknown time)\n2. [general] old\n   (recorded at unknown time)"
    )
    await bare_desk.call("record_note", content="new")
    assert json.loads(bare_desk.read(MEMORY_FILE))[:2] == [{}, {"content": "old", "by": "someone"}]


@pytest.mark.parametrize("broken", [b"{", b'{"content": "x"}', b'["a note"]', b"\xff\xfe\x00", b"", b"[" * 100_000])
async def test_a_file_that_holds_no_notes_is_moved_aside_and_never_overwritten(
    bare_desk: Toolbench, broken: bytes
) -> None:
    bare_desk.write(MEMORY_FILE, broken)
    assert "record_note moves it aside" in await bare_desk.refusal(ErrorType.NOT_TEXT, "recall_notes")
    assert bare_desk.read(MEMORY_FILE) == broken
    result = await bare_desk.call("record_note", content="new")
    assert result.success
    (aside,) = [path for path in bare_desk.root.iterdir() if ".corrupt-" in path.name]
    assert f"it was moved to {aside.name}." in result.content
    assert aside.read_bytes() == broken
    assert [note["content"] for note in json.loads(bare_desk.read(MEMORY_FILE))] == ["new"]


async def test_a_full_file_stays_as_it_is(bare_desk: Toolbench) -> None:
    full = json.dumps([{"content": "x" * (MAX_BYTES - 100)}])
    bare_desk.write(MEMORY_FILE, full)
    result = await bare_desk.call("record_note", content="y" * 200)
    assert result.error_type is ErrorType.FILE_TOO_LARGE
    assert bare_desk.read(MEMORY_FILE) == full.encode()


async def test_a_blank_note_is_refused(bare_desk: Toolbench) -> None:
    error = await bare_desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "record_note", content=" \n")
    assert "content: it is blank; write what to remember" in error


async def test_many_who_write_at_once_lose_no_note(bare_desk: Toolbench) -> None:
    """Each with descriptors of its own, as workers of one workspace have."""

    def write(number: int) -> None:
        with Files(bare_desk.root) as files:
            Notes(files).add(f"note {number}", "general", Event())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    notes = json.loads(bare_desk.read(MEMORY_FILE))
    assert sorted(note["content"] for note in notes) == sorted(f"note {number}" for number in range(40))


async def test_who_holds_the_lock_for_too_long_is_not_waited_for(bare_desk: Toolbench, tmp_path: Path) -> None:
    with file_lock(bare_desk.files, "lock", Event()):
        with pytest.raises(ToolError) as caught, file_lock(bare_desk.files, "lock", Event(), 0):
            pass
        assert caught.value.type is ErrorType.TIMEOUT
        stop = Event()
        stop.set()
        with pytest.raises(ToolError), file_lock(bare_desk.files, "lock", stop):
            pass
    with file_lock(bare_desk.files, "lock", Event(), 0):
        pass
    (bare_desk.root / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolError), file_lock(bare_desk.files, "out", Event()):
        pass
    assert not (tmp_path / "elsewhere").exists()


async def test_a_call_that_waits_for_the_lock_can_be_cancelled(bare_desk: Toolbench) -> None:
    bare_desk.write(".deputize/.gitignore", "*\n")
    with file_lock(bare_desk.files, ".deputize/notes.lock", Event()):
        waiting = asyncio.create_task(bare_desk.call("record_note", content="x"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not (bare_desk.root / MEMORY_FILE).exists()


async def test_after_a_crash_the_file_shows_whether_the_note_was_recorded(bare_desk: Toolbench) -> None:
    tool = recoverable("record_note")
    params = tool.parse({"content": "once", "category": "c"})
    await bare_desk.call("record_note", content="once", category="c")  # the same note, from an earlier call
    context = bare_desk.context()
    facts = json.loads(json.dumps(await tool.facts(context, params)))
    assert await tool.probe(context, params, facts) is False
    await tool.run(context, params)
    await bare_desk.call("record_note", content="another")
    found = await tool.probe(context, params, facts)
    assert found
    assert found.content == "Recorded note: once (category: c)."
    bare_desk.write(MEMORY_FILE, "[]")
    assert await tool.probe(context, params, facts) is None


async def test_after_a_crash_a_broken_file_is_known_to_hold_no_note(bare_desk: Toolbench) -> None:
    tool = recoverable("record_note")
    params = tool.parse({"content": "once"})
    bare_desk.write(MEMORY_FILE, "{")
    facts = await tool.facts(bare_desk.context(), params)
    assert await tool.probe(bare_desk.context(), params, facts) is False
    await tool.run(bare_desk.context(), params)
    assert await tool.probe(bare_desk.context(), params, facts)


@pytest.mark.requirement("S004-023")
def test_notes_are_of_the_kind_other_and_stay_inside() -> None:
    tool = EVERYTHING["record_note"]
    assert (tool.kind, EVERYTHING["recall_notes"].kind) == (Kind.OTHER, Kind.READ)
    view = PolicyCall(tool, Touches(paths=(MEMORY_FILE,)))
    assert denial(decide(view, PolicyContext(ApprovalMode.SANDBOXED))) is None
    assert denial(decide(view, PolicyContext(ApprovalMode.READ_ONLY))) is not None


@pytest.mark.requirement("S000-012", "S000-095")
async def test_notes_outlive_the_run_with_the_files_they_stand_in(redis_url: str, tmp_path: Path) -> None:
    turns = [call("record_note", content="Tests need Redis.")], [call("recall_notes")], [say("Noted.")]
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_note": True}) as bench:
        first = await bench.run(model=script(tmp_path, *turns))
        assert first.files_modified == [MEMORY_FILE]
        files = shutil.copytree(bench.settings.workspaces / first.delegation_id / "files", tmp_path / "kept")
        again = await bench.run(
            model=script(tmp_path, [call("recall_notes")], [say("Known.")]),
            workspace={"kind": "directory", "path": str(files)},
        )
        events = [envelope.event for envelope in await bench.events(again.delegation_id)]
        (recalled,) = [event.step.result or "" for event in events if isinstance(event, StepCompleted)]
        assert "1. [general] Tests need Redis." in recalled


@pytest.mark.requirement("S000-012")
async def test_without_the_switch_no_run_has_notes_unless_it_names_them(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("recall_notes")], [say("done")])
    without = await bench.run(model=model)
    assert "there is no tool 'recall_notes' in this run" in without.errors[0]
    assert (await bench.run(model=model, tools=["recall_notes"])).errors == []
