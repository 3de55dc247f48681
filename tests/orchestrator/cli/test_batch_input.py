"""The requests of a batch: JSON lines, plain lines and tables with templates, and every mistake by its place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.batch_input import BatchInput
from deputize.orchestrator.cli.request_options import RequestOptions
from deputize.shared.errors import Invalid, Refused
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService


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


def test_what_a_json_line_says_goes_before_the_options() -> None:
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
        "t.csv, line 3: /task: the task is blank; say in words what is to be done"
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


def test_a_mistake_of_an_option_is_told_once_and_that_of_a_template_by_line() -> None:
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
    assert (first.task, first.context, first.labels) == ("Check a.py", "slow", {"run": "7"})
    assert first.limits.max_tokens == 9
    assert [each.task for each in rest] == ["one", "two"]
    done = await deputize("batch", "-", "--context", "-", stdin=json.dumps({"task": "x"}), DEPUTIZE_URL=url)
    assert done.code == 2
    assert "only once" in done.err
