"""`deputize watch`, and what every command follows delegations with: until their end, a timeout or an interrupt."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import Conflict, Unavailable
from ...shared.text import count
from . import completion, output
from .connect import Service, asynchronous, connect, full_id, load_settings, unfinished
from .errors import Exit, exit_code_of_results
from .live import Display, JsonLines, Lines
from .permissions import Questions
from .selection import by_label_and_session, check_one_way, chosen_ids, filters
from .selection import shown as shown_options
from .values import Finite, denied_option, stream_option

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.events import Envelope
    from ..client import Client

MAX_STREAMS = 100
"""Maximum concurrent streams; the ends of other delegations are found later."""
SECOND_PRESS_SECONDS = 2.0
CANCELLED_SECONDS = 30.0
NAMED = 3
SHOWN_CHANGES = 20
AT_A_GLANCE = 8
"""Changes that a terminal shows: more of them would push the mark and the reason off the screen."""


@dataclass(slots=True)
class Watcher:
    """Watches one command's delegations."""

    service: Service
    display: Display
    wait: float | None = None
    """Seconds until the watch ends; the delegations continue."""
    may_act: bool = True
    """Whether it may change what it watches: cancel it, and go on with what is paused."""
    on_result: Callable[[ToolAgentResult], None] = lambda result: None
    prints_results: bool = False
    """Whether the command prints the results itself, so that failure reasons are not repeated as events."""
    results: dict[str, ToolAgentResult] = field(default_factory=dict[str, "ToolAgentResult"])
    """The result of each finished delegation."""
    group: str = ""
    """The options of commands that name all of them, where there are many: `--label batch:b01`."""
    cut: Exit | None = None
    """Why watching ended before all were finished."""
    _noted_script: bool = False
    _is_lost: bool = False
    """Whether the connection to the service is lost."""

    @property
    def code(self) -> Exit:
        return exit_code_of_results(self.results.values()) if self.cut is None else self.cut

    async def all(self, delegations: Sequence[Delegation]) -> None:
        for delegation in delegations:
            self.display.add(delegation)
        ids = [delegation.id for delegation in delegations]
        questions = Questions(self.service.client, self.display, attended=self.service.attended or not self.may_act)
        await self._until_end(self._follow_all(ids, questions), questions, ids)

    async def everything(self) -> None:
        """Watches unfinished delegations and all that begin, which has no end of its own."""
        questions = Questions(self.service.client, self.display)
        await self._until_end(self._follow_everything(questions), questions, [])

    async def _until_end(self, work: Coroutine[Any, Any, None], questions: Questions, ids: Sequence[str]) -> None:
        self.service.client.on_connection = self._connection
        async with interrupts() as presses:
            following = asyncio.create_task(work)
            pressed = asyncio.create_task(presses.get())
            try:
                await asyncio.wait({following, pressed}, timeout=self.wait, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
                elif pressed.done():
                    await self._interrupted(pressed.result(), self._open(ids), presses, following)
                else:
                    self.cut = Exit.WAITED
                    if open := self._open(ids):
                        self.display.note(f"the wait ran out; {self._what_now(open)}")
            finally:
                following.cancel()
                pressed.cancel()
                await asyncio.gather(following, pressed, return_exceptions=True)
                await questions.end()

    def _connection(self, lost: Unavailable | None) -> None:
        if self._is_lost != (lost is not None):
            self._is_lost = not self._is_lost
            self.display.connection(lost)

    async def _follow_everything(self, questions: Questions) -> None:
        client = self.service.client
        known: set[str] = set()
        # The stream is opened before the list is read: a delegation that starts in between is seen twice, not missed.
        async with aclosing(client.follow_all()) as events:
            listening = asyncio.ensure_future(anext(events))
            try:
                async for delegation in unfinished(client):
                    known.add(delegation.id)
                    self.display.add(delegation)
                while True:
                    envelope = await listening
                    if envelope.delegation_id not in known:
                        known.add(envelope.delegation_id)
                        self.display.add(await client.get(envelope.delegation_id))
                    self.display.event(envelope)
                    questions.hear(envelope)
                    listening = asyncio.ensure_future(anext(events))
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    def _open(self, ids: Sequence[str]) -> list[str]:
        return [id for id in ids if id not in self.results]

    async def _follow_all(self, ids: Sequence[str], questions: Questions) -> None:
        gate = asyncio.Semaphore(MAX_STREAMS)
        tasks = [asyncio.create_task(self._follow(id, gate, questions)) for id in ids]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _follow(self, id: str, gate: asyncio.Semaphore, questions: Questions) -> None:
        from ..operations import follow_unless_paused, refuse_paused

        client = self.service.client
        # Its own stack pauses what an earlier one left, also after the command asked to go on with it.
        on_pause = client.resume if self.may_act else refuse_paused
        try:
            async with gate, aclosing(follow_unless_paused(client, id, on_pause)) as events:
                async for envelope in events:
                    self._hear(envelope, questions)
        except Conflict as paused:
            self.display.note(str(paused))
            self.cut = Exit.UNREACHABLE
            return
        result = (await client.get(id)).result  # an event is truncated at its cap, the record is not
        assert result is not None
        self.results[id] = result
        self.on_result(result)

    def _hear(self, envelope: Envelope, questions: Questions) -> None:
        from ...shared.delegation import TerminationReason

        event = envelope.event
        is_reason = event.type == "error" and event.kind in [*TerminationReason]  # which the result has as well
        if not (self.prints_results and is_reason):
            self.display.event(envelope)
        questions.hear(envelope)
        if event.type == "run_started" and event.model.startswith("scripted") and not self._noted_script:
            self._noted_script = True
            self.display.note(f"note: a script answers here ({event.model}), not a language model")

    async def _interrupted(
        self,
        number: signal.Signals,
        open: list[str],
        presses: asyncio.Queue[signal.Signals],
        following: asyncio.Task[None],
    ) -> None:
        self.cut = Exit.INTERRUPTED
        if not self.may_act:
            return
        self.display.note(f"detached; {self._what_now(open)}")
        if number == signal.SIGTERM:  # a second press is not possible
            return
        self.display.note(
            f"Ctrl-C again within {SECOND_PRESS_SECONDS:.0f} s cancels {'it' if len(open) == 1 else 'them'}."
        )
        try:
            number = await asyncio.wait_for(presses.get(), SECOND_PRESS_SECONDS)
        except TimeoutError:
            return
        if number == signal.SIGTERM:
            return
        await self.service.client.cancel_all(open)
        await asyncio.wait({following}, timeout=CANCELLED_SECONDS)
        self.display.note(f"cancelled: {', '.join(open) if len(open) <= NAMED else count(len(open), 'delegation')}")

    def _what_now(self, open: Sequence[str]) -> str:
        one, few = len(open) == 1, len(open) <= NAMED
        names = ", ".join(open) if few else count(len(open), "delegation")
        ids = " ".join(open) if few else self.group
        cancel = f"`deputize cancel {ids or 'ID…'}`"
        if self.service.stays:
            watch = f"`deputize watch{f' {ids}' if ids else ''}`"
            return f"{names} {'goes' if one else 'go'} on. Come back with {watch}, or stop with {cancel}."
        return (
            f"{names} {'is' if one else 'are'} paused in some seconds, unless another command comes. "
            f"The stack of this command ends with it: `deputize resume {ids or '--all'}` goes on, "
            f"`deputize {f'show {ids}' if one else 'list'}` shows how far {'it' if one else 'they'} came, "
            f"{cancel} ends {'it' if one else 'them'}."
        )


def display(*, show_outcomes: bool = True, stream: bool = False) -> Display:
    """Returns the table if stderr is a terminal that can move its cursor, else lines.

    Without ``show_outcomes`` the command itself prints how each delegation ended. ``stream`` shows the model's words
    and the output of commands, too.
    """
    if sys.stderr.isatty():
        from .live_table import Console, Table

        if not Console(stderr=True).is_dumb_terminal:
            return Table(show_outcomes=show_outcomes, stream=stream)
    return Lines(stream=stream)


@asynccontextmanager
async def interrupts() -> AsyncGenerator[asyncio.Queue[signal.Signals]]:
    """Yields a queue with one entry per Ctrl-C or SIGTERM, which have no other effect in the block."""
    presses: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, presses.put_nowait, number)
    try:
        yield presses
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def note_if_queued(client: Client, note: Callable[[str], None]) -> None:
    if (why := await client.not_ready()) is not None:
        note(f"queued for now: {why}")


def note_lowered_limits(delegation: Delegation, note: Callable[[str], None]) -> None:
    """Notes each limit that the server lowered to its cap."""
    from ..request_fields import lowered_limits

    for sentence in lowered_limits(delegation.request.limits, delegation.effective_limits):
        note(sentence)


def print_result(delegation: Delegation, result: ToolAgentResult, *, json: bool) -> None:
    """Prints the result to stdout, where data was asked for only that; file changes and errors to stderr.

    On a terminal the reasons come first, below the mark, and what `show` has besides is left out.
    """
    if json:
        output.json_line(result.to_json())
        return
    glance = output.is_read_by_a_person()
    if glance:
        output.lines((f"  {reason}" for reason in output.reasons(result)), err=True)
    output.prose(result.summary, err=result.output_status is not None)
    output.data(result)
    if not glance:
        output.lines((f"  {line}" for line in output.verdict(result.verification)), err=True)
        output.lines((f"  {line}" for line in output.doubts(result)), err=True)
    shown = AT_A_GLANCE if glance else SHOWN_CHANGES
    output.lines((f"  {output.change(changed)}" for changed in result.file_changes[:shown]), err=True)
    if (more := len(result.file_changes) - shown) > 0:
        output.note(f"  and {more} more" + ("" if glance else f": deputize show {result.delegation_id}"))
    if not result.file_changes and (unchanged := output.changes(result, delegation.request)):
        output.note(f"  {unchanged}")
    if glance:
        return
    output.lines((f"  left out: {sentence}" for sentence in output.left_out(result)), err=True)
    output.lines((f"  error: {error}" for error in output.other_errors(result)), err=True)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=completion.delegations)
@by_label_and_session
@click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds, at most.")
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="Each event as one JSON object a line.")
@asynchronous
async def watch(
    ids: tuple[str, ...],
    labels: tuple[str, ...],
    session: str | None,
    wait: float | None,
    stream: bool,
    as_json: bool,
) -> Exit:
    """Follow delegations until they are finished; without an ID everything that happens, until Ctrl-C.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent. --label and --session
    choose among those that are not finished.
    """
    if stream and as_json:
        raise click.UsageError("--stream has no meaning with --json, which shows every event")
    chosen = filters(labels, session)
    if ids or chosen:
        check_one_way(ids, chosen)
    async with connect(load_settings()) as service:
        client = service.client
        if chosen:
            ids = tuple(await chosen_ids(client, (), chosen))
            if not ids:
                output.note(f"nothing is unfinished with {shown_options(chosen)}")
                return Exit.SUCCEEDED
        delegations = [await client.get(await full_id(client, id)) for id in ids]
        if not service.has_workers:
            await _refuse_standstill(client, delegations if ids else None)
        with JsonLines() if as_json else display(stream=stream) as shown:
            watcher = Watcher(service, shown, wait, may_act=False, prints_results=bool(ids) and not as_json)
            if not ids:
                shown.note("following everything, until Ctrl-C")
            await (watcher.all(delegations) if ids else watcher.everything())
    for delegation in () if as_json else delegations:
        if (result := watcher.results.get(delegation.id)) is not None:
            print_result(delegation, result, json=False)
    return watcher.code


async def _refuse_standstill(client: Client, known: Sequence[Delegation] | None) -> None:
    """Raises Unavailable unless all that is watched has ended; None is all that there is, and what comes."""
    found = [each async for each in unfinished(client)] if known is None else known
    paused = [each.id for each in found if not each.status.finished]
    if paused or known is None:
        paused_ids = f"paused: {output.some(paused)}, which `deputize resume` goes on with"
        what = paused_ids if paused else "start one with `deputize up`"
        raise Unavailable(f"no service runs on this machine, so nothing goes on; {what}")
