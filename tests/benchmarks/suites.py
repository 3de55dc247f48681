"""How long a verdict on a large suite takes after the agent's end, in times of one execution of the suite.

The suite has 663 tests, of which some fail before the run, and takes about 3 s. It is executed on the base while the
agent works, and the tests that fail there once more. After the agent's end it is executed on the candidate. Then a
sample is executed on control and canary, beside the tests that turned green. Each execution reports its CPU time
through a pipe. On two idle cores the verdict takes the longest chain of executions after the agent's end: that of CPU
times is the same beside other load.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from deputize.shared.events import Envelope, Replied, RunFinished
from deputize.worker.sandbox.process import NICENESS
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script

FILES, TESTS_IN_EACH = 13, 51
BUGGY, FIXED = "def double(n):\n    return n + 2\n", "def double(n):\n    return n * 2\n"
TEST = """\
def test_{number}():
    twice = double({number}) if {number} % 50 == 0 else {number} * 2
    assert (twice, sum(double(n) - double(n) for n in range(33_000))) == ({number} * 2, 0)

"""
COMMAND = (
    f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly -p no:xdist; code=$?; times >PIPE; exit $code"
)
"""What the plugins of this project's own tests would do is left out. Reports the CPU times of shell and children."""
_TIME = re.compile(r"(\d+)m([\d.]+)s")
AGENT_EXECUTIONS = 3.5
"""How long the agent works, in times of one execution: long enough for those on the base."""


async def measure(runs: int) -> list[Number]:
    alone, after, share, chain, cpu = list[float](), list[float](), list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        project = _project(folder / "project")
        redis = RedisProcess(folder / "redis")
        times = _Times(folder / "times")
        show = [str(path) for path in dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix), times.folder))]
        try:
            async with open_bench(redis.url, folder / "home", sandbox={"show": show}) as bench:
                for _ in range(runs):
                    seconds = await _once(project, times.command)
                    (one,) = times.reported()
                    after.append(await _verdict(bench, folder, project, seconds, times.command))
                    used = times.reported()
                    alone.append(seconds)
                    share.append(after[-1] / seconds)
                    _, _, candidate, *others = used
                    chain.append((candidate + max(others)) / one)
                    cpu.append(sum(used) / one)
        finally:
            times.close()
            redis.close()
    return [
        Number(f"a suite of {FILES * TESTS_IN_EACH} tests, alone", "s", alone),
        Number("… the agent's end → the verdict", "s", after, at_most=10),
        Number("… in times of the suite alone", "×", share, at_most=2.2),
        Number("… CPU of its longest chain of executions, in times of one", "×", chain, at_most=2.2),
        Number("… CPU of all executions, in times of one", "×", cpu, at_most=4.5),
    ]


class _Times:
    """A pipe in a folder that sandboxes are shown; commands write into it although they see the folder read-only."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, path = folder, folder / "pipe"
        os.mkfifo(path)
        path.chmod(0o666)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.command = COMMAND.replace("PIPE", str(path))

    def reported(self) -> list[float]:
        """Returns the seconds of each execution since the last call, in the order of their ends."""
        lines = os.read(self._fd, 1 << 16).decode().splitlines()
        seconds = [sum(60 * int(m) + float(s) for m, s in _TIME.findall(line)) for line in lines]
        return [sum(seconds[at : at + 2]) for at in range(0, len(seconds), 2)]

    def close(self) -> None:
        os.close(self._fd)


def _project(folder: Path) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "price.py").write_text(BUGGY)
    (folder / "conftest.py").write_text("")
    for file in range(FILES):
        numbers = range(file * TESTS_IN_EACH + 1, (file + 1) * TESTS_IN_EACH + 1)
        text = "from price import double\n\n" + "".join(TEST.format(number=number) for number in numbers)
        (folder / f"tests/test_{file}.py").write_text(text)
    return folder


async def _once(project: Path, command: str) -> float:
    """Returns the seconds of the suite alone, as willing to wait for others as the commands of a check."""
    begun = time.perf_counter()
    words, quiet = ("nice", "-n", str(NICENESS), "bash", "-c", command), asyncio.subprocess.DEVNULL
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "."}
    process = await asyncio.create_subprocess_exec(*words, cwd=project, stdout=quiet, stderr=quiet, env=env)
    await process.wait()
    return time.perf_counter() - begun


async def _verdict(bench: Bench, folder: Path, project: Path, seconds: float, command: str) -> float:
    """Returns the seconds from the agent's last words to the result."""
    work = [
        call("write_file", path="price.py", content=FIXED),
        call("bash", command=f"sleep {AGENT_EXECUTIONS * seconds}"),
    ]
    result = await bench.run(
        model=script(folder, work, [say("done")]),
        workspace=str(project),
        verify=[{"kind": "command", "run": command}],
        max_verify_rounds=0,
    )
    assert result.verification.verdict == "verified", result.verification
    events = await bench.events(result)
    return _at(events, RunFinished) - _at(events, Replied)


def _at(events: list[Envelope], kind: type[Replied] | type[RunFinished]) -> float:
    """Returns when the last event of the kind happened."""
    return max(each.at.timestamp() for each in events if isinstance(each.event, kind))
