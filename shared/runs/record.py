"""The record of a run: for its next attempt, for the delegations that build on it, and for its caller."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Self

from pydantic_core import to_json

from ..delegation import Artifact, Delegation, Progress
from ..errors import Conflict, Invalid, NotFound
from ..event_size import capped
from ..events import Envelope, RunQueued
from ..facts import Trust
from ..limits import Limits
from ..request import ArchiveWorkspace, DelegationRequest
from ..webhooks import Webhook
from ..wire import now
from .keys import artifacts_key, events_key, history_key, ledger_key, record_key

LABELS, SESSION, MODEL, SPENT = "labels", "session", "model", "spent"
"""Fields that a report of costs reads without the request and the result, which may be megabytes."""
AFTER, CONTINUES, DISK, UPLOAD = "after", "continues", "disk", "upload"
"""The ids that it waits for; the one whose files it copies; the bytes of its files; the upload of its workspace."""
TRUST, FILE_TURNS, OUTPUT, REFUSALS = "trust", "file_turns", "output", "refusals"
WEBHOOK, UPSTREAMS, INSTRUCTIONS, TOOLS, MESSAGES = "webhook", "upstreams", "instructions", "tools", "messages"
ANNOUNCED, READ, CLOSED, TRACE, ATTEMPT_SPAN = "announced", "read", "closed", "trace", "attempt_span"
OWNER = "caller"
"""Whose delegation it is: a token's name or its group; none for the main token."""
RESERVED = "reserved"
"""What its last attempt had reserved for a model call, where that was not given back."""
DOUBT = "doubt"
"""Whether Redis has lost acknowledged writes since the run began."""
PROOF = "proof"
"""The envelope of the signed statement of a verified result."""
COUNTS = ("lost", "stalls", "starts", "retries", "retried_after")
"""Those that count earlier attempts."""
PROGRESS = {"lost": "0", "tried": "1"}
"""What a run sets when it has come further: attempts that were lost before do not count any more."""
ALONE_AFTER = 2
"""Standstills of its workers after which a run goes on in a process of its own; after one more it is given up."""
MOST_STARTS = 3
"""How many processes of its own may end in a row before they claim the run; then it is given up."""
Get = Callable[[str], Awaitable[Delegation]]


@dataclass(frozen=True, slots=True)
class FileTurns:
    """Before which turns the files of a run's workspace are known.

    ``last`` is the last turn in which files changed, 0 where none did. ``lacking`` has pairs of a turn and a path: from
    before that turn on, the content of that path is not kept; an empty path where all are kept again.
    """

    last: int = 0
    lacking: tuple[tuple[int, str], ...] = ()
    count: int = 0
    """How many snapshots there are."""

    def changed(self, turn: int, lacks: str = "") -> FileTurns:
        """Returns the file states with the change of this turn, the latest; ``lacks`` is a path that is not kept."""
        lacking = tuple(each for each in self.lacking if each[0] <= turn)
        if lacks != (lacking[-1][1] if lacking else ""):
            lacking = (*lacking, (turn + 1, lacks))
        return FileTurns(max(self.last, turn), lacking, self.count + 1)

    def lacks(self, turn: int) -> str:
        """Returns a path whose content before this turn is not kept; "" where the files are known."""
        if self.last < turn:
            return ""  # as at the end
        return next((path for since, path in reversed(self.lacking) if since <= turn), "")

    def choices(self, last: int) -> str:
        """Returns the turns with known files, in words, for a run that had ``last`` turns."""
        known = [turn for turn in range(1, max(last, 1) + 1) if not self.lacks(turn)]
        ranges = [
            (turn, next(end for end in range(turn, last + 2) if end + 1 not in known))
            for turn in known
            if turn - 1 not in known
        ]
        return ", ".join(str(first) if first == end else f"{first} to {end}" for first, end in ranges)

    def to_json(self) -> str:
        return json.dumps([self.last, self.lacking, self.count])

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Returns None where nothing is recorded, or by an older version that kept no snapshots."""
        found = json.loads(text) if text else ()
        if len(found) < 3:
            return None
        last, lacking, count = found
        return cls(last, tuple((turn, path) for turn, path in lacking), count)


@dataclass(frozen=True, slots=True)
class FilesOf:
    """The files of a delegation as they were before a turn of its run; None: at its end."""

    id: str
    before: int | None = None
    for_merge: bool = False
    """Without git's state, which runs may have changed, and with no file ignored."""


async def first_files(redis: Any, request: DelegationRequest, get: Get) -> FilesOf | None:
    """Returns the files with which a request begins that builds on a delegation, or merges several; else None.

    Raises as ``files_before``, and NotFound.
    """
    if request.merges:
        return FilesOf(request.merges[0], 1, for_merge=True)
    if request.builds_on is None:
        return None
    earlier = await get(request.builds_on)
    return await files_before(redis, earlier, request.from_turn) if request.from_turn else FilesOf(earlier.id)


async def files_before(redis: Any, earlier: Delegation, turn: int) -> FilesOf:
    """Returns the files of an ended delegation as they were before this turn.

    Raises ``Invalid`` for a turn that it did not have, and ``Conflict`` where these files are not kept.
    """
    id, last = earlier.id, earlier.result.turn_count if earlier.result else 0
    if turn > max(last, 1):
        detail = f"{id} had {last} turns; `deputize continue {id} TEXT` goes on after the last one"
        raise Invalid.of([{"pointer": "/fromTurn", "detail": detail}])
    turns = FileTurns.from_json(await redis.hget(record_key(id), FILE_TURNS))
    if turns is None:
        raise Conflict(
            f"which turns of {id} changed files is not recorded; `deputize retry {id}` starts from the first"
        )
    if path := turns.lacks(turn):
        raise Conflict(
            f"the files of {id} as they were before turn {turn} are not all kept: {path} is too large, or one too many."
            f" Turns that can be chosen: {turns.choices(last)}; "
            f"`deputize continue {id} TEXT` goes on after the last one"
        )
    return FilesOf(id, None if turns.last < turn else turn)


async def trust_of(redis: Any, id: str) -> Trust:
    """Returns what the conversation of a delegation had read; nothing where it never began or is gone."""
    text: str | None = await redis.hget(record_key(id), TRUST)
    return Trust.model_validate_json(text) if text else Trust()


LONG = 1000
"""Characters of a text from which it is stored once, and of an event from which it is stored compressed."""
_REFERENCE = re.compile("\x01([0-9]+):([0-9]+):([0-9]+)\x01")  # event, begin, end; in JSON, \x01 is escaped


def compressed(event: str) -> str:
    """Returns a long event as it is stored; "" for a short one, which is stored as it is published."""
    return b64encode(zlib.compress(event.encode(), 1, 13)).decode() if len(event) >= LONG else ""


def published(stored: str) -> str:
    """Returns a stored event as it was published."""
    return stored if stored.startswith("{") else zlib.decompress(b64decode(stored)).decode()


def reference(seq: int, event: str, text: str) -> dict[str, str]:
    """Returns what stands for a long text of this event, by its JSON form; {} where it was masked or cut there."""
    text = to_json(text).decode()[1:-1]
    begin = place_of(text, event) if len(text) >= LONG else -1
    return {text: f"\x01{seq}:{begin}:{begin + len(text)}\x01"} if begin >= 0 else {}


def place_of(text: str, entry: str) -> int:
    """Returns where a long text begins in an entry, -1 if it does not; much faster than a search for all of it."""
    begin = entry.find(text[:64])
    return begin if entry.startswith(text, begin) else -1


KeptRun = tuple[list[str], dict[str, str], str | None, str | None]
"""What earlier attempts wrote: history, ledger, kit; and the last one whose worker's event loop stalled."""


async def kept_run(redis: Any, id: str) -> KeptRun:
    """Reads what earlier attempts wrote, with the texts to which history and ledger refer."""
    async with redis.pipeline() as pipeline:  # a transaction: nothing expires in between
        pipeline.lrange(history_key(id), 0, -1).hgetall(ledger_key(id)).hmget(record_key(id), ["tools", "stalled"])
        history, ledger, kept, entries = await pipeline.xrange(events_key(id)).execute()
    events = {number.partition("-")[0]: published(entry["e"]) for number, entry in entries}
    restored = partial(_REFERENCE.sub, lambda of: events[of[1]][int(of[2]) : int(of[3])])
    return [*map(restored, history)], {call: restored(state) for call, state in ledger.items()}, *kept


LISTED_CHARACTERS = 2000
"""Characters of each text of a request that a list contains; the delegation itself has all of it."""


KEPT: Mapping[str, Callable[[str], Any]] = {
    FILE_TURNS: FileTurns.from_json,
    TRUST: Trust.model_validate_json,
    OUTPUT: str,
    WEBHOOK: Webhook.model_validate_json,
    UPSTREAMS: str,
    INSTRUCTIONS: str,
    MESSAGES: int,
    ANNOUNCED: int,
    READ: int,
    TRACE: str,
    ATTEMPT_SPAN: str,
    REFUSALS: json.loads,
    OWNER: str,
    RESERVED: str,
    DOUBT: str,
}
"""The fields of the record that a claim passes on to the capabilities that store them, and how they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What became of the attempts before this one."""

    lost: int = 0
    """How many workers were lost in a row, without a turn completed in between."""
    handed_over: bool = False
    """Whether the previous attempt was handed back by a worker that was stopped, and not lost."""
    stalled: bool = False
    """Whether the previous attempt ended because its worker's event loop stalled (``worker/standby``)."""
    stalls: int = 0
    """How often a worker's event loop was blocked while it had the run, in all of its attempts."""
    starts: int = 0
    """How many processes of its own were started for it in a row, and have not claimed it."""
    retries: int = 0
    """How often the run was retried: done again from the start after a failure."""
    retried_after: int = 0
    """The last attempt before that; 0 where there was none."""
    fence: str = ""
    """The fence of the attempt before this one; "" where there was none, and where an older version claimed it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed run: its request, and the progress of earlier attempts."""

    FIELDS: ClassVar = (
        *("seq", "request", "limits", "checkpoint", "depth", "ended", "cancel", "path", "elapsed_ms", "fence_before"),
        *KEPT,
        *(name for name in COUNTS if name != "stalls"),  # which has a key of its own
    )
    """The fields of the record that it is made of."""

    id: str
    fence: str
    attempt: int
    seq: int
    request: DelegationRequest
    limits: Limits
    history: list[bytes]
    ledger: dict[str, str]
    """Earlier attempts' ledger entries of the turn they left open, by call id."""
    checkpoint: dict[str, Any]
    elapsed: float = 0.0
    """Seconds of the run's time that earlier attempts had used when their leases were last renewed or released."""
    depth: int = 0
    """The nesting depth: the number of delegations this one is nested in."""
    path: tuple[str, ...] = ()
    """The ids from the root of the run tree to this run."""
    cancelled: bool = False
    """Whether its cancellation was requested while it waited for this attempt."""
    past: Past = Past()
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What single capabilities have stored, by the field of the record: of ``KEPT`` what is set, and the kit of tools.

    All of it is read with the claim: what another version wrote, and this one cannot read, is left to a newer worker.
    """

    @property
    def is_first(self) -> bool:
        """Returns whether no attempt of the same try precedes this one."""
        return self.attempt == self.past.retried_after + 1

    @property
    def touched_files(self) -> bool:
        """Returns whether an earlier attempt answered calls, so that its files are needed."""
        return len(self.history) > 2

    @property
    def file_turns(self) -> FileTurns:
        """The turns of earlier attempts of this try in which files changed."""
        return self.kept.get(FILE_TURNS, FileTurns())

    @classmethod
    def of(cls, id: str, fields: Mapping[str, Any], kept: KeptRun) -> Claim:
        """Builds a claim from the claim script's ``fields`` and what earlier attempts ``kept``."""
        history, ledger, tools, stalled = kept
        attempt = int(fields["attempt"])
        own = {name: read(fields[name]) for name, read in KEPT.items() if fields.get(name)}
        return cls(
            id=id,
            fence=fields["fence"],
            attempt=attempt,
            seq=int(fields["seq"]),
            request=DelegationRequest.of_record(fields["request"]),
            limits=Limits.model_validate_json(fields["limits"]),
            history=[entry.encode() for entry in history],
            ledger=ledger,
            checkpoint=json.loads(fields.get("checkpoint") or "{}"),
            elapsed=int(fields.get("elapsed_ms") or 0) / 1000,
            depth=int(fields.get("depth") or 0),
            path=(*(fields.get("path") or "").split(), id),
            cancelled=bool(fields.get("cancel")),
            past=Past(
                handed_over=fields.get("ended") == "handed_over",
                stalled=stalled is not None and int(stalled) == attempt - 1,
                fence=fields.get("fence_before", ""),
                **{name: int(fields.get(name) or 0) for name in COUNTS},
            ),
            kept=own if tools is None else {**own, TOOLS: tools},
        )


def not_found(id: str) -> NotFound:
    return NotFound(f"there is no delegation {id}; it never was, or its retention is over. `deputize list` shows them.")


def nothing_to_continue(id: str) -> str:
    """Returns the words of a refusal to continue it."""
    return f"{id} has no conversation to continue: it never began; `deputize retry {id}` hands its task over again"


def files_gone(id: str) -> str:
    """Returns the same where there is a conversation, but not its files."""
    return (
        f"the files of {id} are gone, or on a machine that shares none with this one: they are kept for "
        f"DEPUTIZE_WORKSPACE_RETENTION_SECONDS after its end, while there is room (DEPUTIZE_WORKSPACE_KEPT_BYTES). "
        f"`deputize retry {id}` hands its task over again"
    )


def acceptance(
    id: str,
    request: DelegationRequest,
    limits: Limits,
    asked: DelegationRequest,
    *,
    temporary: bool = False,
    webhook: Webhook | None = None,
    trace: str = "",
    owner: str = "",
) -> dict[str, Any]:
    """Returns one delegation as the accept script's argument. ``asked`` is the request without its agent's part.

    ``webhook`` is that of a request without one, ``trace`` the ``traceparent`` of its caller, ``owner`` whose it
    is; a child of a parent has that of its parent (``accept.lua``).
    """
    body = request.to_json()
    # Only with an agent a default that was given differs from one that was left open.
    sent = asked.given_json() if asked.agent else body
    event = Envelope(delegation_id=id, seq=1, at=now(), attempt=0, event=RunQueued(request=request))
    fields = {
        "request": body,
        "limits": limits.to_json(),
        "created": now().isoformat(),
        "title": request.title,
        "priority": request.priority,
        LABELS: json.dumps(request.labels, ensure_ascii=False),
        SESSION: request.session_id or "",
        CONTINUES: request.builds_on or next(iter(request.merges), ""),
    }
    fields |= ({"temporary": "1"} if temporary else {}) | ({TRACE: trace} if trace else {})
    if isinstance(request.workspace, ArchiveWorkspace):
        fields[UPLOAD] = request.workspace.upload
    if webhook := request.webhook or webhook:
        fields[WEBHOOK] = webhook.to_json()
    if owner:
        fields[OWNER] = owner
    if request.after:
        fields[AFTER] = " ".join(dict.fromkeys(each.id for each in request.after))
    return {"id": id, "hash": sha256(sent.encode()).hexdigest(), "event": capped(event.to_json()), "fields": fields}


def resource(id: str, fields: Mapping[str, str]) -> Delegation:
    """Returns the delegation that a record's fields describe."""
    return Delegation.model_validate(
        {
            "id": id,
            "status": fields["status"],
            "createdAt": fields["created"],
            "startedAt": fields.get("started"),
            "finishedAt": fields.get("finished"),
            "attempt": fields["attempt"],
            "worker": fields.get("worker") or None,
            "owner": fields.get(OWNER) or None,
            "request": json.loads(fields["request"]),
            "effectiveLimits": json.loads(fields["limits"]),
            "progress": json.loads(fields["progress"]) if "progress" in fields else Progress(),
            "diskBytes": int(fields[DISK]) if DISK in fields else None,
            "paused": "paused" in fields and "cancel" not in fields,
            "waitsFor": [] if "result" in fields else (fields.get(AFTER) or "").split(),
            "result": json.loads(fields["result"]) if "result" in fields else None,
        },
        extra="ignore",  # fields of a newer version's request
    )


MAX_KEPT_BYTES = 8 * 1024 * 1024
"""Cap on all artifact versions of one run together; the latest ones are kept first."""


def fields_of(latest: Sequence[Artifact], contents: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Returns the hash's fields. Names contain no slash, so the fields are unambiguous."""
    versions = {artifact.name: str(artifact.version) for artifact in latest}
    return versions | {_field(name, version): content for (name, version), content in contents.items()}


async def kept_artifact(redis: Any, id: str, name: str, version: int | None) -> str:
    """Returns the content of that version, or of the latest. Raises ``NotFound`` with the names that exist."""
    latest = None if "/" in name else await redis.hget(artifacts_key(id), name)
    if latest is None:
        if not await redis.exists(record_key(id)):
            raise not_found(id)
        names = sorted(field for field in await redis.hkeys(artifacts_key(id)) if "/" not in field)
        there = f"it has {', '.join(names)}" if names else "it has none; they are kept when a delegation ends"
        raise NotFound(f"delegation {id} has no artifact {name!r}; {there}")
    wanted = version or int(latest)
    content = await redis.hget(artifacts_key(id), _field(name, wanted))
    if content is None:
        raise NotFound(
            f"version {wanted} of artifact {name!r} of delegation {id} is not kept; the latest is {latest}, and old "
            f"ones are kept as long as all take no more than {MAX_KEPT_BYTES} bytes"
        )
    return content


def _field(name: str, version: int) -> str:
    return f"{name}/{version}"
