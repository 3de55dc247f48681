"""The services beside one run or execution of a check: each a program in a sandbox of its own, with data of its own.

Commands have no network in common with them. A relay in the service's sandbox gets the sockets that a command's sandbox
has opened, and connects them to the service. So nothing else on the machine reaches it, and no data passes the worker.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ...shared.errors import DeputizeError, ToolError
from ...shared.log import log
from ...shared.text import clip, terminal_text
from ...shared.workspaces import delete
from ..contracts import Command, Completed
from ..sandbox import environment
from ..sandbox.bounds import RunBounds
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.buffers import BoundedBuffer
from ..sandbox.environment import BindMount
from ..sandbox.ports import Report, Serve, python_with
from ..sandbox.process import Process
from ..sandbox.project_tools import ProjectTools
from ..sandbox.services import OnlyPorts, Service
from ..threads import run_in_thread, run_short
from ..workspace.source import open_folder
from ..workspace.tree_copy import SourceUnreadable, TreeCopy

_SHELL = ("bash", "--noprofile", "--norc", "-c")
_UNTIL_HEALTHY = 'until bash --noprofile --norc -c "$0"; do sleep 0.05; done'
_END_SECONDS = 5.0
_LOG_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 2000
_RELAY = """
import os, signal, socket, sys
channel, port = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
if not (child := os.fork()):
    channel.close()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execvp(sys.argv[3], sys.argv[3:])
import asyncio
class End(asyncio.Protocol):
    def __init__(self, other=None):
        self.other, self.ended, self.early = other, False, []
    def connection_made(self, transport):
        self.transport = transport
        if not self.other:
            self.connecting = asyncio.get_running_loop().create_task(self.connect())
    async def connect(self):
        try:
            made = asyncio.get_running_loop().create_connection(lambda: End(self), "127.0.0.1", port)
            self.other = (await made)[1]
            self.other.transport.writelines(self.early)
            self.transport.resume_reading()
            if self.ended:
                self.other.transport.write_eof()
        except OSError:
            self.transport.close()
    def data_received(self, data):
        if self.other:
            self.other.transport.write(data)
        else:
            self.early.append(data)
            self.transport.pause_reading()
    def eof_received(self):
        self.ended = True
        if self.other:
            self.other.transport.write_eof()
        return not (self.other and self.other.ended)
    def pause_writing(self):
        self.other.transport.pause_reading()
    def resume_writing(self):
        self.other.transport.resume_reading()
    def connection_lost(self, error):
        if self.other:
            self.other.transport.close()
async def serve(listener, life):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(End, sock=listener)
    await loop.sock_recv(life, 1)
    server.close()
    life.close()
async def main():
    loop, tasks = asyncio.get_running_loop(), set()
    def receive():
        data, fds, _, _ = socket.recv_fds(channel, 1, 2)
        if not data:
            loop.remove_reader(channel)
        elif len(fds) == 2:
            listener, life = (socket.socket(fileno=fd) for fd in fds)
            listener.setblocking(False)
            life.setblocking(False)
            tasks.add(task := loop.create_task(serve(listener, life)))
            task.add_done_callback(tasks.discard)
    async def report():
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                return channel.send(b".")
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
    loop.add_reader(channel, receive)
    tasks.add(loop.create_task(report()))
    ended = (await asyncio.to_thread(os.waitpid, child, 0))[1]
    channel.shutdown(socket.SHUT_RDWR)
    return os.waitstatus_to_exitcode(ended)
code = asyncio.run(main())
os._exit(code if code >= 0 else 128 - code)
"""
"""Starts the service and ends with it. Each pair of sockets that it gets is a listener and what ends its use.

It reports once that the service accepts connections, and closes its channel when the service has ended.
"""


class RunService:
    """One service. ``folder`` is the run's for it, ``bounds`` are those of the run."""

    def __init__(self, service: Service, folder: Path, bounds: RunBounds) -> None:
        self.service = service
        self._folder, self._bounds = folder, bounds
        self._data, self._sockets = folder / "data", folder / "sockets"
        self._channel: socket.socket | None = None
        self._process: Process | None = None
        self._sandboxes: list[Bubblewrap] = []
        self._log = BoundedBuffer(_LOG_BYTES)
        self._starting = asyncio.Lock()
        self._failure = ""
        """Why it could not be started again; it is not tried once more."""

    @property
    def mount(self) -> BindMount:
        """Where commands see its sockets."""
        return BindMount(f"service-{self.service.name}", self._sockets, self.service.folder)

    @property
    def served(self) -> Mapping[int, Serve]:
        """Its port, if it has one."""
        return {self.service.settings.port: self.serve} if self.service.settings.port else {}

    def open(self) -> None:
        """Makes its folders, and the sandboxes of its program and of its health command."""
        for folder in (self._data, self._sockets):
            folder.mkdir(mode=0o700, parents=True)
            folder.chmod(0o700 if folder == self._data else 0o755)  # PostgreSQL refuses what others may enter
            if ids := environment.owner():
                os.chown(folder, *ids)
        own = BindMount(self.mount.name, self._sockets, self.service.folder, writable=True)
        for mount, beside in ((own, None), (self.mount, OnlyPorts(self.served))):
            tools = ProjectTools(mounts=(*self.service.mounts, mount), path=self.service.path)
            self._sandboxes.append(Bubblewrap(self._data, tools=tools, bounds=self._bounds, beside=beside))

    def _lay_data(self) -> None:
        if self.service.template:
            with open_folder(self.service.template) as template, open_folder(self._data) as data:
                TreeCopy(template, data, owner=environment.owner()).run()

    async def start_first(self) -> str:
        """Starts it with a copy of its template, as ``start`` does."""
        try:
            await run_in_thread(self._lay_data)
        except (OSError, SourceUnreadable) as error:
            return f"the data of the service {self.service.name} could not be copied: {error}"
        return await self.start()

    async def start(self) -> str:
        """Starts it, and waits until it is healthy. Returns why that failed, or ""."""
        self._log = BoundedBuffer(_LOG_BYTES)
        try:
            await self._launch()
            return await self._until_healthy()
        except (ToolError, DeputizeError) as error:
            return f"the service {self.service.name} could not be started: {error}"

    async def restored(self) -> list[str]:
        """Starts it again if it has ended, with its data. Returns a sentence about that."""
        async with self._starting:
            if self._failure:
                return [self._failure]
            if self._process and self._channel_is_closed():  # its sandbox ends a moment later
                await asyncio.wait([self._process.ended], timeout=_END_SECONDS)
            if not self.has_ended:
                return []
            ended, last = f"the service {self.service.name} {self._ended()}", self._last_line
            self._failure = await self.start()
            if self._failure:
                return [f"{ended}, and could not be started again: {self._failure}"]
            return [f"{ended}, and was started again with the data that it had left{last}"]

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.ended.done()

    def _channel_is_closed(self) -> bool:
        if not (self._channel and self.service.settings.port):
            return False
        try:
            return not self._channel.recv(1, socket.MSG_PEEK)
        except OSError as error:
            return not isinstance(error, BlockingIOError)

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Lets the relay serve one command's socket until this is cancelled."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                if self._channel:
                    socket.send_fds(self._channel, [b"."], [listener.fileno(), theirs.fileno()])
            except OSError as error:
                ended = "it has just ended; the next command starts it again"
                why = ended if isinstance(error, ConnectionError) else error.strerror
                report(f"[the service {self.service.name} cannot be reached: {why}]\n")
            finally:
                listener.close()
                theirs.close()
            await asyncio.get_running_loop().create_future()

    async def end(self) -> None:
        """Kills it with all that it has started."""
        try:
            if self._process:
                await self._process.end()
        except ToolError as error:
            log.error("a service outlives its run: %s", error)
        finally:
            if self._channel:
                self._channel.close()
            for sandbox in self._sandboxes:
                sandbox.close()

    async def _launch(self) -> None:
        settings, relay, inherited = self.service.settings, list[str](), list[int]()
        if self._channel:
            self._channel.close()
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        with theirs:
            if settings.port:
                inherited = [theirs.fileno()]
                relay = [*python_with(_RELAY, environment.program_mounts()), str(theirs.fileno()), str(settings.port)]
            command = Command([*relay, *_SHELL, settings.command], None, merged=True, keeps_priority=True)
            start = self._sandboxes[0].start
            self._process = await start(command, self._log.add, self._log.add, inherited=inherited)

    async def _until_healthy(self) -> str:
        assert self._process
        checking = asyncio.ensure_future(self._checked())
        try:
            await asyncio.wait([checking, self._process.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            done = await _settled(checking)
        if not self._process.ended.done() and done and not done.exit_code:
            return ""
        printed = done.stdout if done else b""
        late = "was not healthy" if done else f"did not listen on 127.0.0.1:{self.service.settings.port}"
        late += f" within {self.service.settings.start_seconds:g} s (start_seconds)"
        why = self._ended() if self._process.ended.done() else late
        await self._process.end()
        shown = "\n".join(filter(None, map(self._shown, (self._log.data, printed))))
        return f"the service {self.service.name} {why}.\n{shown}".rstrip()

    async def _checked(self) -> Completed | None:
        """Runs the health command; returns None where the service did not listen in time.

        Before that the kernel would accept connections to the sockets of commands, and nothing would answer them.
        """
        assert self._channel
        loop, settings = asyncio.get_running_loop(), self.service.settings
        ends = loop.time() + settings.start_seconds
        if settings.port:
            try:
                async with asyncio.timeout_at(ends):
                    await loop.sock_recv(self._channel, 1)
            except TimeoutError:
                return None
        command = Command([*_SHELL, _UNTIL_HEALTHY, settings.health], ends - loop.time(), merged=True)
        return await self._sandboxes[1].run(command)

    def _ended(self) -> str:
        assert self._process
        return self._process.failure or f"ended with exit code {self._process.ended.result()}"

    @property
    def _last_line(self) -> str:
        """The last line of its log, after a colon, which may name the limit for which it was killed."""
        lines = self._shown(self._log.data).splitlines() or [""]
        return f": {clip(lines[-1].strip(), 300)}" if lines[-1] else ""

    @staticmethod
    def _shown(log: bytes) -> str:
        return terminal_text(log.decode("utf-8", "replace")).strip()[-_SHOWN_CHARACTERS:]


async def _settled(checking: asyncio.Future[Completed | None]) -> Completed | None:
    """Returns the result of the task, or None after ending it. Raises ToolError as it does."""
    if not checking.done():
        checking.cancel()
        await asyncio.wait([checking])
    return None if checking.cancelled() else checking.result()


class RunServices:
    """All services of one run, or of one execution of a check. ``folder`` is theirs alone, or None for none."""

    def __init__(self, services: Sequence[Service], folder: Path | None, bounds: RunBounds) -> None:
        self._all = [RunService(each, folder / each.name, bounds) for each in services if folder]
        self._folder = folder

    @property
    def served(self) -> Mapping[int, Serve]:
        return {port: serve for each in self._all for port, serve in each.served.items()}

    def shown(self, tools: ProjectTools) -> ProjectTools:
        """Returns the tools of commands with the sockets of the services."""
        return replace(tools, mounts=(*tools.mounts, *(each.mount for each in self._all)))

    async def start(self) -> str:
        return "\n".join(filter(None, await asyncio.gather(*(each.start_first() for each in self._all))))

    async def restored(self) -> list[str]:
        found = await asyncio.gather(*(each.restored() for each in self._all))
        return [sentence for each in found for sentence in each]

    def ended(self) -> str:
        """Returns which do not run any more, as a sentence; "" if all do."""
        names = ", ".join(each.service.name for each in self._all if each.has_ended)
        return f"what runs beside it has ended meanwhile: {names}" if names else ""

    def open(self) -> None:
        """Makes the folders and the sandboxes."""
        for each in self._all:
            each.open()

    async def end(self) -> None:
        """Kills all, and deletes what they have written."""
        await asyncio.gather(*(each.end() for each in self._all))
        if self._folder:
            with suppress(OSError):
                await run_in_thread(delete, self._folder)


@asynccontextmanager
async def services_beside(
    services: Sequence[Service], folder: Path | None, bounds: RunBounds
) -> AsyncGenerator[RunServices]:
    """Yields the services, which ``start`` starts; when the block ends, none of their processes is alive."""
    opened = RunServices(services, folder, bounds)
    try:
        if services:  # a thread costs more than to begin a run
            await run_short(opened.open)
        yield opened
    finally:
        await opened.end()
