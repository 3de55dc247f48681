"""What `deputize doctor` finds on the machine of a worker: which promises hold, and what a project's commands find.

`python -m deputize.worker.promises [DIR]` is started as a worker is, and prints its findings as JSON. It ends when its
input does: what it has made is gone by then. ``worker/sandbox/trials.py`` tries commands; what concerns other
calls is tried by ``calls.py``. With `--model NAME` it asks the endpoint of a model instead (``model.py``).
"""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...shared.errors import DeputizeError, Misconfigured, ToolError
from ...shared.listed import Source, listed, outer_rules
from ...shared.open_files import raise_limit
from ...shared.own_process import is_memory_private, keep_memory_private
from ...shared.promises import PROMISES, Finding, Promise
from ...shared.request import ApprovalMode
from ...shared.settings import SandboxSettings, Settings, environment
from ...shared.settings.environments import matching
from ..contracts import Command
from ..instructions.files import all_instructions
from ..linux.open_files import OpenFiles
from ..policy.explanation import Explainer
from ..policy.rule_file import load_rules
from ..sandbox.bounds import size
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.environment import MOUNT
from ..sandbox.project_tools import ProjectTools, check_shown, tools_for
from ..sandbox.protections import Problems
from ..sandbox.setup_command import SetupCache
from ..sandbox.trials import Canaries, try_commands, try_egress, try_limits
from ..search.ripgrep import is_installed
from ..tracing import open_exporter
from ..web.egress_proxy import EgressProxy
from ..workspace.files import Files
from ..workspace.source import open_folder
from .calls import ASKS, FORBIDDEN, plant, try_decisions, try_file_tools, try_planted
from .environment_proposal import proposed_environment
from .services import service_rows

_REMEDY = "run no foreign code here before this is mended, and report it"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PROGRAMS = {
    "python": "$(command -v python || command -v python3) --version",
    "pytest": "$(command -v python || command -v python3) -m pytest --version",
    **{name: f"{name} --version" for name in ("git", "node", "npm", "cargo", "uv", "make", "gcc")},
    "go": "go version",
    "java": "java -version",
}
_ALWAYS = ("python", "pytest", "node", "git")
"""Programs whose absence is reported, too."""
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_PROJECT_SECONDS = 120


@dataclass(slots=True)
class Report:
    """What was found so far."""

    machine: list[Finding] = field(default_factory=list[Finding])
    project: list[Finding] = field(default_factory=list[Finding])
    problems: Problems = field(default_factory=dict[str, list[str]])
    """By promise; an empty list where all is well."""
    untried: dict[str, str] = field(default_factory=dict[str, str])
    """The reason, by promise."""
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """How it was tried, by promise."""
    no_commands: str = ""
    """The row with the fault for which no command can be tried."""

    @contextmanager
    def attempting(self, *promises: str) -> Generator[None]:
        """Notes why the promises could not be tried in the block."""
        try:
            yield
        except (DeputizeError, OSError) as error:
            self.untried |= dict.fromkeys(promises, str(error))

    def add(self, problems: Mapping[str, list[str]], notes: Mapping[str, str] | None = None) -> None:
        for promise, found in problems.items():
            self.problems.setdefault(promise, []).extend(found)
        self.notes |= notes or {}

    def rows(self) -> list[Finding]:
        """Returns a row for each promise that is not the service's own, between the machine's and the project's."""
        promises = [self._row(promise) for promise in PROMISES if not promise.by_service]
        return [*self.machine, *promises, *self.project]

    def _row(self, promise: Promise) -> Finding:
        name, sentence = promise.name, promise.sentence
        if problems := self.problems.get(name):
            return Finding("✗", name, f"it is not true here that {sentence}: {'; '.join(problems)}", _REMEDY)
        if promise.by_command and self.no_commands:
            return Finding("!", name, f"not tried, see {self.no_commands}: {sentence}")
        if name in self.untried or name not in self.problems:
            return Finding("!", name, f"not tried: {sentence}", self.untried.get(name, "report it"))
        but = f" (all but {promise.untried})" if promise.untried else ""
        return Finding("✓", name, f"{sentence}{self.notes.get(name, '')}{but}")


async def find(settings: Settings, canaries: Canaries, directory: Path | None = None) -> list[Finding]:
    """Tries all promises at the same time. ``directory`` is a project whose tools commands are to find."""
    report = Report()
    async with asyncio.TaskGroup() as together:
        together.create_task(_try_calls(settings, canaries, report))
        together.create_task(_try_commands(settings, canaries, report, directory))
    report.machine += [*program_rows(), *memory_rows(is_private=is_memory_private()), *traces_rows(environment())]
    report.machine.append(open_files_row(settings.concurrency))
    return report.rows()


async def _try_commands(settings: Settings, canaries: Canaries, report: Report, directory: Path | None) -> None:
    try:
        check_shown(settings)
    except DeputizeError as error:
        report.machine.append(_wrong_settings(error))
        report.no_commands = "settings"
        return
    reason = await Bubblewrap.selftest(canaries.folder) if settings.sandbox.enabled else ""
    row = sandbox_row(settings.sandbox, reason, for_project=directory is not None)
    report.machine.append(row)
    if row.state != "✓":
        report.no_commands = "sandbox"
        return
    async with asyncio.TaskGroup() as together:
        together.create_task(_isolation(settings, canaries, report))
        together.create_task(_egress(settings, canaries, report))
        together.create_task(_limits(canaries, report))
        together.create_task(_find_services(settings, canaries, report))
        if directory:
            together.create_task(_find_project(settings, directory, canaries, report))


async def _find_services(settings: Settings, canaries: Canaries, report: Report) -> None:
    try:
        report.machine += [row async for row in service_rows(settings, canaries.workspace("services"))]
    except DeputizeError as error:
        report.machine.append(_wrong_settings(error))


def sandbox_row(own: SandboxSettings, reason: str | None, *, for_project: bool) -> Finding:
    """Returns whether commands can be run; ``reason`` is why the self-test failed, if it did."""
    state = "✗" if own.enabled == "required" or for_project else "!"
    if not own.enabled:
        return Finding(state, "sandbox", "switched off, so agents cannot run commands", "unset DEPUTIZE_SANDBOX")
    if reason:
        return Finding(state, "sandbox", "agents cannot run commands here", reason)
    return Finding("✓", "sandbox", f"works; {network(own.allowed_hosts)}, and only the workspace can be written")


def program_rows(
    has_ripgrep: Callable[[], bool] = is_installed, has_pdf: Callable[[str], object] = find_spec
) -> Iterator[Finding]:
    """Yields whether a worker has what its tools need beside the sandbox."""
    if has_ripgrep():
        yield Finding("✓", "ripgrep", "grep and glob search with it")
    else:
        detail = "missing: runs get no grep and no glob"
        yield Finding("!", "ripgrep", detail, "install ripgrep, or the extra sandbox, where workers run")
    if has_pdf("pypdf"):
        yield Finding("✓", "pdf", "web_fetch reads the text of PDFs")
    else:
        yield Finding("!", "pdf", "missing: web_fetch refuses PDFs", "install the extra pdf where workers run")


def memory_rows(*, is_private: bool | None) -> Iterator[Finding]:
    if is_private:
        yield Finding("✓", "memory", "other programs of this user cannot read that of our processes, nor their keys")
    elif is_private is not None:
        detail = "programs of this user can read that of our processes, and the keys in it"
        yield Finding("!", "memory", detail, "run workers as a user that runs nothing else")


def open_files_row(concurrency: int) -> Finding:
    """Returns how many runs a worker takes that is started as this process was."""
    limit = raise_limit()
    remedy = "raise it where workers are started: ulimit -n, LimitNOFILE of systemd, ulimits of a container"
    try:
        most = OpenFiles.for_runs(concurrency).concurrency
    except Misconfigured as error:
        return Finding("✗", "open files", f"no worker starts here: {error}", remedy)
    detail = f"a process may have {limit:,}, with which a worker takes {most} delegations at the same time"
    if most < concurrency:
        return Finding("!", "open files", f"{detail} and not {concurrency} (DEPUTIZE_CONCURRENCY)", remedy)
    return Finding("✓", "open files", detail)


def traces_rows(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Yields whether workers can send traces, where these variables name an endpoint for them."""
    try:
        tracing = open_exporter("doctor", variables)
    except Misconfigured as error:
        yield Finding("!", "traces", f"workers send none: {error}", "correct it, and start the workers anew")
        return
    if tracing:
        tracing.close()
        yield Finding("✓", "traces", "workers send them to the endpoint of the variables OTEL_…")


def network(hosts: list[str]) -> str:
    return f"network: only {', '.join(hosts)}" if hosts else "no network"


def _wrong_settings(error: DeputizeError) -> Finding:
    return Finding("✗", "settings", str(error), "correct the named mistake; commands cannot be tried before")


async def _isolation(settings: Settings, canaries: Canaries, report: Report) -> None:
    with report.attempting("secrets", "files", "network", "kernel"):
        report.add(*await try_commands(Bubblewrap, canaries, settings))


async def _egress(settings: Settings, canaries: Canaries, report: Report) -> None:
    async with _answering() as port:
        own = settings.sandbox
        hosts = ["localhost", *own.allowed_hosts]
        private = [*settings.tools.private_hosts, f"localhost:{port}"]
        reach = EgressProxy("sandbox.allowed_hosts", hosts, own.network_bytes, private_hosts=private)
        other = next((address[1] for name, *_, address in canaries.servers if name.endswith("127.0.0.1")), 1)
        others = [f"http://127.0.0.1:{other}/", f"http://localhost:{other}/", "http://169.254.169.254/"]
        with report.attempting("network"):
            report.add(await try_egress(Bubblewrap, canaries, reach, f"http://localhost:{port}/", others))


async def _limits(canaries: Canaries, report: Report) -> None:
    with report.attempting("bounds"):
        report.add(*await try_limits(Bubblewrap, canaries))


@asynccontextmanager
async def _answering() -> AsyncGenerator[int]:
    """Serves HTTP on a port of this machine, which it yields."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1 << 16)
            writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "localhost", 0, family=socket.AF_INET)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _try_calls(settings: Settings, canaries: Canaries, report: Report) -> None:
    """Tries what needs no sandbox. A worker that names no configuration file has the same other variables."""
    environ = {name: text for name, text in environment().items() if name != "DEPUTIZE_CONFIG"}
    planted = canaries.workspace("planted")
    plant(planted, planted.with_name("executed"))
    with report.attempting("planted"):
        report.problems["planted"] = await try_planted(planted, canaries.workspace("empty"), environ)
    with report.attempting("links"), Files(canaries.workspace("tools"), MOUNT) as files:
        report.problems["links"] = await try_file_tools(files, canaries.private)
    with report.attempting("forbidden"):
        judge = await asyncio.to_thread(lambda: Explainer(settings, load_rules(settings.policy)))
        found = await asyncio.to_thread(try_decisions, judge.explain, FORBIDDEN, "deny", ApprovalMode)
        report.problems["forbidden"] = found
    with report.attempting("permission"):
        judge = Explainer(settings, ())
        found = await asyncio.to_thread(try_decisions, judge.explain, ASKS, "ask", [ApprovalMode.ASK])
        report.problems["permission"] = found


async def _find_project(settings: Settings, directory: Path, canaries: Canaries, report: Report) -> None:
    try:
        report.project += await project_rows(settings, directory, canaries.workspace("project"))
    except DeputizeError as error:
        report.machine.append(_wrong_settings(error))


async def project_rows(settings: Settings, directory: Path, folder: Path) -> list[Finding]:
    """Returns what commands find that work on a copy of the directory, and what its runs may use.

    Every program is asked for its version, inside a sandbox over ``folder``. The directory itself is not shown to any.
    Raises ToolError if commands cannot be run.
    """
    own, tools = settings.sandbox, tools_for(settings, directory)
    with Bubblewrap(folder, tools=tools) as sandbox:
        programs = await _versions(sandbox)
    rows = [Finding("✓", "limits", _limits_of(own))]
    if own.setup:
        when = "done already" if await SetupCache(settings).is_kept(tools, directory) else "runs before the next run"
        hosts = network([*own.setup_hosts, *own.allowed_hosts])
        rows.append(Finding("✓", "set-up", f"{own.setup} ({when}; {hosts})"))
    rows += _environment(settings, directory)
    rows += _instructions(settings, directory)
    return [*rows, *_dependencies(directory, tools), *_programs(directory, tools, programs)]


def _environment(settings: Settings, directory: Path) -> Iterator[Finding]:
    """Yields the environment of the directory's runs, else a table for one to copy, if it has lock files."""
    if name := matching(settings.environments, str(directory.resolve())):
        remedy = f"`deputize env prepare {name}` prepares it now, else the next run does"
        yield Finding("✓", "environment", f"{name}: {settings.environments[name].setup.strip()}", remedy)
    elif table := proposed_environment(directory, str(directory.resolve())):
        yield Finding("✓", "environment", "none yet; this in deputize.toml prepares what commands need:", table)


def _instructions(settings: Settings, directory: Path) -> Iterator[Finding]:
    """Yields the files whose words a run on a copy of the directory reads as the project's instructions."""
    names = settings.tools.instruction_files
    with open_folder(directory) as folder:
        found = all_instructions(folder, listed(Source(folder, directory), outer_rules(directory)), names)
    if found:
        named = (", ".join(file.path for file in each.files) for each in found.values())
        yield Finding("✓", "instructions", "; ".join(named))


def _limits_of(own: SandboxSettings) -> str:
    memory, disk, file, tmp = map(size, (own.memory_bytes, own.disk_bytes, own.file_bytes, own.tmp_bytes))
    return (
        f"a run has {memory} of memory, {own.cpus:g} processors and {disk} of disk; a command ends after "
        f"{own.command_seconds} s, and has {own.processes} processes, files of {file} each, and {tmp} in /tmp"
    )


def _dependencies(directory: Path, tools: ProjectTools) -> Iterator[Finding]:
    if venv := tools.variables.get("VIRTUAL_ENV"):
        yield Finding("✓", "venv", f"{venv}, active and read-only")
    elif any((directory / name).exists() for name in _PYTHON_PROJECT):
        remedy = f"make one in {directory} (`python -m venv .venv`, `uv sync`), or name it in DEPUTIZE_SANDBOX_SHOW"
        yield Finding("!", "venv", "none: there is no virtual environment of this directory", remedy)
    if (directory / "package.json").is_file():
        if "node_modules" in tools.dependencies:
            yield Finding("✓", "packages", f"{directory / 'node_modules'}, read-only")
        else:
            yield Finding("!", "packages", "no node_modules", f"install them in {directory}, or by sandbox.setup")
    for note in tools.notes:
        yield Finding("!", "hidden", note, "or leave it out: the system's programs are there all the same")


def _programs(directory: Path, tools: ProjectTools, versions: Mapping[str, str | None]) -> Iterator[Finding]:
    for name, version in versions.items():
        if version:
            yield Finding("✓", name, version)
        elif name in _ALWAYS:
            remedy = f"install {name}, or name its directory in DEPUTIZE_SANDBOX_SHOW, if agents need it"
            if name == "pytest":
                venv = tools.variables.get("VIRTUAL_ENV", directory / ".venv")
                remedy = f"install it into {venv} if agents are to run Python tests"
            yield Finding("!", name, "not found inside the sandbox", remedy)


async def _versions(sandbox: Bubblewrap) -> dict[str, str | None]:
    """Returns the first line that each program prints about its version; None if it is not there or does not work."""
    shells = [["bash", "--noprofile", "--norc", "-c", line] for line in _PROGRAMS.values()]
    try:
        async with asyncio.TaskGroup() as together:  # none goes on when the sandbox is closed since another failed
            runs = (sandbox.run(Command(each, _PROJECT_SECONDS, merged=True)) for each in shells)
            tasks = [together.create_task(run) for run in runs]
    except* ToolError as group:
        raise group.exceptions[0] from None
    done = [task.result() for task in tasks]
    printed = (each.stdout.decode("utf-8", "replace").partition("\n")[0].strip() for each in done)
    found = (line if each.exit_code == 0 else None for line, each in zip(printed, done, strict=True))
    return dict(zip(_PROGRAMS, found, strict=True))


def _place(settings: Settings) -> Path | None:
    """Returns where the worker's own files lie; None if nothing can be written there."""
    places = (settings.workspaces, settings.home)
    return next((path for path in places if path.is_dir() and os.access(path, os.W_OK | os.X_OK)), None)


async def _while_input_is_open(work: Coroutine[Any, Any, list[Finding]]) -> list[Finding]:
    """Cancels the work when the input ends: the process that asked has gone."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, task.cancel)
    try:
        return await task
    finally:
        loop.remove_reader(0)


def main() -> int:
    keep_memory_private()
    model = sys.argv[2] if sys.argv[1:2] == ["--model"] else None
    directory = Path(sys.argv[1]) if sys.argv[1:] else None
    try:
        settings = Settings.load()
        if model is not None:
            from .endpoint_probe import try_model  # it needs an HTTP client

            rows = asyncio.run(_while_input_is_open(try_model(settings, model)))
            return _print(rows)
        with Canaries(_place(settings)) as canaries:  # removed when no thread uses them any more
            rows = asyncio.run(_while_input_is_open(find(settings, canaries, directory)))
    except DeputizeError as error:
        rows = [_wrong_settings(error)]
    except asyncio.CancelledError:
        return 1
    return _print(rows)


def _print(rows: list[Finding]) -> int:
    json.dump([asdict(row) for row in rows], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
