"""The calls that wait for a person: the commands that list and answer them, and questions while a command watches."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import sys
import termios
import tty
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import DeputizeError, Invalid, NotFound
from ...shared.wording import MAX_TITLE, SHORT_PERMISSION_ID, cut, line_of, question_of, seconds, short_id
from . import completion, output
from .connect import NEWEST, asynchronous, connect, full_id, is_short_for, load_settings, unfinished
from .values import Parsed

if TYPE_CHECKING:
    from ...shared.events import Envelope, PermissionRequested
    from ...shared.permission import PermissionQuestion, PermissionRequest
    from ..client import Client
    from .live import Display

ID_PREFIX = "prm_"
ID_LENGTH = 39
OUTCOMES = {"always": "proceed_always", "tool": "proceed_always_tool", "server": "proceed_always_server"}
ERASE, ERASE_ALL = "\x08\x7f", "\x15"
ANSWERS = {"y": "proceed_once", "a": "proceed_always", "n": "cancel"}
UNATTENDED = "no one can answer without a terminal; with `deputize up` calls wait for an answer from elsewhere"


def _read_arguments(value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object with all arguments of the call")
    return found


ARGUMENTS = Parsed("json", _read_arguments)


@click.command()
@click.argument("id", required=False, metavar="[ID]", shell_complete=completion.permissions)
@click.option(
    "--delegation",
    metavar="ID",
    shell_complete=completion.delegations,
    help="Only those of this delegation and of its children.",
)
@click.option("--json", "as_json", is_flag=True, help="Each request as one JSON object a line.")
@asynchronous
async def permissions(id: str | None, delegation: str | None, as_json: bool) -> None:
    """List the calls that wait for a person, the oldest first; with an ID one of them with all its details.

    An ID may be shortened to its beginning or its end; @last is the newest one.
    """
    async with connect(load_settings()) as service:
        of = await full_id(service.client, delegation) if delegation else None
        found = await service.client.permissions(of)
        if id is not None:
            named = full_permission_id(found, id)
            found = [each for each in found if each.permission_id == named]
        titles = {each.delegation_id: each.delegation_id for each in found}
        if found:
            titles |= {each.id: each.request.title async for each in unfinished(service.client)}
    if as_json:
        output.json_lines(found)
    elif id:
        output.lines(question_lines(found[0], titles[found[0].delegation_id]))
    elif found:
        output.lines(_table(found, titles))
    else:
        output.note("no call waits for permission")


def _table(found: list[PermissionRequest], titles: dict[str, str]) -> list[str]:
    """Returns the rows of a table; the call is last, as it is not cut: people decide by it."""
    from ...shared.wire import now

    rows = [("id", "expires", "delegation", "call")]
    for short, request in zip(short_ids([each.permission_id for each in found]), found, strict=True):
        left = max(0.0, (request.expires_at - now()).total_seconds())
        call = in_task(request, titles[request.delegation_id])
        rows.append((short, seconds(left), short_id(request.delegation_id), call))
    return output.columns(rows, left=(0, 2, 3))


@click.command()
@click.argument("id", shell_complete=completion.permissions)
@click.option("--always", "remember", flag_value="always", help="Also similar calls of this run and of its children.")
@click.option("--tool", "remember", flag_value="tool", help="Also every other call of this tool, there.")
@click.option("--server", "remember", flag_value="server", help="Also every other call of this MCP server, there.")
@click.option("--arguments", type=ARGUMENTS, metavar="JSON", help="With these arguments in place of the model's.")
def approve(id: str, remember: str | None, arguments: dict[str, Any] | None) -> None:
    """Approve a call that waits. What `deputize permissions ID` lists as always is what the options would approve, too.

    An ID may be shortened to its beginning or its end; @last is the newest one. That of a delegation stands for its
    only call that waits.
    """
    if remember and arguments is not None:
        raise click.UsageError(f"--{remember} has no meaning with --arguments, which are for this call alone")
    outcome = OUTCOMES[remember] if remember else "proceed_once" if arguments is None else "modify"
    _answer(id, outcome, arguments=arguments)


@click.command()
@click.argument("id", shell_complete=completion.permissions)
@click.option("--reason", metavar="TEXT", help="For the model, which goes on without the call.")
def deny(id: str, reason: str | None) -> None:
    """Refuse a call that waits; its run goes on.

    An ID may be shortened to its beginning or its end; @last is the newest one. That of a delegation stands for its
    only call that waits.
    """
    _answer(id, "cancel", reason=reason)


@asynchronous
async def _answer(given: str, outcome: str, **fields: Any) -> None:
    from ...shared.permission import PermissionOutcome

    async with connect(load_settings()) as service:
        id = given  # also that of one that waits no more: the service knows who answered it
        if not (given.startswith(ID_PREFIX) and len(given) == ID_LENGTH):
            id = full_permission_id(await service.client.permissions(), given)
        await service.client.answer_permission(id, PermissionOutcome(outcome), **fields)
    output.line(f"{id}  {outcome}")


def full_permission_id(waiting: Sequence[PermissionRequest], given: str) -> str:
    """Returns the only id that begins or ends with ``given``; for ``@last`` the newest.

    Where it is the id of a delegation: the only request of that and of its children. Raises NotFound, Invalid.
    """
    if given == NEWEST and waiting:
        return waiting[-1].permission_id
    named = bool(given.removeprefix(ID_PREFIX).removeprefix("dlg_"))
    found = [each for each in waiting if named and is_short_for(given, each.permission_id)]
    found = found or [each for each in waiting if named and any(is_short_for(given, id) for id in each.path)]
    if not found:
        what = "no call waits for permission" if given == NEWEST else f"no call that waits has an id like {given[:100]}"
        raise NotFound(f"{what}; `deputize permissions` lists them")
    if len(found) > 1:
        some = [f"{each.permission_id} ({cut(each.step.title, MAX_TITLE)})" for each in found[:5]]
        raise Invalid(f"{given} stands for {len(found)} requests; give the id of one: {', '.join(some)}")
    return found[0].permission_id


def short_ids(ids: Sequence[str]) -> list[str]:
    """Returns the ends of the ids of requests by which none is mistaken for another one."""
    length = SHORT_PERMISSION_ID
    while len({id[-length:] for id in ids}) < len({*ids}):
        length += 1
    return [id[-length:] for id in ids]


def in_task(asked: PermissionQuestion, title: str) -> str:
    """Returns `write CHANGELOG.md in "Write the changelog"`: the call, and the task of the delegation that asks."""
    return f'{asked.step.title} in "{title}"'


def question_lines(asked: PermissionQuestion, title: str) -> list[str]:
    """Returns the lines of a request; ``title``: of the delegation that asks."""
    return [f"{in_task(asked, title)}  (permission {asked.permission_id[-SHORT_PERMISSION_ID:]})", *question_of(asked)]


class Questions:
    """Shows the requests of the delegations that a command watches, one at a time, and sends the typed answers.

    Needs a terminal at stdin; while a question is open, it shows what is typed itself, below the live rows. Where
    it is not ``attended``, there is no one to ask and every request is denied at once.
    """

    def __init__(self, client: Client, display: Display, *, attended: bool = True) -> None:
        self._client = client
        self._display = display
        self._attended = attended or display.prompts or sys.stderr.isatty()
        self._loop = asyncio.get_running_loop()
        self._seen: set[str] = set()
        self._open: list[PermissionRequest] = []
        self._titles: dict[str, str] = {}
        """The titles of the delegations that ask."""
        self._typed = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal: list[Any] | None = None
        """The terminal's modes before the first open question."""
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, envelope: Envelope) -> None:
        """Takes an event of a watched delegation."""
        event = envelope.event
        if not self._display.prompts and self._attended:
            return
        if event.type == "permission_requested" and event.permission_id not in self._seen:
            self._seen.add(event.permission_id)
            add = self._add if self._attended else self._deny
            self._start(add(envelope.delegation_id, event))
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

    async def _add(self, delegation: str, event: PermissionRequested) -> None:
        """Opens a question, unless it has been answered: events of the past are watched, too."""
        try:
            asker = event.path[-1]
            self._titles[asker] = (await self._client.get(asker)).request.title
            requests = await self._waiting(delegation, event)
        except DeputizeError:
            self._display.note(line_of(event) or "")  # which shows how to answer it
            return
        self._open += requests
        self._draw()

    async def _deny(self, delegation: str, event: PermissionRequested) -> None:
        from ...shared.permission import PermissionOutcome

        with suppress(DeputizeError):  # it was answered elsewhere
            for each in await self._waiting(delegation, event):
                await self._client.answer_permission(each.permission_id, PermissionOutcome.CANCEL, reason=UNATTENDED)

    async def _waiting(self, delegation: str, event: PermissionRequested) -> list[PermissionRequest]:
        found = await self._client.permissions(delegation)
        return [each for each in found if each.permission_id == event.permission_id]

    def _close(self, ids: list[str]) -> None:
        first = self._open[0] if self._open else None
        self._open = [each for each in self._open if each.permission_id not in ids]
        if first and first not in self._open:
            self._typed = ""
            self._draw()

    def _draw(self) -> None:
        """Shows the first open question and listens to the keys, or stops that if there is none."""
        if not self._open:
            self._stop_listening()
            self._display.prompt()
            return
        self._listen()
        more = f"({len(self._open) - 1} more) " if len(self._open) > 1 else ""
        always = "a always, " if "proceed_always" in self._open[0].remembers else ""
        answer = f"{more}y yes, {always}n no, ? all of it, or a reason: {self._typed}"
        title = self._titles[self._open[0].delegation_id]
        self._display.prompt(*question_lines(self._open[0], title), f"{in_task(self._open[0], title)}?", answer)

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
            self._display.prompts = False
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
        """Sends the answer; anything but the letters is the reason of a denial, and ? prints the whole question."""
        if not self._open or not typed:
            return
        if typed == "?":
            for line in question_lines(self._open[0], self._titles[self._open[0].delegation_id]):
                self._display.note(line)
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
        from ...shared.permission import PermissionOutcome

        try:
            await self._client.answer_permission(request.permission_id, PermissionOutcome(outcome), reason=reason)
        except DeputizeError as error:
            self._display.note(f"the answer was not taken: {error}")
