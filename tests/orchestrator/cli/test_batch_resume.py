"""`--resume` of `batch` and `eval`, where all was done, and where the file of results is not what they wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until


async def completed(service: FakeService, url: str, command: str, tasks: Path, out: Path, *more: str) -> int:
    """Carries a batch or an evaluation out to its end. Returns how many delegations it had."""
    before = len(service.runs)
    async with started(command, str(tasks), "--out", str(out), *more, DEPUTIZE_URL=url) as running:
        await until(lambda: service.following, 60)
        while service.following:
            await until(lambda: any(not run.status.finished for run in service.runs.values()) or not service.following)
            for id, run in [*service.runs.items()]:
                if not run.status.finished:
                    service.finish(id)
        assert (await running.done()).code == 0
    assert not out.with_name(out.name + ".batch").exists()
    return len(service.runs) - before


@pytest.mark.parametrize(
    ("command", "lines", "more", "why"),
    [
        ("batch", ["another", "two"], [], "line 1 is not what it was"),
        ("batch", ["one", "another"], [], "line 2 is not what it was"),
        ("batch", ["two", "one"], [], "line 1 is not what it was"),
        ("batch", ["one"], [], "line 2 is not there any more"),
        ("batch", ["one", "", "two"], [], "line 2 is not there any more"),
        ("batch", ["one", "two"], ["--max-turns", "7"], "line 1 is not what it was"),
        ("batch", ["one", "another", "three"], [], "line 2 is not what it was"),
        ("eval", ["another", "two"], ["--runs", "1"], "task 1, run 1 is not what it was"),
        ("eval", ["one"], ["--runs", "1"], "task 2, run 1 is not there any more"),
        ("eval", ["one", "two"], ["--runs", "2"], "task 1, run 2 is not what it was"),
    ],
)
async def test_a_change_after_all_is_done_is_refused_as_before(
    url: str, service: FakeService, tmp_path: Path, command: str, lines: list[str], more: list[str], why: str
) -> None:
    tasks, out = tmp_path / "tasks.txt", tmp_path / "out.jsonl"
    tasks.write_text("one\ntwo\n")
    first = [] if command == "batch" else ["--runs", "1"]
    assert await completed(service, url, command, tasks, out, *first) == 2
    kept = out.read_bytes()
    tasks.write_text("".join(f"{line}\n" for line in lines))
    done = await deputize(command, str(tasks), "--out", str(out), "--wait", "0", "--resume", *more, DEPUTIZE_URL=url)
    assert (done.code, why in done.err, len(service.runs)) == (2, True, 2), done.err
    assert out.read_bytes() == kept


async def test_new_lines_at_the_end_of_what_is_done_are_all_that_is_left(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tasks, out = tmp_path / "tasks.txt", tmp_path / "out.jsonl"
    tasks.write_text("one\n")
    await completed(service, url, "batch", tasks, out)
    tasks.write_text("one\ntwo\n")
    assert await completed(service, url, "batch", tasks, out, "--resume") == 1
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["line"] for row in rows] == [1, 2]
    for row in rows:
        del row["requestDigest"]  # as an earlier version wrote them
    out.write_text("\n".join(map(json.dumps, rows)))
    done = await deputize("batch", str(tasks), "--out", str(out), "--resume", DEPUTIZE_URL=url)
    assert (done.code, len(service.runs)) == (0, 2)
    assert "2 results of an earlier version cannot be compared with the requests" in done.err
    assert out.read_text().endswith("}\n")


@pytest.mark.parametrize(
    ("garbage", "named"),
    [
        (b"garbage\n", "row 2;"),
        (b"my notes", "row 2;"),
        (b'{"line": "2"}\n', "row 2;"),
        (b'{"line": 2, "summary": 5}\n', "row 2;"),
        (b"\n[]\n\xff\n7\nnull\n", "row 3, 4, 5, …;"),
        (b"[" * 100_000 + b"\n", "row 2;"),
    ],
)
async def test_a_row_that_is_no_result_is_named_and_the_file_is_left_alone(
    url: str, service: FakeService, tmp_path: Path, garbage: bytes, named: str
) -> None:
    tasks, out = tmp_path / "tasks.txt", tmp_path / "out.jsonl"
    tasks.write_text("one\n")
    await completed(service, url, "batch", tasks, out)
    with out.open("ab") as file:
        file.write(garbage)
    kept = out.read_bytes()
    tasks.write_text("one\ntwo\n")
    done = await deputize("batch", str(tasks), "--out", str(out), "--wait", "0", "--resume", DEPUTIZE_URL=url)
    assert (done.code, named in done.err, len(service.runs)) == (2, True, 1), done.err
    assert out.read_bytes() == kept


async def test_a_file_of_something_else_is_never_written_over(url: str, service: FakeService, tmp_path: Path) -> None:
    out = tmp_path / "notes"
    out.write_text("my notes")  # without a line break, as a torn row is
    done = await deputize("batch", "-", "--out", str(out), "--wait", "0", stdin='{"task": "x"}', DEPUTIZE_URL=url)
    assert (done.code, out.read_text(), service.runs) == (2, "my notes", {})
