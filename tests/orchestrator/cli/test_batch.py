"""`deputize batch`: requests from lines and tables, results into a file, and on again after a break."""

from __future__ import annotations

import fcntl
import io
import json
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.batch import submit_in_chunks
from deputize.orchestrator.cli.batch_input import BatchInput
from deputize.orchestrator.cli.request_options import RequestOptions
from deputize.orchestrator.client import Client
from deputize.orchestrator.delegations import open_service
from deputize.shared.connection import connect
from deputize.shared.delegation import TerminationReason
from deputize.shared.errors import Invalid, Refused
from deputize.shared.facts import TournamentFacts
from deputize.shared.fleet import Fleet
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import READ_FILE, FakeService, worker_card
from tests.orchestrator.serving import served, settings
from tests.waiting import until


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task": "one"}\n\n{"task": "two", "limits": {"maxTurns": 2}}\n{"task": "three"}\n')
    return path


async def finish_each(service: FakeService, number: int) -> None:
    """Finishes delegations as they are followed, the newest first."""
    await until(lambda: service.following == number, 60)
    for id in reversed(service.runs):
        if not service.runs[id].status.finished:
            service.finish(id, summary=f"did {service.runs[id].request.task}")


async def test_results_come_as_they_finish_with_their_lines(url: str, service: FakeService, tasks: Path) -> None:
    async with started("batch", str(tasks), "--json", DEPUTIZE_URL=url) as command:
        await finish_each(service, 3)
        done = await command.done()
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert {row["line"]: row["summary"] for row in rows} == {1: "did one", 3: "did two", 4: "did three"}


async def test_a_line_is_done_several_times_by_its_own_field_or_by_the_option(
    url: str, service: FakeService, tasks: Path
) -> None:
    asked = {"count": 3, "stop": "all", "concurrency": 1, "models": [], "efforts": []}
    tasks.write_text(json.dumps({"task": "one", "attempts": asked}) + '\n{"task": "two"}\n')
    arguments = ("batch", str(tasks), "--verify", "make test", "--attempts", "2", "--json")
    async with started(*arguments, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        for id in service.runs:
            service.finish(id, tournament=TournamentFacts(attempts=[], passed=0, of=2))
        done = await command.done()
    counts = {run.request.task: run.request.attempts for run in service.runs.values()}
    assert {task: each and (each.count, each.stop) for task, each in counts.items()} == {
        "one": (3, "all"),
        "two": (2, "verified"),
    }
    assert [json.loads(line)["tournament"]["of"] for line in done.out.splitlines()] == [2, 2]


async def test_stdin_is_read_and_people_get_a_line_each(url: str, service: FakeService) -> None:
    async with started("batch", "-", stdin='{"task": "one"}', DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        service.finish(id, TerminationReason.ERROR, summary="It broke.\nBadly.")
        done = await command.done()
    assert (done.code, done.out) == (1, f"✗ line 1  {id}  failed (error)  0.0 s  $0.0000  It broke. Badly.\n")


async def test_a_wrong_line_is_named_and_nothing_is_handed_over(url: str, service: FakeService, tasks: Path) -> None:
    tasks.write_text('{"task": "one"}\n{"task": "two", "limits": {"maxTurn": 2}}\n')
    done = await deputize("batch", str(tasks), DEPUTIZE_URL=url)
    assert done.code == 2
    assert "line 2: /limits/maxTurn: unknown key 'maxTurn'; did you mean 'maxTurns'?" in done.err
    assert service.runs == {}


async def test_after_a_break_resume_does_only_what_is_left_and_nothing_twice(
    url: str, service: FakeService, tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    arguments = ["batch", str(tasks), "--out", str(out)]
    async with started(*arguments, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 3, 60)
        first, second, third = service.runs
        service.finish(second, summary="did two")
        await until(out.read_text)
        await command.stop()  # killed: what it followed goes on without it
    service.finish(third, summary="did three")
    assert (await deputize(*arguments, DEPUTIZE_URL=url)).code == 2  # it has results already

    async with started(*arguments, "--resume", DEPUTIZE_URL=url) as command:
        await until(lambda: len(out.read_text().splitlines()) == 2, 60)
        await until(lambda: service.following == 1)
        service.finish(first, summary="did one")
        done = await command.done()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert done.code == 0
    assert len(service.runs) == 3
    assert {row["line"]: row["summary"] for row in rows} == {1: "did one", 3: "did two", 4: "did three"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.jsonl", "tasks.jsonl"]

    done = await deputize(*arguments, "--resume", DEPUTIZE_URL=url)
    assert (done.code, done.out) == (0, "")
    assert "3 done before, 0 requests left" in done.err


async def test_resume_without_out_is_wrong_use(tasks: Path) -> None:
    done = await deputize("batch", str(tasks), "--resume")
    assert done.code == 2
    assert "--out" in done.err


async def test_more_than_the_service_takes_at_once_is_sent_in_pieces(url: str, service: FakeService) -> None:
    source = BatchInput.of("-", "text", RequestOptions({}))
    lines = source.read(io.BytesIO(b"".join(b"t%d\n" % number for number in range(1001))))
    async with Client(url) as client:
        delegations = await submit_in_chunks(client, source, lines)
    assert [delegation.request.task for delegation in delegations] == [f"t{number}" for number in range(1001)]


async def test_every_wrong_line_is_named_at_once(url: str, service: FakeService, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_bytes(b'{"task": "one"}\n{"task": " "}\n{"task": "x", "label": {}}\n["task"]\n{"task": "\xff"}\n{')
    done = await deputize("batch", str(tasks), "--out", str(tmp_path / "out"), DEPUTIZE_URL=url)
    assert (done.code, done.out) == (2, "")
    first, *rest = done.err.splitlines()
    assert first == "deputize: 5 mistakes, so nothing was handed over"
    assert [line.split(": ")[0] for line in rest] == [f"  {tasks}, line {number}" for number in (2, 3, 4, 5, 6)]
    assert "did you mean 'labels'?" in rest[1]
    assert "not UTF-8" in rest[3]
    assert service.runs == {}
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


async def test_what_only_the_service_knows_is_reported_by_line_too(redis_url: str, tmp_path: Path) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
    good = {"task": "fine"}
    wrong = [{"task": "x", "tools": ["read_fil"]}, {"task": "x", "workspace": {"kind": "directory", "path": "here"}}]
    tasks.write_text("\n\n".join(map(json.dumps, [good, *wrong, good])))
    using = settings(redis_url=redis_url)
    async with served(lambda: open_service(using, redis_url), using) as url, connect(redis_url) as redis:
        await Fleet(redis).announce(worker_card(), [READ_FILE])
        done = await deputize("batch", str(tasks), "--no-workspace", "--out", str(out), DEPUTIZE_URL=url)
        assert done.code == 2
        lines = done.err.splitlines()
        assert lines[0] == "deputize: 2 mistakes, so nothing was handed over"
        assert lines[1].startswith(f'  {tasks}, line 3: /tools/0: unknown tool "read_fil"; did you mean read_file?')
        assert lines[2].startswith(f"  {tasks}, line 5: /workspace/path: ")
        async with Client(url) as client:
            assert (await client.list()).items == []
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.costly
async def test_of_a_batch_in_pieces_none_goes_on_when_one_is_refused(redis_url: str) -> None:
    using = settings(redis_url=redis_url)
    source = BatchInput.of("t.jsonl", None, RequestOptions({}))
    good, wrong = {"task": "t"}, {"task": "t", "outputSchema": {"type": 5}}
    lines = source.read(io.BytesIO("\n".join(map(json.dumps, [good] * 1001 + [wrong])).encode()))
    async with served(lambda: open_service(using, redis_url), using) as url, Client(url) as client:
        with pytest.raises(Invalid, match=r"t\.jsonl, line 1002: /outputSchema/type: "):
            await submit_in_chunks(client, source, lines)
        assert {each.status for each in (await client.list(limit=500)).items} == {"cancelled"}


@pytest.mark.parametrize("text", [b'\xef\xbb\xbf{"task": "one"}\r\n', b'{"task": "one\xe2\x80\xa8two"}'])
async def test_a_byte_order_mark_and_any_line_separator_inside_a_text_are_fine(
    url: str, service: FakeService, tmp_path: Path, text: bytes
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_bytes(text)
    await deputize("batch", str(tasks), "--wait", "0", DEPUTIZE_URL=url)
    assert len(service.runs) == 1


@pytest.mark.parametrize("out", ["none/out.jsonl", "tasks.jsonl", "folder", "held.jsonl"])
async def test_results_that_cannot_be_written_are_refused_before_anything_starts(
    url: str, service: FakeService, tmp_path: Path, out: str
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": "one"}')
    tmp_path.joinpath("folder").mkdir()
    with tmp_path.joinpath("held.jsonl").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another batch
        done = await deputize("batch", str(tasks), "--resume", "--out", str(tmp_path / out), DEPUTIZE_URL=url)
    assert done.code in (2, 3)
    assert done.err.count("\n") <= 4
    assert "Traceback" not in done.err
    assert out in done.err
    assert service.runs == {}
    assert tasks.read_text() == '{"task": "one"}'


async def test_a_torn_row_and_odd_line_separators_lose_no_result(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"task": "one"}\n{"task": "two"}\n')
    async with started("batch", str(tasks), "--out", str(out), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        first, second = service.runs
        service.finish(first, summary="a\u2028b\x85c")
        await until(out.read_bytes)
        await command.stop()
    with out.open("ab") as file:
        file.write('{"line": 2, "summary": "zaż'.encode()[:-1])  # a write that was cut inside a character
    service.finish(second, summary="did two")
    done = await deputize("batch", str(tasks), "--out", str(out), "--resume", DEPUTIZE_URL=url)
    assert done.code == 0
    assert "1 done before, 1 request left" in done.err
    rows = [json.loads(line) for line in out.read_text().split("\n") if line]
    assert {row["line"]: row["summary"] for row in rows} == {1: "a\u2028b\x85c", 2: "did two"}
    assert len(service.runs) == 2


async def test_a_line_that_changed_meanwhile_is_not_taken_for_done(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"task": "one"}\n{"task": "two"}\n')
    async with started("batch", str(tasks), "--out", str(out), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        service.finish(next(iter(service.runs)))
        await until(out.read_bytes)
        await command.stop()
    tasks.write_text('{"task": "zero"}\n{"task": "one"}\n{"task": "two"}\n')
    done = await deputize("batch", str(tasks), "--out", str(out), "--resume", DEPUTIZE_URL=url)
    assert done.code == 2
    assert "line 1 is not what it was" in done.err
    assert len(service.runs) == 2


async def test_lines_with_the_same_key_are_one_delegation_and_both_have_its_result(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"task": "one", "idempotencyKey": "k"}\n' * 2)
    async with started("batch", str(tasks), "--out", str(out), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 1, 60)
        service.finish(next(iter(service.runs)))
        assert (await command.done()).code == 0
    assert [json.loads(line)["line"] for line in out.read_text().splitlines()] == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "tasks.jsonl"]


async def test_a_line_with_a_key_of_its_own_is_the_same_request_in_another_batch(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": "one", "idempotencyKey": "k"}\n')
    codes = [(await deputize("batch", str(tasks), "--wait", "0", DEPUTIZE_URL=url)).code for _ in range(2)]
    assert codes == [124, 124]
    assert len(service.runs) == 1


def source(name: str, format: str | None = None, **fields: Any) -> BatchInput:
    return BatchInput.of(name, format, RequestOptions(fields, "--task"))


def read(name: str, data: str | bytes, format: str | None = None, **fields: Any) -> dict[int, Any]:
    data = data.encode() if isinstance(data, str) else data
    lines = source(name, format, **fields).read(io.BytesIO(data))
    return {line.number: line.request.model_dump(by_alias=True, exclude_unset=True) for line in lines}


def mistakes(name: str, data: str | bytes, format: str | None = None, **fields: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        read(name, data, format, **fields)
    each = refused.value.errors or [{"pointer": str(refused.value), "detail": ""}]
    return [": ".join(filter(None, (one["pointer"], one["detail"]))) for one in each]


def test_a_plain_line_is_a_task() -> None:
    assert read("t.txt", "one\r\n\n  two \n") == {1: {"task": "one"}, 3: {"task": "two"}}
    assert read("-", "one", "text", task="Check {{line}}.") == {1: {"task": "Check one."}}


def test_a_cell_of_each_row_fills_the_templates_of_all_options() -> None:
    table = '\ufeffpath,note\r\na.py,"x, ""y"""\r\n\r\n"b\r\n.py",{{path}}\r\n'
    given = {"task": "Check {{ path }}", "context": "{{note}}", "labels": {"file": "{{path}}"}, "priority": 7}
    assert read("t.csv", table, **given) == {
        2: {"task": "Check a.py", "context": 'x, "y"', "labels": {"file": "a.py"}, "priority": 7},
        4: {"task": "Check b\r\n.py", "context": "{{path}}", "labels": {"file": "b\r\n.py"}, "priority": 7},
    }


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.tsv", "\t"), ("T.CSV", ";")])
def test_without_a_template_columns_named_as_fields_are_the_request(name: str, separator: str) -> None:
    rows = [["task", "other", "context", "expectedOutcome"], ["one", "x", "", "it works"], ["two", "y", "c", ""]]
    assert read(name, "\n".join(map(separator.join, rows)), model="m") == {
        2: {"task": "one", "expectedOutcome": "it works", "model": "m"},
        3: {"task": "two", "context": "c", "model": "m"},
    }


def test_the_fields_of_a_json_line_go_before_the_options() -> None:
    given = {"task": "same", "limits": {"maxTurns": 3, "maxTokens": 9}, "expectedOutcome": "green"}
    lines = '{"workspace": {"kind": "directory", "path": "/a"}}\n{"task": "t", "expected_outcome": "o", "limits": '
    assert read("t.jsonl", lines + '{"max_turns": 5}}', **given) == {
        1: given | {"workspace": {"kind": "directory", "path": "/a"}},
        2: {"task": "t", "expectedOutcome": "o", "limits": {"maxTurns": 5, "maxTokens": 9}},
    }


def test_every_wrong_row_is_named_by_its_first_line() -> None:
    table = 'path,note\na.py\n"b\n.py",x,y\n , \nc.py,z\n,"x"y\n""," "\n'
    assert mistakes("t.csv", table, task="{{path}}") == [
        "t.csv, line 2: 1 cell, but 2 columns; a cell with a separator needs quotes",
        "t.csv, line 3: 3 cells, but 2 columns; a cell with a separator needs quotes",
        "t.csv, line 7: not a row of the table: ',' expected after '\"'",
    ]
    assert mistakes("t.csv", "path,note\na,b\n ,c", task="{{path}}") == [
        "t.csv, line 3: /task: the task is blank; describe the work in words"
    ]


def test_every_column_that_is_not_there_is_named_by_its_option() -> None:
    assert mistakes("t.csv", "path,note\na,b", task="{{pth}} {{note}}", context="{{zzz}}") == [
        "--task: {{pth}}: no such column; did you mean path?",
        "--context: {{zzz}}: no such column; there are path, note",
    ]
    assert "--format text, csv or tsv" in mistakes("t.jsonl", '{"task": "x"}', context="{{a}}")[0]


@pytest.mark.parametrize(
    ("name", "data", "given", "said"),
    [
        ("t.csv", "path\na", {}, "no column 'task'"),
        ("t.csv", "path,path\na,b", {"task": "{{path}}"}, "several columns 'path'"),
        ("t.csv", "path\na", {"task": "x"}, "the same for every line"),
        ("t.txt", "a", {"task": "x"}, "put {{line}} where"),
        ("t.csv", b"task\nx\n\xff", {}, "not UTF-8 text at line 3"),
        ("t.csv", 'task\n"x', {}, "t.csv, line 2: not a row"),
        ("t.csv", '"task', {}, "not a row"),
        ("t.csv", b"\xff\xfet", {}, "UTF-16; save it as UTF-8"),
        ("t.jsonl", "do it", {}, "use --format text"),
        ("t.jsonl", '{"task": "a", "task": "b"}', {}, "the key 'task' is there twice"),
        ("t.jsonl", "[" * 100_000, {}, "too deeply"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, data: str | bytes, given: dict[str, str], said: str) -> None:
    assert said in " ".join(mistakes(name, data, **given))


def test_an_error_of_an_option_is_shown_once_and_that_of_a_template_by_line() -> None:
    given = source("t.csv", task="{{a}}", tools=["nix"], workspace={"kind": "directory", "path": "/{{a}}"})
    lines = given.read(io.BytesIO(b"a\nx\ny\n"))
    errors = [
        {"pointer": f"/requests/{index}/{pointer}", "detail": detail}
        for index in (0, 1)
        for pointer, detail in (("tools/0", "unknown"), ("workspace/path", "none"))
    ]
    assert given.placed(Refused("no", errors), lines).errors == [
        {"pointer": "--tools, item 1", "detail": "unknown"},
        {"pointer": "t.csv, line 2", "detail": "/workspace/path: none"},
        {"pointer": "t.csv, line 3", "detail": "/workspace/path: none"},
    ]


async def test_the_command_reads_a_table_and_plain_lines(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("t.csv").write_text("path,why\na.py,slow\n")
    more = ["--context", "{{why}}", "--label", "run:7", "--max-tokens", "9", "--wait", "0"]
    await deputize("batch", "t.csv", "--task", "Check {{path}}", *more, cwd=tmp_path, DEPUTIZE_URL=url)
    await deputize("batch", "-", "--format", "text", "--wait", "0", stdin="one\ntwo\n", DEPUTIZE_URL=url)
    first, *rest = [each.request for each in service.runs.values()]
    assert (first.task, first.context, first.labels["run"]) == ("Check a.py", "slow", "7")
    assert len({each.labels["batch"] for each in rest}) == 1
    assert first.labels["batch"] not in {each.labels["batch"] for each in rest}
    assert first.limits.max_tokens == 9
    assert [each.task for each in rest] == ["one", "two"]
    done = await deputize("batch", "-", "--context", "-", stdin=json.dumps({"task": "x"}), DEPUTIZE_URL=url)
    assert done.code == 2
    assert "only once" in done.err
