"""The fields of the hash in which a run's permission requests are kept, and a request as it is read from them.

The hash has for each request its event (field ``ID``), its subject (``ID:subject``) and its answer (``ID:answer``, sent
as ``ID:sending``); marks (``ID:requested``, ``ID:reported``) show which events the run has published, and
``ID:withdrawn`` that it does not wait for an answer any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from ..permission import PermissionRequest, PermissionSubject
from ..wire import now

ID = re.compile(r"prm_([0-9a-z]{26})_[0-9a-f]{8}")


def permission_id(delegation: str, retries: int, turn: int, call: str) -> str:
    """Returns the id of the request for a call: the same one in every attempt.

    Its end depends on the delegation, too, because people see and type only that.
    """
    digest = sha256(f"{delegation}:{retries}:{turn}:{call}".encode()).hexdigest()
    return f"prm_{delegation.removeprefix('dlg_')}_{digest[:8]}"


def delegation_of(id: str) -> str | None:
    """Returns the delegation that asks; None where this is not the id of a request."""
    found = ID.fullmatch(id)
    return f"dlg_{found[1]}" if found else None


def subject_field(id: str) -> str:
    return f"{id}:subject"


def answer_field(id: str) -> str:
    return f"{id}:answer"


def requested_mark(id: str) -> str:
    """Returns the field that marks that a run has published the request of a child."""
    return f"{id}:requested"


def withdrawn_mark(id: str) -> str:
    """Returns the field that marks that no answer is accepted any more."""
    return f"{id}:withdrawn"


def reported_mark(id: str) -> str:
    """Returns the field that marks that a run has published the answer."""
    return f"{id}:reported"


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request as it is kept, and what a remembered answer is compared with."""

    request: PermissionRequest
    subject: PermissionSubject

    @property
    def id(self) -> str:
        return self.request.permission_id

    @property
    def is_over(self) -> bool:
        return self.request.expires_at <= now()


def kept_request(request: str, subject: str) -> KeptRequest:
    """Returns a request by the fields that are kept of it."""
    return KeptRequest(PermissionRequest.model_validate_json(request), PermissionSubject.model_validate_json(subject))
