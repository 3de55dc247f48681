"""The channel of reports: what code under test can do with it, beside the programs that report."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from deputize.shared.libc import closing_fd
from deputize.worker.linux.open_files import now_open
from deputize.worker.verification.reports.report_channel import BENT, ReportChannel
from deputize.worker.verification.reports.report_files import merged
from deputize.worker.verification.reports.states import Report
from deputize.worker.verification.runners.known import Instrumented
from tests.waiting import until
from tests.worker.verification.reporting import reported

FAILING = "import pytest\ndef test_a(): assert 0\n"
AGAIN = """\
import {how}_channel as channel
def test_a():
    begin, put, end = channel.reporting(channel.opened())
    begin(); put(item="x", file="x.py", name="x"); put(test="x", state="passed"); end(end=0)
    assert 0
"""
"""The code under test opens a connection of its own."""
BELOW = """\
import subprocess, sys
def test_a():
    line = "from {how}_channel import *; begin(); put(item='x', file='x.py', name='x'); put(test='x', state='passed')"
    subprocess.run([sys.executable, "-c", line + "; end(end=0)"], check=True)
    assert 0
"""
BY_DESCRIPTOR = """\
import os, stat
def test_a():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), b'{{"test": "test_a.py::test_a", "state": "passed"}}\\n{{"end": 0}}\\n')
        except OSError:
            pass
    os._exit(0)
"""
MANY = """\
import os, socket, time
import {how}_channel as channel
def test_a():
    connections = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    for each in connections:
        each.connect(os.path.join(os.path.dirname(channel.__file__), "{how}_socket"))
    time.sleep(0.5)
    assert 0
"""
REPLACED = """\
import sys
def test_a():
    sys.modules["{how}_channel"].put = lambda **fields: None
    assert 0
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_a.py"]


async def of(tmp_path: Path, text: str) -> Report:
    how = Instrumented("pytest")
    (tmp_path / "test_a.py").write_text(text.replace("{how}", how.name).replace("{{", "{").replace("}}", "}"))
    report = await reported(how, PYTEST, tmp_path)
    assert report is not None
    return report


async def test_a_second_connection_of_a_process_is_seen(tmp_path: Path) -> None:
    report = await of(tmp_path, AGAIN)
    assert report.bent == BENT
    assert f"{tmp_path}/test_a.py::test_a" in report.of("failed")


async def test_what_the_code_under_test_starts_reports_nothing(tmp_path: Path) -> None:
    report = await of(tmp_path, BELOW)
    assert (report.tests, report.bent, report.finished) == ({f"{tmp_path}/test_a.py::test_a": "failed"}, set(), True)


async def test_a_process_can_open_few_files_of_the_worker(tmp_path: Path) -> None:
    before, seen = now_open(), [0]
    reading = asyncio.create_task(of(tmp_path, MANY))
    await until(lambda: seen.append(now_open()) or reading.done())
    assert (await reading).bent == BENT
    assert max(seen) - before < 150


async def test_words_without_the_key_count_for_nothing(tmp_path: Path) -> None:
    report = await of(tmp_path, BY_DESCRIPTOR)
    assert (report.of("passed"), report.bent, report.finished) == (set(), BENT, False)


async def test_a_replaced_function_of_the_channel_is_seen(tmp_path: Path) -> None:
    report = await of(tmp_path, REPLACED)
    assert [name.partition("_channel")[2] for name in report.bent] == [".put"]


async def test_neither_path_nor_key_stand_in_the_environment(tmp_path: Path) -> None:
    how = Instrumented("pytest")
    text = "def test_a():\n    open('seen', 'w').write(open('/proc/self/environ').read())\n"
    (tmp_path / "test_a.py").write_text(text)
    await reported(how, PYTEST, tmp_path)
    assert how.name in (tmp_path / "seen").read_text()
    assert how.socket not in (tmp_path / "seen").read_text()
    assert not any(how.socket in value for value in how.variables.values())


async def test_sessions_beside_each_other_are_both_read(tmp_path: Path) -> None:
    how = Instrumented("pytest")
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    line = " & ".join(f"{sys.executable} -m pytest -q -p no:cacheprovider test_{name}.py" for name in "ab")
    report = await reported(how, ["sh", "-c", f"{line} & wait"], tmp_path)
    assert report is not None
    assert sorted(id.rpartition("::")[2] for id in report.of("passed")) == ["test_a", "test_b"]
    assert (report.finished, report.bent) == (True, set())


def written(folder: Path, *texts: str, pipe: str = "pipe") -> Report | None:
    """Returns what is read from a pipe into which several have written."""

    async def read() -> Report | None:
        with ReportChannel(folder, "socket", [pipe]) as channel:
            for text in texts:
                await asyncio.to_thread((folder / pipe).write_text, text)
        return channel.report()

    return asyncio.run(read())


def jest(state: str) -> str:
    tests = [{"fullName": "sum adds", "title": "adds", "status": state}]
    return json.dumps({"testResults": [{"name": "/workspace/a.test.js", "status": state, "assertionResults": tests}]})


@pytest.mark.parametrize(
    ("texts", "state", "finished"),
    [
        ([jest("passed")], "passed", True),
        ([jest("failed"), jest("passed")], "failed", True),
        ([jest("passed"), jest("failed") + "\n"], "failed", True),
        ([jest("failed"), "x"], None, False),
        (["[" * 100_000], None, False),
        ([jest("passed"), "3"], "passed", False),
        ([jest("passed"), "0 " * 2_000_000], None, False),
        (["<?xml " * 100_000], None, False),
    ],
)
def test_what_was_written_into_a_pipe_stays(
    tmp_path: Path, texts: list[str], state: str | None, finished: bool
) -> None:
    report = written(tmp_path, *texts)
    assert report is not None
    assert (report.tests.get("/workspace/a.test.js::sum adds"), report.finished) == (state, finished)


def test_a_pipe_into_which_nothing_was_written_is_no_report(tmp_path: Path) -> None:
    assert written(tmp_path) is None


NODE_BENT = '{"begin":1,"end":0,"bent":"assert.ok"}\n'


@pytest.mark.parametrize(
    ("text", "bent", "finished"),
    [
        (NODE_BENT, {"assert.ok"}, True),
        (NODE_BENT * 800, {"assert.ok"}, True),
        (NODE_BENT * 1300, BENT, True),
        ("0\n" * 20_000, BENT, True),
        ("0 " * 2_000, set[str](), False),
    ],
)
def test_what_processes_of_node_write_is_no_report_of_a_runner(
    tmp_path: Path, text: str, bent: set[str], finished: bool
) -> None:
    report = written(tmp_path, text, pipe="x_bent")
    assert report is not None
    assert (report.bent, report.finished, report.of_runner) == (bent, finished, False)
    whole = merged([report, Report()])
    assert whole is not None
    assert (whole.bent, whole.of_runner) == (bent, True)


async def test_a_full_pipe_is_read_no_more(tmp_path: Path) -> None:
    with ReportChannel(tmp_path, "socket", ["x_bent"]) as channel:
        writing = os.open(tmp_path / "x_bent", os.O_WRONLY | os.O_NONBLOCK)
        with closing_fd(writing):
            await until(lambda: _is_full(writing))
    report = channel.report()
    assert report is not None
    assert report.bent == BENT


def _is_full(fd: int) -> bool:
    """Writes until a pipe is full; returns whether it was full before, that is, whether nothing reads it."""
    try:
        os.write(fd, b"0\n" * 8192)
    except BlockingIOError:
        return True
    return False


def test_xml_of_several_runners_is_one_report(tmp_path: Path) -> None:
    head = '<?xml version="1.0"?>\n<testsuites><testsuite name="s"><testcase name="'
    report = written(tmp_path, f'{head}a"/></testsuite></testsuites>\n', f'{head}b"/></testsuite></testsuites>\n')
    assert report is not None
    assert (report.of("passed"), report.finished) == ({"a", "b"}, True)


@pytest.mark.parametrize("words", [["node", "--test"], ["node", "a.test.js"]])
async def test_a_file_of_node_cannot_open_the_report(tmp_path: Path, words: list[str]) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    how = Instrumented("make test")  # what starts Node then is not known, so that its options are inherited
    (tmp_path / "a.test.js").write_text(
        "const { connect } = require('node:net'), test = require('node:test');\n"
        "const text = process.env.NODE_OPTIONS.match(/(\\S+)_node.mjs/)[1];\n"
        "test('a', async () => {\n"
        "  await new Promise((end) => { const channel = connect(`${text}_socket`); channel.on('close', end);\n"
        "    channel.on('error', end); channel.on('data', (key) => { const start = key.toString().trim();\n"
        '      for (const line of [\'{"begin":1}\', \'{"item":"a","file":"a","name":"a"}\',\n'
        '        \'{"test":"a","state":"passed"}\', \'{"end":0}\']) channel.write(`${start}${line}\\n`);\n'
        "      channel.end(); }); });\n"
        "  throw new Error('no'); });\n"
    )
    report = await reported(how, words, tmp_path)
    assert report is not None
    assert any(id.endswith("::a") for id in report.of("failed"))
    assert report.bent == BENT or not report.of("passed")
