"""The last write of an attempt: the result of its run, with the fields of all parts, or the release to another try."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic_core import to_json

from ...shared.delegation import Progress, ToolAgentResult
from ...shared.events import RunFinished, RunRetried
from ...shared.runs.record import DISK, OUTPUT, SPENT
from ...shared.wire import now
from .outcome import RunOutcome
from .part import Hearing, Part, errors_reported
from .resources import Resources, RunOutputs
from .run_context import RunContext


def result_of(resources: Resources, outcome: RunOutcome, outputs: RunOutputs, reaped: Sequence[str]) -> ToolAgentResult:
    """Returns the result without the fields of parts. ``reaped``: processes that the sandbox had to end."""
    run = resources.context
    return ToolAgentResult(
        delegation_id=run.claim.id,
        status=outcome.status,
        termination_reason=outcome.reason,
        summary=outcome.summary,
        **run.of_result,
        **outputs.of_files,
        tool_call_count=run.meter.tool_calls,
        attempts=run.claim.attempt - bool(resources.given_up),
        artifacts=list(outputs.artifacts),
        undelivered=[message for message in resources.inbox.unread if message.text],
        reaped=list(reaped),
    )


async def completed(
    run: RunContext, parts: Sequence[Part], hearing: Sequence[Hearing], result: ToolAgentResult, outcome: RunOutcome
) -> ToolAgentResult:
    """Returns the result with the fields of all parts, and with what failed in them."""
    report = partial(run.report_error, kind="internal")
    for part in parts:
        with errors_reported(part, report):
            result = await part.complete(result, outcome)
    for failure in (each.failure for each in hearing if each.failure):
        report(failure)
    return result.model_copy(update={"errors": run.all_errors})


async def release(resources: Resources, event: RunRetried) -> None:
    """Releases the run to its next try, in one write, the last one of this try."""
    meter = resources.context.meter
    fields = {
        SPENT: meter.own.to_json(),
        "checkpoint": to_json(meter.spent_only().checkpoint() | {"elapsed": 0}).decode(),
        "progress": Progress(cost_usd=meter.usage.cost_usd).to_json(),
    }
    await resources.context.emit.end(event, fields, retry_ms=round(event.delay_seconds * 1000))


async def finish(resources: Resources, result: ToolAgentResult, outputs: RunOutputs) -> None:
    """Writes the result and ``run_finished`` and releases the lease, in one write, the last one of the run."""
    run = resources.context
    emit = run.emit
    fields = {
        "status": result.status.value,
        "result": emit.mask.json(result.to_json()),
        "finished": now().isoformat(),
        SPENT: run.meter.own.to_json(),
        **run.counts,
    }
    if run.output is not None:
        fields[OUTPUT] = ""  # it is in the result now
    if outputs.disk_bytes is not None:
        fields[DISK] = str(outputs.disk_bytes)
    if outputs.patch is not None:
        fields["patch"] = emit.mask.text(outputs.patch)
    artifacts = {name: emit.mask.text(text) for name, text in outputs.kept.items()}
    await emit.end(RunFinished(result=result), fields, retention=resources.retention_seconds, artifacts=artifacts)
