"""`deputize batch`: many requests from a file, their results as they come, and a way to go on after a break."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from orchestrator.cli import output, words
from orchestrator.cli.attend import Attention, note_if_it_waits
from orchestrator.cli.exits import Exit, of_results
from orchestrator.cli.live import display
from orchestrator.cli.reach import load_settings, reach

if TYPE_CHECKING:
    from orchestrator.client import Client
    from shared.delegation import Delegation, DelegationRequest, ToolAgentResult
    from shared.settings import Settings

AT_ONCE = 1000
"""Requests the service takes in one piece."""


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    request: DelegationRequest


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8"), metavar="FILE.jsonl")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write results here, one a line.")
@click.option("--resume", is_flag=True, help="Go on where an earlier batch into the same --out broke off.")
@click.option("--wait", type=click.FloatRange(0), metavar="S", help="Watch for so many seconds; the work goes on.")
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line.")
@click.pass_context
def batch(ctx: click.Context, file: TextIO, out: Path | None, resume: bool, wait: float | None, as_json: bool) -> Exit:
    """Hand over many tasks: one request a line, as JSON ("-" reads stdin).

    Results come as the delegations finish; with --out each also goes to a file, with the number of its line.
    """
    if resume and out is None:
        raise click.UsageError("--resume needs --out: there it finds what is done")
    lines = list(_lines(file))
    if not lines:
        raise click.UsageError(f"{file.name} holds no request")
    done: dict[int, ToolAgentResult] = {}
    if out is not None:
        if resume:
            done = _done(out)
        elif out.exists() and out.stat().st_size:
            raise click.UsageError(f"{out} has results already; go on with --resume, or name another file")
        lines = _keyed(lines, out)
    left = [line for line in lines if line.number not in done]
    if done:
        output.line(f"{len(done)} done before, {words.count(len(left), 'request')} left", err=True)
    code, results = asyncio.run(_run(load_settings(ctx), left, out, wait, as_json))
    if out is not None and len(done) + len(results) == len(lines):
        _state(out).unlink(missing_ok=True)
    return of_results([*done.values(), *results]) if code is None else code


def _lines(file: TextIO) -> Iterator[Line]:
    from pydantic import ValidationError

    from shared.delegation import DelegationRequest
    from shared.errors import Invalid
    from shared.wire import explain

    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            yield Line(number, DelegationRequest.model_validate_json(text))
        except ValidationError as error:
            mistakes = explain(error, DelegationRequest)
            first = ": ".join(part for part in (mistakes[0]["pointer"], mistakes[0]["detail"]) if part)
            raise Invalid(f"{file.name}, line {number}: {first}") from None


def _state(out: Path) -> Path:
    return out.with_name(out.name + ".batch")


def _keyed(lines: list[Line], out: Path) -> list[Line]:
    """The requests with idempotency keys of this batch.

    A later `--resume` sends the same keys, so that what was accepted before the break is found again, not repeated.
    """
    state = _state(out)
    try:
        name = state.read_text("utf-8").strip()
    except FileNotFoundError:
        name = f"batch-{secrets.token_hex(8)}"
        state.write_text(name + "\n", "utf-8")
    return [
        line
        if line.request.idempotency_key
        else Line(line.number, line.request.model_copy(update={"idempotency_key": f"{name}-{line.number}"}))
        for line in lines
    ]


def _done(out: Path) -> dict[int, ToolAgentResult]:
    from shared.delegation import ToolAgentResult

    done: dict[int, ToolAgentResult] = {}
    if out.exists():
        for text in out.read_text("utf-8").splitlines():
            try:
                row: dict[str, Any] = json.loads(text)
                done[int(row["line"])] = ToolAgentResult.model_validate(row)
            except (ValueError, KeyError):
                continue  # the line that was being written when it broke off
    return done


async def _run(
    settings: Settings, lines: list[Line], out: Path | None, wait: float | None, as_json: bool
) -> tuple[Exit | None, list[ToolAgentResult]]:
    if not lines:
        return None, []
    async with reach(settings, start=True) as service:
        delegations = await accepted(service.client, [line.request for line in lines])
        numbers = {delegation.id: line.number for delegation, line in zip(delegations, lines, strict=True)}
        with (
            display(tell_ends=as_json or not sys.stdout.isatty()) as shown,
            out.open("a", encoding="utf-8") if out else nullcontext() as written,
        ):

            def on_result(result: ToolAgentResult) -> None:
                number = numbers[result.delegation_id]
                if written:
                    written.write(json.dumps({"line": number, **result.to_dict()}, ensure_ascii=False) + "\n")
                    written.flush()
                with shown.aside():
                    _print(result, number, as_json)

            shown.note(f"{words.count(len(lines), 'delegation')} accepted")
            if not service.own:
                await note_if_it_waits(service.client, shown.note)
            attended = await Attention(service, shown, wait, on_result=on_result).all(delegations)
    return attended.cut, list(attended.results.values())


async def accepted(client: Client, requests: Sequence[DelegationRequest]) -> list[Delegation]:
    """In their order; in pieces of the size that the service takes."""
    pieces = [requests[start : start + AT_ONCE] for start in range(0, len(requests), AT_ONCE)]
    return [delegation for piece in pieces for delegation in await client.batch(piece)]


def _print(result: ToolAgentResult, number: int, as_json: bool) -> None:
    if as_json:
        output.json_line(json.dumps({"line": number, **result.to_dict()}, ensure_ascii=False))
    else:
        sign = words.SIGNS[result.status]
        output.line(f"{sign} line {number}  {result.delegation_id}  {words.cut(result.summary, 100)}")
