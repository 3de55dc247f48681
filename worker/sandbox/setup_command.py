"""The set-up command of a project: run once in the sandbox, and its result shown to the runs with the same inputs.

The command sees the workspace read-only and fills ``/opt/setup``, for example with a virtual environment. That
directory is kept by a digest of the command, the files that it or ``setup_inputs`` names and the project's own path, so
that no project can provide for another one. It is read-only from then on. The command reaches the hosts of
``sandbox.setup_hosts``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...shared.errors import Invalid
from ...shared.libc import beneath, closing_fd
from ...shared.log import log
from ...shared.settings import Settings
from ..contracts import Command, Completed
from ..threads import run_in_thread
from .bounds import WorkerBounds
from .bubblewrap import Bubblewrap
from .egress import Egress
from .environment import MOUNT, BindMount, owner
from .full_disk import FullDisk
from .ports import Report
from .project_tools import ProjectTools

SETUP = "/opt/setup"
"""Where commands find what the set-up command has made."""
_SCRATCH = "/opt/scratch"
"""Home and temporary directory of the set-up command: on disk, because what it downloads may not fit into memory."""
_MAX_INPUT = 64 << 20
_SEPARATORS = re.compile(r"[\s;&|<>()`'\"=]+")
"""What separates the words of a command line, each of which may name a file of the workspace that the command runs."""
_SHOWN_CHARACTERS = 2000
"""Characters of a failed command's output that are shown."""


class SetupCache:
    """The results of one worker's set-up command, by digest.

    ``reach`` returns what decides which hosts the command reaches, and reports each refusal and each use of a
    credential to its arguments; None for no network. ``bounds`` are those of the worker.
    """

    def __init__(
        self,
        settings: Settings,
        reach: Callable[[Report, Report], Egress | None] = lambda on_refused, on_used: None,
        bounds: WorkerBounds | None = None,
    ) -> None:
        self._settings, self._line = settings.sandbox, settings.sandbox.setup or ""
        self._bounds = bounds or WorkerBounds(settings.sandbox)
        self._hosts = [*settings.sandbox.setup_hosts, *settings.sandbox.allowed_hosts]
        self._reach = reach
        self._folder = settings.setups
        self._kept_seconds = settings.workspace_retention_seconds
        self._building: dict[str, asyncio.Lock] = {}

    async def add_to(
        self,
        tools: ProjectTools,
        workspace: Path,
        origin: Path | None,
        *,
        build: bool,
        report: Report = lambda sentence: None,
        of_root: ProjectTools | None = None,
    ) -> ProjectTools:
        """Returns ``tools`` with the result for this workspace, which comes from ``origin``.

        ``build`` runs the command if there is no result yet: the workspace must be as it was copied, since what an
        agent has changed must not reach other runs. ``report`` receives what the user should know meanwhile.
        ``of_root`` is what the command found, if that are other tools. Raises Invalid with the end of its output if the
        command fails; the next run tries again.
        """
        if not self._line or origin is None:
            return tools
        key = await run_in_thread(self._digest, workspace, origin, of_root or tools)
        kept = self._folder / key
        building = self._building.setdefault(key, asyncio.Lock())
        if building.locked():
            report("waiting for the set-up command, which another run has started")
        async with building:
            if build and not await run_in_thread(kept.is_dir):
                await self._build(kept, workspace, tools, report)
        return await run_in_thread(_with_setup, tools, kept)

    async def is_kept(self, tools: ProjectTools, directory: Path) -> bool:
        """Returns whether there is a result for copies of this directory already."""
        key = await run_in_thread(self._digest, directory, directory, tools)
        return await run_in_thread((self._folder / key).is_dir)

    def _digest(self, workspace: Path, origin: Path, tools: ProjectTools) -> str:
        digest = hashlib.sha256(b"\0".join(map(os.fsencode, (self._line, origin, *tools.path, *self._hosts))))
        with closing_fd(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
            named = (word.removeprefix(f"{MOUNT}/") for word in _SEPARATORS.split(self._line) if word)
            for name in (*self._settings.setup_inputs, *named):
                digest.update(b"\0" + name.encode() + b"\0" + _digest_of_file(folder, name))
        return digest.hexdigest()[:32]

    async def _build(self, kept: Path, workspace: Path, tools: ProjectTools, report: Report) -> None:
        new, scratch = await run_in_thread(FullDisk(self._folder).with_room, self._new_folders, kept.name)
        try:
            made = BindMount("setup", new, SETUP, writable=True), BindMount("scratch", scratch, _SCRATCH, writable=True)
            shown = replace(tools, mounts=(*tools.mounts, *made))
            done, refused = await self._run(workspace, shown, report)
            if done.found_full_disk:  # as another run had filled it
                done, refused = await self._run(workspace, shown, report)
            if done.exit_code:
                ended = "took too long" if done.timed_out else f"ended with exit code {done.exit_code}"
                ended = f"was killed ({done.exceeded})" if done.exceeded else ended
                printed = done.stdout.decode("utf-8", "replace").strip()[-_SHOWN_CHARACTERS:]
                detail = f"the set-up command {ended}: {self._line}\n{printed}\n{self._network_hint(refused)}".rstrip()
                raise Invalid.at("/workspace", detail)
            with suppress(OSError):  # another process of this machine was faster
                await run_in_thread(new.rename, kept)
        finally:
            await run_in_thread(_remove, new, scratch)

    async def _run(self, workspace: Path, tools: ProjectTools, report: Report) -> tuple[Completed, list[str]]:
        """Returns how the command ended, and what it was refused."""
        refused: list[str] = []

        def on_refused(sentence: str) -> None:
            refused.append(sentence)
            report(f"refused to the set-up command: {sentence}")

        log.info("the set-up command runs: %s", self._line)
        report(f"setting up: {self._line}")
        reach = self._reach(on_refused, report)
        made = [mount.source for mount in tools.mounts if mount.writable]
        with (
            self._bounds.set_up(made, self._settings) as bounds,
            Bubblewrap(workspace, tools=tools, bounds=bounds, read_only=True, reach=reach) as sandbox,
        ):
            argv = ["bash", "--noprofile", "--norc", "-c", self._line]
            own = {"HOME": _SCRATCH, "TMPDIR": _SCRATCH}
            done = await sandbox.run(Command(argv, self._settings.setup_seconds, env=own, merged=True))
        report(f"the set-up command took {done.seconds:.1f} s")
        return done, refused

    def _network_hint(self, refused: list[str]) -> str:
        if not self._hosts:
            return "It has no network; the hosts that it may reach are named in sandbox.setup_hosts."
        return f"It was refused: {'; '.join(refused)}" if refused else ""

    def _new_folders(self, key: str) -> tuple[Path, Path]:
        """Returns the directory for the result, and one for what is needed only meanwhile."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old()
        name = f"{key}.{secrets.token_hex(4)}"
        folders = self._folder / name, self._folder / f"{name}.scratch"
        for folder in folders:
            folder.mkdir(mode=0o755)
            if ids := owner():
                os.chown(folder, *ids)
        return folders

    def _remove_old(self) -> None:
        """Removes what no run has used for so long that none can be using it."""
        oldest = time.time() - max(self._kept_seconds, self._settings.setup_seconds, 24 * 3600)
        for path in self._folder.iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    _remove(path)


def _digest_of_file(folder: int, name: str) -> bytes:
    """Returns the digest of a file's content; nothing where the folder lacks it."""
    with suppress(OSError), open(beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a descriptor
        return hashlib.sha256(file.read(_MAX_INPUT)).digest()
    return b""


def _with_setup(tools: ProjectTools, folder: Path) -> ProjectTools:
    if not folder.is_dir():
        log.warning("this run does without the set-up command's result: its files are not as they were copied")
        return tools
    with suppress(OSError):
        os.utime(folder)  # what is in use is not removed
    is_venv = (folder / "pyvenv.cfg").is_file()
    return replace(
        tools,
        mounts=(*tools.mounts, BindMount("setup", folder, SETUP)),
        path=(f"{SETUP}/bin", *tools.path),
        variables={**tools.variables, **({"VIRTUAL_ENV": SETUP} if is_venv else {})},
    )


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
