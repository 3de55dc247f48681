"""One execution of a check's command on one ground, in a fresh sandbox without network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ....shared.checks import CommandCheck
from ....shared.errors import ErrorType, ToolError
from ....shared.facts import GroundState
from ....shared.text import terminal_text
from ...contracts import Command, Completed
from ...environments.maintenance import maintained
from ...environments.run_services import RunServices, services_beside
from ...sandbox.bubblewrap import Bubblewrap
from ...sandbox.environment import MOUNT
from ...sandbox.full_disk import FullDisk
from ...sandbox.layers import make_room
from ...sandbox.project_tools import ProjectTools
from ...threads import run_in_thread
from ...toolkit.offer import RunOffer
from ...tools.command_calls import shell
from ..grounds.stub_repository import lay_repository
from ..protected.paths import OF_TESTS, is_obeyed
from ..reports.report_channel import ReportChannel
from ..reports.report_files import Stamp, remove_old, stamps
from ..reports.states import Report
from .known import Instrumented

NOT_FOUND, NOT_EXECUTABLE, NO_TESTS = 127, 126, 5
NO_TESTS_RAN = "no tests ran"
_KEPT_BYTES = 256 * 1024
_REPORT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Observed:
    """What a command did on one ground. ``why`` explains a state that is neither green nor red."""

    state: GroundState
    exit_code: int | None = None
    output: str = ""
    seconds: float = 0.0
    report: Report | None = None
    why: str = ""
    rewritten: frozenset[str] = frozenset()
    """The files of its tests, and what they compare with, that were changed, removed or made while it ran."""

    @property
    def ok(self) -> bool:
        return self.state == "green"

    @property
    def did_not_end(self) -> bool:
        """Whether it was killed, and not one that could not be started."""
        return self.state == "trouble" and self.exit_code is None

    def completed(self, first: Observed, only: Collection[str]) -> Observed:
        """Returns it with the tests of a first execution that were left out of this one, which was of these alone."""
        if not (first.report and self.report):
            return self
        left_out = {id: state for id, state in first.report.tests.items() if id not in only}
        return replace(self, report=replace(self.report, tests=left_out | self.report.tests))


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs the commands of one run's checks. ``project``: the tools that the run had, none of its making.

    ``folder`` makes directories that go with the grounds; ``failed`` is called where no sandbox could be set up.
    ``seconds``: for an execution of a check that has no time of its own. ``has_repository``: whether the run's files
    are those of a git repository.
    """

    offer: RunOffer
    project: ProjectTools
    folder: Callable[[str], Path]
    failed: Callable[[], None]
    seconds: float
    has_repository: bool = False
    spent: list[float] = field(default_factory=list[float])
    """The seconds of each execution so far."""

    async def run(self, ground: Path, check: CommandCheck, how: Instrumented) -> Observed:
        """Runs the command over the ground. What it does there once more depends on what it left.

        It keeps its priority, however long it lasts: on a busy machine it would not end in its time.
        """
        if self.offer.sandbox_problem:
            return Observed("unknown", why=f"commands cannot be run on this worker: {self.offer.sandbox_problem}")
        await run_in_thread(remove_old, ground, how.named)
        reports = await run_in_thread(self.folder, "report")
        programs = await run_in_thread(self.folder, "programs")
        mounts = await run_in_thread(FullDisk(ground).with_room, how.mounts, programs, reports)
        if self.has_repository and not (ground / ".git").exists():
            await run_in_thread(FullDisk(ground).with_room, lay_repository, ground)
        before = await run_in_thread(stamps, ground)
        tools = replace(self.project, mounts=(*self.project.mounts, *mounts))
        seconds = check.timeout_seconds or self.seconds
        kept = _REPORT_BYTES if how.reads_output else _KEPT_BYTES
        async with AsyncExitStack() as opened:
            channel = None if how.plain else opened.enter_context(ReportChannel(programs, how.socket, how.pipes))
            sandbox, services = await self._sandbox(ground, tools, opened)
            argv = shell(how.line, has_bash=sandbox.program("bash") is not None)
            command = Command(argv, seconds, env=how.variables, max_output=kept, merged=True)
            command = replace(command, keeps_priority=True)
            try:
                if why := await maintained(sandbox, tools):
                    return Observed("unknown", why=why)
                done = await sandbox.run(command)
                ended = services.ended()
            except ToolError as error:
                if error.type is not ErrorType.SANDBOX_UNAVAILABLE:
                    return Observed("trouble", why=str(error))
                self.failed()
                return Observed("unknown", why=str(error))
        self.spent.append(done.seconds)
        sent = await run_in_thread(channel.report) if channel else None
        seen = await run_in_thread(_observed, done, how, (reports, ground, sent), seconds)
        seen = replace(seen, rewritten=await run_in_thread(_rewritten, ground, before, check, seen.report))
        return replace(seen, state="trouble", exit_code=None, why=ended) if ended else seen

    async def _sandbox(
        self, ground: Path, tools: ProjectTools, opened: AsyncExitStack
    ) -> tuple[Bubblewrap, RunServices]:
        """Opens the sandbox of an execution, and its services, which nothing else has."""
        changes = await run_in_thread(self._prepare, ground)
        data = await run_in_thread(self.folder, "services") if tools.services else None
        own = self.offer.bounds.run(ground, limits=self.offer.profile, further=[changes, data])
        bounds = opened.enter_context(own)
        services = await opened.enter_async_context(services_beside(tools.services, data, bounds))
        sandbox = Bubblewrap(ground, tools=services.shown(tools), bounds=bounds, changes=changes, beside=services)
        return opened.enter_context(sandbox), services

    def _prepare(self, ground: Path) -> Path | None:
        """Makes room for the layers, whatever the run has put at their paths. Returns the folder for changes to them.

        It is new, so that no check sees what the run or another check has written over what was prepared.
        """
        make_room(self.project.layers, ground)
        return self.folder("changes") if self.project.layers and self.project.overlays else None


def _rewritten(ground: Path, before: Mapping[str, Stamp], check: CommandCheck, report: Report | None) -> frozenset[str]:
    """Returns files that decide about the check and are not those that were there before the command.

    They are the check's own, those of its tests and what these compare with, which may be replaced, linked to or gone,
    and new ones that a runner finds by their names.
    """
    inside = f"{MOUNT}/"
    files = {place.file.removeprefix(inside) for place in report.places.values()} if report else set[str]()
    now = stamps(ground)
    changed = {path for path in before if now.get(path) != before[path] and "__pycache__" not in path.split("/")}
    new = {path for path in now.keys() - before.keys() if is_obeyed(path)}
    return frozenset(new | {path for path in changed if path in check.files or path in files or OF_TESTS.match(path)})


def _observed(
    done: Completed, how: Instrumented, reported: tuple[Path, Path, Report | None], seconds: float
) -> Observed:
    reports, ground, sent = reported
    report, printed = how.report(reports, done.stdout.decode("utf-8", "replace"), ground, sent)
    found = Observed("green", done.exit_code, terminal_text(printed), done.seconds, report)
    if done.exceeded:
        return replace(found, state="trouble", exit_code=None, why=f"it was killed: {done.exceeded}")
    if done.timed_out:
        return replace(found, state="trouble", exit_code=None, why=f"it did not end within {seconds:g} s")
    if report and report.of_runner and not report.tests and done.exit_code in (0, NO_TESTS):
        return replace(found, state="trouble", why=NO_TESTS_RAN)
    if done.exit_code in (NOT_FOUND, NOT_EXECUTABLE):
        return replace(found, state="trouble", why=f"it could not be started (exit code {done.exit_code})")
    if done.exit_code or (report and (not report.finished or report.of("failed"))):
        return replace(found, state="red")
    return found
