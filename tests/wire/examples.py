"""The examples of the OpenAPI document: values of the models, which ``orchestrator/examples.json`` holds as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import BaseModel

from deputize.orchestrator.audit_log import AuditEntry, AuditPage
from deputize.orchestrator.delegations import webhook_test
from deputize.orchestrator.operations import Items, MergeReport, PageOf
from deputize.orchestrator.routes.delegations import Continue, Prune, Retry
from deputize.orchestrator.routes.operators import Alive, Ready
from deputize.orchestrator.routes.runs import NotificationItems, PermissionItems
from deputize.orchestrator.triggers import Triggered
from deputize.orchestrator.uploads import Upload
from deputize.orchestrator.workspace_files import FileList, WorkspaceFile
from deputize.shared.checks import CommandCheck
from deputize.shared.compound_requests import Batch, MergeRequest
from deputize.shared.delegation import (
    Artifact,
    Delegation,
    Progress,
    Status,
    Step,
    StepStatus,
    TerminationReason,
    ToolAgentResult,
    Usage,
)
from deputize.shared.disk_usage import DiskUsage, Pruned
from deputize.shared.events import Envelope, RunFinished, RunQueued
from deputize.shared.facts import Check, FileChange, GitFacts, Verification
from deputize.shared.fleet import PreparedEnvironment, ToolCard, WorkerCard
from deputize.shared.kept_step import ToolAgentStep
from deputize.shared.limits import Limits
from deputize.shared.message import MessageMode, MessageRequest, SentMessage
from deputize.shared.permission import EditDetails, PermissionOutcome, PermissionReply, PermissionRequest
from deputize.shared.proof.file import Proof
from deputize.shared.request import DelegationRequest, Deliver, DirectoryWorkspace
from deputize.shared.runs.capacity import EndpointCapacity
from deputize.shared.runs.cost import CapUse, Cost, CostReport, Forecast
from deputize.shared.runs.losses import StoreLoss
from deputize.shared.runs.notification import Notification
from deputize.shared.schedule import Schedule
from deputize.shared.status_counts import StatusCounts
from deputize.shared.webhooks import Webhook
from deputize.shared.wire import Request

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
END = AT + timedelta(seconds=61)
ID, OTHER, THIRD = (f"dlg_01k9zxv3q8h4t7m2n5p6r8s9t{last}" for last in "abc")
PERMISSION = "prm_01k9zxv3q8h4t7m2n5p6r8s9ta_0a1b2c3d"
PATCH = """\
diff --git a/pricing.py b/pricing.py
--- a/pricing.py
+++ b/pricing.py
@@ -1,2 +1,2 @@
 def discount(total):
-    return 10 if total > 100 else 0
+    return 10 if total >= 100 else 0
"""
REPORT = "# Discounts\n\nThe comparison left out the sum itself.\n"
CHECK = CommandCheck(kind="command", run="python3 -m unittest -q")
REQUEST = DelegationRequest(
    task="Orders of exactly 100 euros get no discount. Correct it in pricing.py.",
    expected_outcome="The tests pass.",
    workspace=DirectoryWorkspace(kind="directory", path="/srv/shop"),
    limits=Limits(max_turns=12, max_cost_usd=0.25),
    verify=[CHECK],
)
USAGE = Usage(input_tokens=1200, output_tokens=340, cache_read_tokens=800, cost_usd=0.0125, cache_saved_usd=0.0014)
RESULT = ToolAgentResult(
    delegation_id=ID,
    status=Status.SUCCEEDED,
    termination_reason=TerminationReason.COMPLETED,
    summary="The comparison left out the sum itself; I changed it to >=.",
    files_modified=["pricing.py"],
    file_changes=[FileChange(path="pricing.py", change="modified", added_lines=1, removed_lines=1)],
    tool_call_count=2,
    turn_count=3,
    execution_time_ms=61_000,
    usage=USAGE,
    verification=Verification(
        verdict="verified",
        require="passed",
        checks=[
            Check(
                item={"kind": "command", "run": "python3 -m unittest -q"},
                outcome="evidence",
                why="1 test that failed before passes now",
                base="red",
                candidate="green",
                canary="red",
                strength="tests",
                exit_code=0,
                duration_ms=1200,
            )
        ],
    ),
    artifacts=[Artifact(name="report.md", version=1, size=len(REPORT))],
)
QUEUED = Delegation(id=ID, status=Status.QUEUED, created_at=AT, request=REQUEST, effective_limits=REQUEST.limits)
RUNNING = QUEUED.model_copy(
    update={
        "status": Status.RUNNING,
        "started_at": AT,
        "attempt": 1,
        "worker": "worker-1@host",
        "progress": Progress(turn=2, tool_calls=1, last_tool="read_file", elapsed_ms=20_000, cost_usd=0.004),
    }
)
FINISHED = RUNNING.model_copy(update={"status": Status.SUCCEEDED, "finished_at": END, "result": RESULT})
GIT = GitFacts(base="a" * 40, branch=f"deputize/{ID}", commit="b" * 40)
DELIVERED = FINISHED.model_copy(update={"result": RESULT.model_copy(update={"git": GIT})})
ENVELOPE = {
    "payload": "eyJfdHlwZSI6ImV4YW1wbGUifQ==",
    "payloadType": "application/vnd.in-toto+json",
    "signatures": [{"keyid": "0" * 64, "sig": "AAAA"}],
}
PROOF = Proof.of(FINISHED, PATCH, json.dumps(ENVELOPE))
STEP = Step(
    id="toolu_01",
    type="edit",
    title="edit pricing.py",
    status=StepStatus.COMPLETED,
    tool_name="edit_file",
    arguments={"path": "pricing.py", "old_string": "> 100", "new_string": ">= 100"},
    turn_index=2,
    timestamp=AT,
    result="Changed 1 place.",
)
ASKED = PermissionRequest(
    permission_id=PERMISSION,
    delegation_id=ID,
    path=[ID],
    step=STEP.model_copy(update={"status": StepStatus.AWAITING_CONFIRMATION, "result": None}),
    details=EditDetails(paths=["pricing.py"], diff=PATCH),
    reason="edit_file changes something (edit)",
    created_at=AT,
    expires_at=AT + timedelta(seconds=300),
)
EVENTS = [
    Envelope(delegation_id=ID, seq=1, at=AT, attempt=0, event=RunQueued(request=REQUEST)),
    Envelope(delegation_id=ID, seq=2, at=END, attempt=1, event=RunFinished(result=RESULT)),
]
MERGING = QUEUED.model_copy(
    update={"id": THIRD, "request": DelegationRequest(task="Merge 2 delegations", merges=[ID, OTHER], verify=[CHECK])}
)
TESTED = Webhook(url="https://example.org/done")
TEST = webhook_test(TESTED)
WEBHOOK_TEST = QUEUED.model_copy(
    update={
        "status": Status.CANCELLED,
        "finished_at": AT,
        "request": TEST,
        "effective_limits": TEST.limits,
    }
)
NOTIFICATION = Notification(
    id=f"{ID}-2",
    delegation_id=ID,
    type="delegation.finished",
    url="https://example.org/done",
    state="delivered",
    tries=1,
    status=204,
    last_try_at=END,
)
FILE = WorkspaceFile(path="pricing.py", kind="file", size=61, executable=False, modified_at=END)
TOTAL = Cost(key=None, delegations=1, usage=USAGE)
CAP = CapUse(name="spend.weekly_usd", days=7, usd=50, spent_usd=12.5, reserved_usd=0.25, left_usd=37.25)
FORECAST = Forecast(delegation_id=ID, turn=3, max_turns=12, spent_usd=0.06, forecast_usd=0.24, max_cost_usd=0.25)
SCHEDULE = Schedule(name="nightly", cron="0 3 * * *", zone="Europe/Berlin", next=END, last=AT, last_delegation_id=ID)
ENTRY = AuditEntry(
    id="1795253400000-0",
    at=AT,
    token="ci",
    client="127.0.0.1",
    method="POST",
    route="/v1/delegations",
    delegation_ids=[ID],
    status=202,
    request_id="req_01k9zxv3q8h4t7m2n5p6r8s9te",
)
TOOL = ToolCard(
    name="read_file",
    description="Reads a text file of the workspace.",
    kind="read",
    effect="pure",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CAPACITY = EndpointCapacity(
    endpoint="3fa2b04c91de",
    model="claude-sonnet-5-5",
    key=2,
    rate=4.1,
    served=1700,
    refused=24,
    waiting=41,
    owners={"payments": 36},
    until=AT,
    error="HTTP 429 from https://api.anthropic.com/v1/messages: This request would exceed your rate limit.",
)
PLACES = EndpointCapacity(endpoint="workers", model="", waiting=1005, owners={"payments": 1000, "search": 5})
LOSS = StoreLoss(at=AT, writes=12, doubted=3, delegations=1)
PREPARED = PreparedEnvironment(
    environment="shop",
    key="shop-0f4c1d92ab37e6580c1b",
    bytes=512_000_000,
    seconds=61.4,
    prepared_at=AT,
    used_at=AT,
    workers=["worker-1@host"],
)
WORKER = WorkerCard(
    name="worker-1@host",
    pid=4711,
    started_at=AT,
    running=1,
    concurrency=200,
    model="claude-sonnet-5-5",
    sandbox=None,
    tools=["read_file", "edit_file", "bash"],
    usage=USAGE,
    version="1.0.0",
)
METRICS = """\
# HELP deputize_queue_depth Delegations that a worker may claim.
# TYPE deputize_queue_depth gauge
deputize_queue_depth 3
"""
STREAM = "".join(f"id: {each.seq}\nevent: {each.event.type}\ndata: {each.to_json()}\n\n" for each in EVENTS)

ACCEPTED = {"202": QUEUED, "200": QUEUED}
UPLOAD = Upload(upload=f"sha256:{'0' * 64}", bytes=2048, expires_at=END)

EXAMPLES: dict[str, Any] = {
    "create_delegation": {"request": REQUEST, **ACCEPTED},
    "create_delegations": {
        "request": Batch(requests=[REQUEST], shared_context="Prices are in euros."),
        "202": Items(items=[QUEUED]),
    },
    "prune_delegations": {
        "request": Prune(older_than_seconds=86_400, dry_run=True),
        "200": Pruned(removed=1, freed_bytes=40_960, ids=[ID], dry_run=True),
    },
    "list_delegations": {"200": PageOf(items=[FINISHED], next_cursor=ID)},
    "count_delegations": {"200": StatusCounts(queued=1, running=2, succeeded=40, failed=3)},
    "get_delegation": {"200": FINISHED},
    "cancel_delegation": {"202": RUNNING},
    "send_message": {
        "request": MessageRequest(text="Leave the tests as they are.", mode=MessageMode.STEER),
        "202": SentMessage(message_id="msg_01k9zxv3q8h4t7m2n5p6r8s9td"),
    },
    "resume_delegation": {"202": QUEUED},
    "list_steps": {"200": [ToolAgentStep.of(STEP)]},
    "continue_delegation": {
        "request": Continue(text="Add a test for 100 euros.", idempotency_key="order-17"),
        **ACCEPTED,
    },
    "retry_delegation": {"request": Retry(from_turn=2), **ACCEPTED},
    "deliver_delegation": {"request": Deliver(branch="discounts/{id}"), "200": DELIVERED},
    "merge_delegations": {
        "request": MergeRequest(ids=[ID, OTHER], verify=[CHECK]),
        "202": MergeReport(conflicts=[], files=["pricing.py"], delegation=MERGING),
        "200": MergeReport(conflicts=[], files=["pricing.py"]),
    },
    "list_permissions": {"200": PermissionItems(items=[ASKED])},
    "answer_permission": {
        "request": PermissionReply(outcome=PermissionOutcome.CANCEL, reason="The price list is fixed.")
    },
    "stream_events": {"200": EVENTS},
    "get_proof": {"200": PROOF},
    "get_disk_usage": {"200": DiskUsage(kept_bytes=40_960, delegations=1, max_kept_bytes=10 * 1024**3)},
    "list_files": {"200": FileList(items=[FILE], truncated=False)},
    "get_file": {"200": "def discount(total):\n    return 10 if total >= 100 else 0\n"},
    "put_upload": {"201": UPLOAD, "200": UPLOAD},
    "list_notifications": {"200": NotificationItems(items=[NOTIFICATION])},
    "test_webhook": {"request": TESTED, "202": WEBHOOK_TEST},
    "receive_delivery": {
        "request": {"action": "labeled", "sender": {"login": "alice"}, "issue": {"number": 7, "title": "It fails"}},
        "202": Triggered(outcome="started", delegation_id=ID),
        "200": Triggered(outcome="started", delegation_id=ID, replayed=True),
    },
    "get_cost": {
        "200": CostReport(
            by="day",
            items=[TOTAL.model_copy(update={"key": "2026-11-21"})],
            total=TOTAL,
            caps=[CAP],
            forecasts=[FORECAST],
        )
    },
    "list_schedules": {"200": [SCHEDULE]},
    "run_schedule": {"202": QUEUED},
    "pause_schedule": {"200": SCHEDULE.model_copy(update={"paused": "by hand", "next": None})},
    "resume_schedule": {"200": SCHEDULE},
    "list_audit_entries": {"200": AuditPage(items=[ENTRY])},
    "list_tools": {"200": [TOOL]},
    "list_workers": {"200": [WORKER]},
    "get_metrics": {"200": METRICS},
    "list_capacity": {"200": [PLACES, CAPACITY]},
    "list_environments": {"200": [PREPARED]},
    "list_losses": {"200": [LOSS]},
    "drain_worker": {"202": WORKER},
    "check_liveness": {"200": Alive()},
    "check_readiness": {"200": Ready(workers=1, version="1.0.0")},
    "text/event-stream": STREAM,
    "text/x-diff": PATCH,
    "text/plain": REPORT,
}


def json_of(value: Any) -> Any:
    """Returns what is sent: of a request the fields that were set."""
    match value:
        case Envelope():
            return value.to_dict()
        case BaseModel():
            return value.model_dump(by_alias=True, mode="json", exclude_unset=isinstance(value, Request))
        case list():
            return [json_of(each) for each in cast("list[Any]", value)]
        case dict():
            return {key: json_of(each) for key, each in cast("dict[str, Any]", value).items()}
        case _:
            return value
