"""Questions on a terminal: permission requests that arrive while a command watches, answered where they appear."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
import tty
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from deputize.orchestrator.cli.question_lines import question_lines, short_id
from deputize.shared.errors import DeputizeError

if TYPE_CHECKING:
    from deputize.orchestrator.cli.live import Display
    from deputize.orchestrator.client import Client
    from deputize.shared.events import Envelope
    from deputize.shared.permission import PermissionRequest

ERASE, ERASE_ALL = "\x08\x7f", "\x15"
ANSWERS = {"y": "proceed_once", "a": "proceed_always", "n": "cancel"}


class Questions:
    """Shows the requests of the delegations that a command watches, one at a time, and sends the typed answers.

    Needs a terminal at stdin; while a question is open, it shows what is typed itself, below the live rows.
    """

    def __init__(self, client: Client, display: Display) -> None:
        self._client = client
        self._display = display
        self._loop = asyncio.get_running_loop()
        self._asks = display.prompts and sys.stdin.isatty()
        self._seen: set[str] = set()
        self._open: list[PermissionRequest] = []
        self._typed = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal: list[Any] | None = None
        """The terminal's modes before the first open question."""
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, envelope: Envelope) -> None:
        """Takes an event of a watched delegation."""
        event = envelope.event
        if not self._asks:
            return
        if event.type == "permission_requested" and event.permission_id not in self._seen:
            self._seen.add(event.permission_id)
            self._start(self._add(envelope.delegation_id, event.permission_id))
        elif event.type == "permission_answered":
            self._close([event.permission_id])
        elif event.type == "run_finished":
            self._close([each.permission_id for each in self._open if envelope.delegation_id in each.path])

    async def end(self) -> None:
        """Forgets what is open, and restores the terminal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close([each.permission_id for each in self._open])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="permission request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _add(self, delegation: str, id: str) -> None:
        """Opens a question, unless it has been answered: events of the past are watched, too."""
        try:
            waiting = await self._client.permissions(delegation)
        except DeputizeError:
            return  # the line of the event shows how to answer it
        for request in waiting:
            if request.permission_id == id:
                self._open.append(request)
                if len(self._open) == 1:
                    self._show()
                else:
                    self._draw()

    def _close(self, ids: list[str]) -> None:
        first = self._open[0] if self._open else None
        self._open = [each for each in self._open if each.permission_id not in ids]
        if first and first not in self._open:
            self._typed = ""
            self._show()

    def _show(self) -> None:
        """Shows the first open question and listens to the keys, or stops that if there is none."""
        if self._open:
            for line in question_lines(self._open[0]):
                self._display.note(line)
            self._listen()
        else:
            self._stop_listening()
        self._draw()

    def _draw(self) -> None:
        if not self._open:
            self._display.prompt("")
            return
        more = f" ({len(self._open) - 1} more)" if len(self._open) > 1 else ""
        always = "a always, " if "proceed_always" in self._open[0].remembers else ""
        question = f"approve {short_id(self._open[0].permission_id)}?{more} y yes, {always}n no, or a reason: "
        self._display.prompt(f"{question}{self._typed}")

    def _listen(self) -> None:
        if self._terminal is None:
            descriptor = sys.stdin.fileno()
            self._terminal = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor, termios.TCSANOW)
            self._loop.add_reader(descriptor, self._read)

    def _stop_listening(self) -> None:
        if self._terminal is not None:
            self._loop.remove_reader(sys.stdin.fileno())
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._terminal)
            self._terminal = None

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 4096)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._asks = False
            self._close([each.permission_id for each in self._open])
        for key in self._decoder.decode(data):
            self._press(key)

    def _press(self, key: str) -> None:
        if key in "\r\n":
            self._answer(self._typed.strip())
            self._typed = ""
        elif key in ERASE:
            self._typed = self._typed[:-1]
        elif key == ERASE_ALL:
            self._typed = ""
        elif key.isprintable():
            self._typed += key
        self._draw()

    def _answer(self, typed: str) -> None:
        """Sends the answer; anything but the letters is the reason of a denial."""
        if not self._open or not typed:
            return
        request = self._open[0]
        outcome = ANSWERS.get(typed.lower(), "cancel")
        if outcome == "proceed_always" and outcome not in request.remembers:
            self._display.note("this call cannot be approved always; y approves it once")
            return
        reason = typed if typed.lower() not in ANSWERS else None
        self._close([request.permission_id])
        self._start(self._send(request, outcome, reason))

    async def _send(self, request: PermissionRequest, outcome: str, reason: str | None) -> None:
        try:
            await self._client.answer_permission(request.permission_id, outcome, reason=reason)
        except DeputizeError as error:
            self._display.note(f"the answer was not taken: {error}")
