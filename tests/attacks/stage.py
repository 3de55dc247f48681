"""A worker for attacks by its model: what it holds, and what its machine and its other runs hold, is marked.

A test states the model's calls, the worker carries them out, and nothing that is marked may be in what comes of it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import Step, ToolAgentResult
from deputize.shared.events import AnyEvent, StepCompleted
from deputize.shared.runs.keys import artifacts_key, children_key, events_key, history_key, record_key
from deputize.shared.runs.record import published
from deputize.shared.settings import Settings
from tests.processes.ordinary_user import ORDINARY_UID, need_ordinary_user
from tests.processes.preloaded import WORKER
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say
from tests.runs.fleet import Fleet
from tests.runs.nesting import by_task
from tests.waiting import until

MARK = "deputize-canary-"
"""How everything begins that no run may get hold of."""
RUN_A_COMMAND = ("bash", "mcp__planted__run")
"""Both run a command: in a shell of the model, and in an MCP server whose program lies in the workspace."""
LIMITS = {"memory_bytes": 400 << 20, "disk_bytes": 40 << 20, "tmp_bytes": 16 << 20, "file_bytes": 24 << 20}
LIMITS |= {"processes": 64}
"""Small ones, so that what exhausts them is quick."""
RULES = '[[rule]]\nname = "locked"\ndecision = "deny"\nreason = "locked is for people"\npath = "locked/**"\n'
RULES += '[[rule]]\nname = "no-scp"\ndecision = "deny"\nreason = "Only people copy"\ncommand_prefix = "scp"\n'
SKILL = "---\nname: good\ndescription: A good one.\n---\nDo good.\n"
KEPT_BY = ("files", "home", "redis", "scripts")


def marked() -> str:
    return f"{MARK}{secrets.token_hex(8)}"


@dataclass(frozen=True)
class Outcome:
    """What came of a run: its result, its events, its patch, and all it has left, unmasked."""

    result: ToolAgentResult
    events: list[AnyEvent]
    patch: str
    left: bytes

    @property
    def steps(self) -> list[Step]:
        """In the order of the calls."""
        return [event.step for event in self.events if isinstance(event, StepCompleted)]

    def answers(self) -> list[str]:
        return [f"{step.result or ''}\n{step.error or ''}".strip() for step in self.steps]


@dataclass
class Stage:
    """One worker, run by root or by an ordinary user, and whom and what its runs may attack."""

    folder: Path
    settings: Settings
    server: RedisProcess
    pid: int = 0
    victim: str = ""
    marks: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def is_ours(self) -> bool:
        """Whether the worker's user is this process's."""
        return Path(f"/proc/{self.pid}").stat().st_uid == os.geteuid()

    @property
    def port(self) -> int:
        """Where Redis listens besides its socket."""
        with redis.Redis.from_url(self.url) as client:
            return int(client.config_get("port")["port"] or 0)

    @property
    def private_file(self) -> Path:
        """A file of the worker's user."""
        return self.folder / "files/.ssh/id_ed25519"

    def files_of(self, id: str) -> Path:
        return self.settings.workspaces / id / "files"

    def whole(self) -> dict[str, bytes]:
        """Every file that no run may change, with its content."""
        found = [path for path in (self.folder / "files").rglob("*") if not path.is_dir()]
        found += [self.files_of(self.victim) / "diary.txt"]
        return {str(path): os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() for path in found}

    @asynccontextmanager
    async def fleet(self) -> AsyncGenerator[Fleet]:
        """The service, for one test; the worker stays."""
        async with open_service(self.settings, self.url) as service:
            yield Fleet(self.settings, service)

    def script(self, turns: list[Any], child: list[Any] | None = None) -> str:
        """The model that does these turns, and ``child`` for the task of that name."""
        model = by_task(self.folder / "scripts", child=child or [[say("done")]], do=turns)
        (self.folder / "scripts" / Path(model).name).chmod(0o644)
        return model

    async def run(self, *turns: list[dict[str, Any]], child: Any = (), wait: float = 60, **request: Any) -> Outcome:
        """Has the model make these calls, a turn each. ``child`` are those of a subagent, which is given that task."""
        async with self.fleet() as fleet:
            model = self.script([*turns, [say("done")]], child=[[*child], [say("{{result}}")]])
            tools = sorted({each["call"] for turn in turns for each in turn if "call" in each})
            limits = {"max_tool_calls": 2000, "max_tokens": 50_000_000}
            asked = {"model": model, "tools": tools, "approval_mode": "auto", "limits": limits} | request
            result = await fleet.result(await fleet.hand_over(**asked), wait)
            events = [envelope.event for envelope in await fleet.service.events(result.delegation_id)]
            patch = await fleet.service.patch(result.delegation_id)
        return Outcome(result, events, patch, self._left_by(result.delegation_id))

    async def attack(self, *turns: list[dict[str, Any]], **request: Any) -> Outcome:
        """Runs, and looks for anything marked in what the model has got hold of, and for changes outside."""
        before = self.whole()
        outcome = await self.run(*turns, **request)
        taken = [what for what, mark in self.marks.items() if mark.encode() in outcome.left]
        assert taken == [], f"the model has got hold of {taken}"
        assert self.whole() == before
        return outcome

    async def shell(self, *commands: str, tool: str = "bash", **request: Any) -> list[str]:
        """The answers to these commands, one after the other in one run, in the shell or by an MCP server.

        For the shell they are written into files first, so that no rule about command lines sees what they do.
        """
        calls = [call(tool, command=each) for each in commands]
        written = [call("write_file", path=f".attack-{at}", content=each) for at, each in enumerate(commands)]
        if tool == "bash":
            calls = [call("bash", command=f"bash .attack-{at}") for at in range(len(commands))]
        else:
            request |= {"workspace": {"kind": "directory", "path": str(self.folder / "files/project")}}
        outcome = await self.attack(written, calls, **request)
        assert outcome.result.termination_reason == "completed", outcome.result.errors
        return outcome.answers()[len(written) :]

    def _left_by(self, id: str) -> bytes:
        """The conversation, the record and every file of a run and of its subagents."""
        with redis.Redis.from_url(self.url) as client:
            said = [*client.lrange(history_key(id), 0, -1), *client.hgetall(record_key(id)).values()]
            said += client.hgetall(artifacts_key(id)).values()
            entries: Any = client.xrange(events_key(id))
            said += [published(fields[b"e"].decode()).encode() for _, fields in entries]
            of_subagents = [self._left_by(os.fsdecode(child)) for child in client.smembers(children_key(id))]
        paths = [path for path in self.files_of(id).rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
        return b"\n".join([*map(os.fsencode, said), *of_subagents, *(path.read_bytes() for path in paths)])


@asynccontextmanager
async def open_stage(
    folder: Path, uid: int | None, network: dict[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[Stage]:
    """A worker below ``folder``, with a victim at work in it. ``uid`` is of `uid_of`; None is this process's.

    ``network`` are the arguments of a ``tests.network.internet.Rerouted`` for it.
    """
    for name in KEPT_BY:
        (folder / name).mkdir()
    server = RedisProcess(folder / "redis")
    key = marked()
    chosen = Settings.load(
        environ={},
        redis_url=server.url,
        home=folder / "home",
        local=True,
        scripts=folder / "scripts",
        mcp_config=folder / "files/mcp.json",
        policy=[folder / "files/rules.toml"],
        skills_dir=folder / "files/skills",
        model_endpoint={"ANTHROPIC_API_KEY": key},
        sandbox=LIMITS | settings.pop("sandbox", {}),
        **settings,
    )
    stage = Stage(folder, chosen, server, marks={"the key": key})
    _mark_files(stage)
    for path in (folder, *folder.rglob("*")) if uid else ():
        os.chown(path, uid or -1, uid or -1, follow_symlinks=False)
    try:
        async with stage.fleet() as fleet:
            try:
                own = [*(["--ordinary"] if uid else ()), *(["--network", json.dumps(network)] if network else ())]
                program = "tests.attacks.attacked_worker" if own else WORKER
                stage.pid = (await fleet.start("1", *own, program=program)).pid
                stage.victim = await _victim(stage, fleet)
                yield stage
            finally:
                await fleet.close()
    finally:
        server.kill()


def _mark_files(stage: Stage) -> None:
    """What lies on the machine, and a port of Redis as many have it."""
    for what, path in {"a key of ssh": stage.private_file, "a dotfile": stage.folder / "files/.env"}.items():
        stage.marks[what] = marked()
        path.parent.mkdir(exist_ok=True)
        path.write_text(stage.marks[what])
        path.chmod(0o600)
    project, repository, skill = (stage.folder / "files" / name for name in ("project", "repository", "skills/good"))
    for folder in (project, repository, skill):
        folder.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL)
    (stage.folder / "files/rules.toml").write_text(RULES)
    (repository / "src.txt").write_text("original\n")
    for line in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", "-C", repository, *line.split()], check=True)
    shutil.copy(Path(__file__).with_name("planted_server.py"), project)
    planted = {"command": "python3", "args": ["-SE", "${workspaceFolder}/planted_server.py"]}
    (stage.folder / "files/mcp.json").write_text(json.dumps({"mcpServers": {"planted": planted}}))
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with redis.Redis.from_url(stage.url) as client:
        client.config_set("port", port)
        client.set("deputize:test:mark", stage.marks.setdefault("a key of Redis", marked()))


async def _victim(stage: Stage, fleet: Fleet) -> str:
    """Another caller's run, in the middle of a command."""
    marks = {what: marked() for what in ("its file", "its variable", "its argument")}
    stage.marks |= marks
    line = (
        f"echo {marks['its file']} > diary.txt; export MINE={marks['its variable']}; touch begun; "
        f"exec -a {marks['its argument']} sleep 1000"
    )
    model = stage.script([[call("bash", command=line, timeout=600)], [say("done")]])
    id = await fleet.hand_over(model=model, tools=["bash"])
    await until((stage.files_of(id) / "begun").exists, 30)
    return id


def uid_of(user: str) -> int | None:
    """The user that root's worker becomes, if it is not to run as this process; skips where that one cannot work."""
    if user == "root" or os.geteuid() != 0:
        return None
    need_ordinary_user()
    return ORDINARY_UID
