"""What traces cost a worker: CPU for the spans of a turn, made, batched and sent, as a part of what a turn costs.

The spans are those of long runs, made in this process of the events that these publish, and sent to a collector in
another process. The turn itself is that of a real worker (``turn_cpu``), without traces.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

from deputize.shared.delegation import Step, StepStatus, Usage
from deputize.shared.events import Event, Replied, StepCompleted, StepStarted, TurnStarted
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.masking import SecretMask
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.record import Claim
from deputize.shared.wire import now
from deputize.worker.celery_pool.garbage import freeze
from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number
from tests.benchmarks.script import Script

TURNS = 2000
"""In runs of CALLS turns each."""
CALLS = 10
AT_ONCE = 40
"""Runs whose spans the queue holds: more would overflow it, and spans be lost that nobody pays for."""
SECRETS = ("sk-ant-the-key-of-the-operator", "the-token-of-the-service")


async def measure(runs: int) -> list[Number]:
    spans: list[float] = []
    turns: list[float] = []
    with _collector() as url:
        async with open_load() as load:  # its worker has no exporter
            await asyncio.to_thread(_cpu, url)  # loads all of it
            freeze()  # as a worker does
            for _ in range(runs):  # side by side, because a machine's speed drifts
                turns.append(await _turn(load))
                spans.append(await asyncio.to_thread(_cpu, url))
    shares = [100 * ours / (turn * 1000) for ours, turn in zip(spans, turns, strict=True)]
    return [
        Number("CPU for the spans of a turn with a tool call, sent, of what the turn costs", "%", shares, at_most=3),
        Number("… the spans", "µs", spans),
        Number("… the turn", "ms", turns),
    ]


async def _turn(load: Load) -> float:
    """Milliseconds of a worker's CPU for a turn with 106 text deltas and a call."""
    script = Script(calls=CALLS, text=106)
    before = load.worker.cpu_seconds()
    await load.run(script, 20, 20)
    return (load.worker.cpu_seconds() - before) * 1000 / (20 * script.turns)


def _cpu(url: str) -> float:
    """Microseconds of this process, all threads, for the spans of a turn."""
    from deputize.worker.tracing.exporter import Tracing

    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
    tracing = Tracing("bench", os.environ)
    del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    events, mask = _events(), SecretMask(SECRETS)
    claims = [_claim() for _ in range(TURNS // CALLS)]  # both are there without traces, too
    before = time.process_time()
    for number, claim in enumerate(claims, 1):
        trace = tracing.begin(claim, mask)
        for event in events:
            trace.hears(event, 1)
        trace.close()
        if not number % AT_ONCE:
            time.sleep(0.1)
    tracing.close()
    return (time.process_time() - before) * 1e6 / TURNS


def _claim() -> Claim:
    request = DelegationRequest(task="be traced")
    return Claim(new_id(), "1:x", 1, 1, request, Limits(), [], {}, {})


def _events() -> list[Event]:
    """The events of a run's turns; those between begin and end are of every turn."""
    step = Step(
        id="call_1_1",
        type="read",
        title="read a.txt",
        status=StepStatus.RUNNING,
        tool_name="read_file",
        arguments={"path": "a.txt"},
        turn_index=1,
        timestamp=now(),
    )
    done = step.model_copy(update={"status": StepStatus.COMPLETED, "result": "one\n" * 200})
    usage = Usage(input_tokens=1000, output_tokens=200)
    reply = Replied(turn=1, text="words " * 100, stop_reason="tool_use", usage=usage)
    return [TurnStarted(turn=1), reply, StepStarted(step=step), StepCompleted(step=done)] * CALLS


class _Taking(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _serve(sent: Connection) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taking) as server:
        sent.send(server.server_port)
        server.serve_forever()


@contextmanager
def _collector() -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
