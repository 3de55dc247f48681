"""The permission requests of the fake service, in a dictionary."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deputize.shared.delegation import Delegation, Status, Step, StepStatus
from deputize.shared.errors import Conflict, NotFound
from deputize.shared.events import PermissionRequested
from deputize.shared.permission import (
    ExecuteDetails,
    PermissionAnswer,
    PermissionOutcome,
    PermissionRequest,
)
from deputize.shared.wire import now
from deputize.shared.wording import answer_words
from tests.orchestrator.fake_audit_log import FakeAuditLog

STEP = Step(
    id="s",
    type="bash",
    title="$ rm -r build",
    status=StepStatus.AWAITING_CONFIRMATION,
    tool_name="bash",
    turn_index=2,
    timestamp=now(),
)


class FakePermissions(FakeAuditLog):
    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, PermissionRequest] = {}
        self.given_answers: dict[str, PermissionAnswer] = {}

    def ask(self, id: str, asked: PermissionRequested) -> None:
        """Lets this question wait for an answer, as if this delegation asked it."""
        self.requests[asked.permission_id] = PermissionRequest(**dict(asked), delegation_id=id)

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        self.check()
        waiting = [request for id, request in self.requests.items() if id not in self.given_answers]
        return [request for request in waiting if delegation in (None, *request.path)]

    async def answer_permission(
        self, id: str, outcome: PermissionOutcome, *, by: str | None = None, **fields: Any
    ) -> None:
        self.check()
        if id not in self.requests:
            raise NotFound(f"there is no permission request {id}")
        if before := self.given_answers.get(id):
            raise Conflict(f"{id} was answered before: {answer_words(before.outcome, before.by, None)}")
        self.given_answers[id] = PermissionAnswer(outcome=outcome, by=by, at=now(), **fields)

    def with_pending(self, run: Delegation) -> Delegation:
        waiting = sorted(id for id in self.requests if id not in self.given_answers)
        mine = [id for id in waiting if run.id in self.requests[id].path]
        asks = any(self.requests[id].path[-1] == run.id for id in mine) and run.status is Status.RUNNING
        return run.model_copy(update={"pending_permissions": mine} | ({"status": Status.WAITING} if asks else {}))


def asked(delegation: str, number: int = 0, *above: str, **fields: Any) -> PermissionRequest:
    """A request of this delegation, which those above submitted, to run `rm -r build`."""
    about = now()
    given: dict[str, Any] = {
        "permission_id": f"prm_{delegation.removeprefix('dlg_')}_{number:08x}",
        "path": [*above, delegation],
        "delegation_id": delegation,
        "step": STEP.model_copy(update={"timestamp": about}),
        "details": ExecuteDetails(command="rm -r build", effects=["removes files"]),
        "reason": "it may change files",
        "rule": "ask-before-commands",
        "remembers": {"proceed_always": ["rm -r"]},
        "created_at": about,
        "expires_at": about + timedelta(minutes=5),
    }
    return PermissionRequest(**given | fields)


def question(text: str, step: Step, path: str = "") -> PermissionRequested:
    """A question whose every text is this one, in the path as well unless it is given."""
    return PermissionRequested(
        permission_id=text,
        path=(path or text).split(),
        step=step,
        details=ExecuteDetails(command=f"ls\n{text}", effects=[text]),
        reason=text,
        rule=text,
        remembers={"proceed_always": [text]},
        created_at=now(),
        expires_at=now(),
    )
