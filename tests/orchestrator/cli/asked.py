"""Permission requests that wait for the answer of a command."""

from __future__ import annotations

from typing import Any

from deputize.shared.delegation import Step, StepStatus
from deputize.shared.events import PermissionRequested
from deputize.shared.permission import ExecuteDetails
from deputize.shared.wire import now

FIRST, SECOND = f"prm_{'c' * 26}_0000aaaa", f"prm_{'c' * 26}_0000bbbb"


def asked(id: str, path: str, *, title: str = "$ git push", **fields: Any) -> PermissionRequested:
    step = Step(
        id="s",
        type="bash-confirm",
        title=title,
        status=StepStatus.AWAITING_CONFIRMATION,
        tool_name="bash",
        turn_index=1,
        timestamp=now(),
    )
    given: dict[str, Any] = {
        "permission_id": id,
        "path": path.split(),
        "step": step,
        "details": ExecuteDetails(command="git push"),
        "reason": "bash changes something (execute)",
        "rule": "ask_before_changes",
        "remembers": {"proceed_always": ["git push *"], "proceed_always_tool": ["every call of bash"]},
        "created_at": now(),
        "expires_at": now(),
    }
    return PermissionRequested(**given | fields)
