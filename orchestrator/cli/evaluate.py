"""`deputize eval`: each task of a file several times, and what the results state about what did them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...shared.errors import Invalid, Misconfigured
from ...shared.text import count
from ...shared.wording import cut, dollars, seconds, share
from . import output
from .batch import Places, Results, carry_out, line_options, open_results, read_lines
from .batch_input import RequestLine
from .errors import Exit
from .values import StrictCommand, denied_option, stream_option, wait_option

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult
    from ..evaluation.evaluation import Comparison, Evaluation
    from ..evaluation.statistics import Interval

MAX_RUNS = 100
TITLE = 60
"""Characters of a title in the table."""


class Tasks(Places):
    """The tasks of an evaluation. Their runs have numbers: those of the first task, then those of the next one."""

    def __init__(self, lines: Sequence[RequestLine], runs: int) -> None:
        self.titles = [line.request.title for line in lines]
        self.runs = runs
        self.lines = [_run(line, at * runs + run, run) for at, line in enumerate(lines) for run in range(1, runs + 1)]

    def fields(self, number: int) -> Mapping[str, Any]:
        at, run = divmod(number - 1, self.runs)
        return {"line": number, "task": at + 1, "run": run + 1, "title": self.titles[at]}

    def name(self, number: int) -> str:
        at, run = divmod(number - 1, self.runs)
        return f"task {at + 1}, run {run + 1}"


class TaskFile(click.File):
    """A file of tasks, or a folder of Harbor's tasks, which is read as such a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not (isinstance(value, str) and Path(value).is_dir()):
            return super().convert(value, param, ctx)
        from ..evaluation.harbor import harbor_lines

        try:
            read = BytesIO(harbor_lines(Path(value)))
        except Invalid as error:
            self.fail(error.detail, param, ctx)
        read.name = value
        return read


def _run(line: RequestLine, number: int, run: int) -> RequestLine:
    """Returns a run of a line as a line of its own; runs with one idempotency key would be one delegation."""
    key = line.request.idempotency_key
    request = line.request.model_copy(update={"idempotency_key": f"{key}-{run}"}) if key else line.request
    return replace(line, number=number, request=request, repeats=line.number)


@click.command("eval", cls=StrictCommand)
@click.argument("file", type=TaskFile("rb"), metavar="TASKS|FOLDER|-")
@click.option(
    "--runs", type=click.IntRange(1, MAX_RUNS), default=5, show_default=True, help="How often each task runs."
)
@click.option(
    "--against", type=click.File("rb"), metavar="RESULTS", help="Compare with the results of another evaluation."
)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures as a page here.")
@click.option(
    "--inspect",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write a log into it, for `inspect view --log-dir FOLDER`.",
)
@line_options("TASKS")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write results here, one a line.")
@click.option("--resume", is_flag=True, help="Go on where an earlier evaluation into the same --out broke off.")
@wait_option
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line, and the figures last.")
def evaluate(
    file: BinaryIO,
    runs: int,
    against: BinaryIO | None,
    html: Path | None,
    inspect: Path | None,
    format: str | None,
    out: Path | None,
    resume: bool,
    wait: float | None,
    stream: bool,
    as_json: bool,
    **given: Any,
) -> Exit:
    """Run each task of a file several times, and print how reliable that is.

    A run is a success by the verdict that its request requires. pass@1 is the rate of success, pass@k that of one in k
    runs, and pass^k that of all k. Intervals are of 95 %. --against compares task by task with another evaluation.
    """
    if resume and out is None:
        raise click.UsageError("--resume needs --out: there it finds the runs that are done")
    former = _evaluation(_rows(against)) if against else None
    settings, source, lines = read_lines(file, format, given)
    tasks = Tasks(lines, runs)
    with nullcontext(Results(tasks)) if out is None else open_results(out, file, tasks, resume=resume) as results:
        how = {"wait": wait, "stream": stream, "as_json": as_json}
        code = asyncio.run(carry_out(settings, source, tasks.lines, results, **how))
        if all(result.status == "cancelled" for result in results.done.values()):
            return code  # nothing has ended by itself
        evaluation = _evaluation((tasks.fields(number), result) for number, result in sorted(results.done.items()))
    if inspect:
        _log(evaluation, inspect, Path(file.name).stem, [each.request.model or settings.model for each in lines])
    _report(evaluation, former, html, as_json=as_json)
    return Exit.SUCCEEDED if len(results.done) == len(tasks.lines) else code


def _rows(file: BinaryIO) -> Iterable[tuple[Mapping[str, Any], ToolAgentResult]]:
    """Yields the rows of a file of results. Raises Invalid for a line of another kind."""
    from ...shared.delegation import ToolAgentResult

    for number, text in enumerate(file.read().splitlines(), 1):
        try:
            row = json.loads(text)
            yield {"task": int(row["task"]), "title": str(row["title"])}, ToolAgentResult.model_validate(row)
        except (ValueError, KeyError, TypeError):
            raise Invalid(
                f"{file.name}, line {number} is not a result of an evaluation, as --out writes them"
            ) from None


def _evaluation(rows: Iterable[tuple[Mapping[str, Any], ToolAgentResult]]) -> Evaluation:
    from ..evaluation.evaluation import Evaluation, TaskRuns

    found: dict[tuple[int, str], list[ToolAgentResult]] = {}
    for place, result in rows:
        found.setdefault((place["task"], place["title"]), []).append(result)
    return Evaluation.of([TaskRuns(number, title, results) for (number, title), results in found.items()])


def _log(evaluation: Evaluation, folder: Path, name: str, models: Sequence[str]) -> None:
    from ..evaluation.inspect_log import file_name, inspect_log

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(name)
    _write(path, inspect_log(evaluation, name, models))
    output.note(f"{path} was written; inspect view --log-dir {folder} shows it")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written: {error.strerror}") from None


def _report(evaluation: Evaluation, former: Evaluation | None, html: Path | None, *, as_json: bool) -> None:
    from ..evaluation.evaluation import Comparison
    from ..evaluation.page import page

    compared = Comparison.of(evaluation, former) if former else None
    if html:
        _write(html, page(evaluation, compared))
    if as_json:
        figures = {**evaluation.to_dict(), "byTask": [each.to_dict() for each in evaluation.tasks]}
        output.json_line(json.dumps(figures | ({"against": compared.to_dict()} if compared else {})))
    else:
        output.lines(output.columns([_HEAD, *_rows_of(evaluation)], left=(5,)))
        output.lines([*summary(evaluation), *(conclusions(compared) if compared else ())])


_HEAD = ("task", "success", "95 %", "cost", "time", "title")


def _rows_of(evaluation: Evaluation) -> Iterable[tuple[str, ...]]:
    for each in evaluation.tasks:
        yield (
            str(each.number),
            f"{each.successes} of {len(each.ended)}",
            between(each.interval),
            dollars(each.cost_usd),
            seconds(each.seconds),
            cut(each.title, TITLE),
        )


def between(interval: Interval) -> str:
    return f"{interval[0]:.0%} to {interval[1]:.0%}"


def summary(evaluation: Evaluation) -> list[str]:
    """Returns the lines about all tasks."""
    k, figures = str(evaluation.k), []
    for name in ("pass@1", "pass@k", "pass^k")[: 3 if evaluation.k > 1 else 1]:
        value, interval = evaluation.figure(name)
        figures.append(f"{name.replace('k', k)}  {share(value)} ({between(interval)})")
    ends = ", ".join(f"{number} {end}" for end, number in evaluation.ends.items())
    per = evaluation.seconds_of_success
    return [
        *figures,
        f"a success costs {dollars(evaluation.cost_of_success)} and takes {'–' if per is None else seconds(per)}",
        f"{count(len(evaluation.results), 'run')}: {ends}; {count(evaluation.refuted_claims, 'claim')} refuted",
    ]


def conclusions(compared: Comparison) -> list[str]:
    """Returns the lines about a comparison."""
    figures = compared.to_dict()
    low, high = figures["interval"]
    change = f"{figures['difference']:+.1%} ({low:+.0%} to {high:+.0%})"
    tasks = f"{compared.better} better and {compared.worse} worse of {count(len(compared.pairs), 'task')}"
    return [f"against the other results: {change}, {tasks}", compared.conclusion]
