"""An honest run beside one that fills the small disk of their stack: `python -m tests.system.disk_filler FOLDER KIND…`.

Prints as JSON what came of both for each kind, one after the other on one stack, and how often its store was started.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deputize.orchestrator.orchestrator import Orchestrator
from deputize.shared.errors import OutOfSpace
from deputize.shared.events import StepCompleted
from deputize.shared.settings import Settings
from tests.runs.bench import call, say
from tests.runs.nesting import by_task
from tests.system.stack_processes import ROOT
from tests.waiting import until

ALL = "fallocate -l $(df --output=avail -B1 . | tail -1) {0}; echo made"
MANY = "import os\nfor n in range(10**6): os.{0}"
KINDS = {
    "at once": ALL.format("big"),
    "fast": "head -c 2G /dev/zero > big",
    "by and by": "for n in $(seq 2000); do head -c 1M /dev/zero >> big; sleep 0.02; done",
    "files": f'mkdir d; cd d; python3 -c "{MANY.format("close(os.open(str(n), os.O_CREAT))")}"',
    "folders": f'mkdir d; cd d; python3 -c "{MANY.format("mkdir(str(n))")}"',
    "closed": f"mkdir d; {ALL.format('d/big')}; chmod 000 d",
    "deep": "python3 -c \"import os\nfor n in range(2000): os.mkdir('d'); os.chdir('d')\"; "
    f"python3 -c \"import os\nwhile os.path.exists('d'): os.chdir('d')\nos.system('{ALL.format('big')}')\"",
    "background": f"{ALL.format('big')}; sleep 100",
    "open and removed": f"exec 3>big; rm big; {ALL.format('/proc/self/fd/3')}; sleep 1",
    "in many processes": f"for n in $(seq 20); do (head -c 1G /dev/zero > big$n) & done; wait; {ALL.format('big')}",
}
DISK = 60 << 20
A_TURN = 1 << 20
"""Characters that a turn adds to the record, which are not compressed there."""
TURNS = {"one reply": 2}
"""How many of them are more than the disk takes; of others so many as have its bytes."""
RECORDS = {
    "a file over and over": lambda text: [call("write_file", path="same.txt", content=text)],
    "many files": lambda text: [call("write_file", path=f"{text[:8]}.txt", content=text[8:])],
    "words": lambda text: [say(text), call("bash", command="true")],
    "outputs": lambda text: [call("bash", command="head -c 60000 /dev/urandom | base64 -w0")] * 16,
    "one reply": lambda text: [say(text * 40), call("bash", command="true")],
    "artifacts": lambda text: [call("create_artifact", name=text[:8], content=text[8:])],
    "arguments": lambda text: [call("no_such_tool", text=text)],
    "tasks": lambda text: [call("call_subagent", task=f"long {text}")],
}
"""What a run may have its record grow by, each turn."""
DELEGATIONS = "delegations"
"""A caller that hands over as many as there is room for."""
TOOLS = ["bash", "write_file", "create_artifact", "call_subagent"]
NEXT = "rm -rf big*; sleep 0.5; echo went on"
STEADY = "for n in $(seq 20); do echo $n >> log; sleep 0.1; done; wc -l < log"


MOUNTED = (
    f'mount -t tmpfs -o size={DISK},nr_inodes=20000,mode=755 tmpfs "$1"; "$0" -m tests.system.disk_filler "$@"; '
    'flock "$1/home/supervisor.lock" true'
)


def filled(*kinds: str) -> dict[str, dict[str, Any]]:
    """What came of an honest run beside one of each kind, on a disk of 60 MB."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNTED, sys.executable, folder, *kinds],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout)


def reserves(kind: str) -> bool:
    """Whether it takes the whole disk by one system call."""
    return "fallocate" in KINDS[kind]


def turns_of(kind: str) -> list[list[dict[str, Any]]]:
    if grows := RECORDS.get(kind):
        return [grows(secrets.token_hex(A_TURN // 2)) for _ in range(TURNS.get(kind, DISK // A_TURN))]
    if kind == DELEGATIONS:
        return []
    first = call("bash", command=KINDS[kind], **({"run_in_background": True} if kind == "background" else {}))
    return [[first], [call("bash", command="sleep 3")]] if kind == "background" else [[first]]


async def flood(orchestrator: Orchestrator, asked: dict[str, Any]) -> str:
    """Hands over long delegations until one is refused; returns why."""
    for _ in range(200):
        try:
            await orchestrator.start("long", context=secrets.token_hex(A_TURN // 4), **asked)
        except OutOfSpace as error:
            return str(error)
    return "none was refused"


async def beside(orchestrator: Orchestrator, folder: Path, kind: str) -> dict[str, Any]:
    """What came of an honest run beside one of this kind."""
    limits = {"max_tokens": 100_000_000_000, "max_turns": 1000, "max_tool_calls": 10_000}
    asked: dict[str, Any] = {"approval_mode": "auto", "tools": TOOLS, "limits": limits}
    honest = await orchestrator.start("honest", **asked)
    await until(lambda: [*folder.glob(f"home/workspaces/{honest.id}/files/log")], 30)
    began = time.monotonic()
    refusal = await flood(orchestrator, asked) if kind == DELEGATIONS else ""
    hostile = await (orchestrator.result(honest.id) if refusal else orchestrator.delegate(f"<{kind}>", **asked))
    taken = time.monotonic() - began
    events = [each.event for each in await orchestrator.service.events(hostile.delegation_id)]
    steps = [each.step for each in events if isinstance(each, StepCompleted)]
    other = await orchestrator.result(honest.id)
    log = (folder / "home/logs/redis.log").read_text()
    return {
        "seconds": round(taken, 1),
        "answers": [f"{step.result or ''}|{step.error or ''}" for step in steps],
        "errors": hostile.errors,
        "summary": refusal or hostile.summary,
        "hostile": [hostile.termination_reason, hostile.attempts],
        "honest": [other.termination_reason, other.attempts, *other.errors],
        "starts": (starts := log.count("Ready to accept connections")),
        "log": log[-3000:] if starts > 1 else "",
    }


async def fill(folder: Path, kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    end = [[call("bash", command=NEXT)], [say("done")]]
    rules: dict[str, Any] = {f"<{kind}>": [*turns_of(kind), *end] for kind in kinds}
    steady = [[call("bash", command=STEADY)]] * 3
    model = by_task(Path("/tmp"), None, **rules, long=[[say("done")]], honest=[*steady, [say("done")]])
    settings = Settings.load(
        environ={}, home=folder / "home", model=model, scripts=Path("/tmp"), lease_seconds=15, loop_detection=False
    )
    try:
        async with Orchestrator(settings) as orchestrator:
            found: dict[str, dict[str, Any]] = {}
            for kind in kinds:
                found[kind] = await beside(orchestrator, folder, kind)
                await orchestrator.service.prune(older_than=0)
                await until(lambda: not [*folder.glob("home/workspaces/dlg_*")], 60)
            return found
    finally:
        Path(model.removeprefix("scripted:")).unlink()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(fill(Path(sys.argv[1]), sys.argv[2:]))))
