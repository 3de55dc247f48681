"""How long a verdict on a large suite takes after the agent's end, in times of one execution of the suite.

The suite has 663 tests, of which some fail before the run. It is executed on the base while the agent works, twice as
some fail there; after the agent's end on the candidate, and again beside the canary.
"""

from __future__ import annotations

import asyncio
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
    assert (twice, sum(double(n) - double(n) for n in range(1_000))) == ({number} * 2, 0)

"""
COMMAND = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly -p no:xdist"
"""What the plugins of this project's own tests would do is left out."""
AGENT_EXECUTIONS = 3.5
"""How long the agent works, in times of one execution: long enough for those on the base."""


async def measure(runs: int) -> list[Number]:
    alone, after, share, executed = list[float](), list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        project = _project(folder / "project")
        redis = RedisProcess(folder / "redis")
        show = [str(path) for path in dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix)))]
        try:
            async with open_bench(redis.url, folder / "home", sandbox={"show": show}) as bench:
                for _ in range(runs):
                    seconds = await _once(project)
                    waited, used = await _verdict(bench, folder, project, seconds)
                    alone.append(seconds)
                    after.append(waited)
                    share.append(waited / seconds)
                    executed.append(used / seconds)
        finally:
            redis.close()
    return [
        Number(f"a suite of {FILES * TESTS_IN_EACH} tests, alone", "s", alone),
        Number("… the agent's end → the verdict", "s", after, at_most=10),
        Number("… in times of the suite alone", "×", share, at_most=2.2),
        Number("… all of its executions in times of the suite alone", "×", executed, at_most=4.5),
    ]


def _project(folder: Path) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "price.py").write_text(BUGGY)
    (folder / "conftest.py").write_text("")
    for file in range(FILES):
        numbers = range(file * TESTS_IN_EACH + 1, (file + 1) * TESTS_IN_EACH + 1)
        text = "from price import double\n\n" + "".join(TEST.format(number=number) for number in numbers)
        (folder / f"tests/test_{file}.py").write_text(text)
    return folder


async def _once(project: Path) -> float:
    """Returns the seconds of the suite alone, as willing to wait for others as the commands of a check."""
    begun = time.perf_counter()
    line, quiet = f"nice -n {NICENESS} {COMMAND}", asyncio.subprocess.DEVNULL
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "."}
    process = await asyncio.create_subprocess_shell(line, cwd=project, stdout=quiet, stderr=quiet, env=env)
    await process.wait()
    return time.perf_counter() - begun


async def _verdict(bench: Bench, folder: Path, project: Path, seconds: float) -> tuple[float, float]:
    """Returns the seconds from the agent's last words to the result, and those of all executions of the suite."""
    work = [
        call("write_file", path="price.py", content=FIXED),
        call("bash", command=f"sleep {AGENT_EXECUTIONS * seconds}"),
    ]
    result = await bench.run(
        model=script(folder, work, [say("done")]),
        workspace=str(project),
        verify=[{"kind": "command", "run": COMMAND}],
        max_verify_rounds=0,
    )
    assert result.verification.verdict == "verified", result.verification
    events = await bench.events(result)
    return _at(events, RunFinished) - _at(events, Replied), result.verification.checks[0].duration_ms / 1000


def _at(events: list[Envelope], kind: type[Replied] | type[RunFinished]) -> float:
    """Returns when the last event of the kind happened."""
    return max(each.at.timestamp() for each in events if isinstance(each.event, kind))
