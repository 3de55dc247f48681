"""``[triggers.NAME]``: which signed deliveries of other services begin work, and as what.

A template names its places by JSON pointers. What is there becomes text of the task or its context; every other field
of the request is the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..errors import Misconfigured
from ..request import DelegationRequest
from ..webhooks import parsed_secret
from ..wire import explain
from .files import secret_bytes
from .variables import AbsolutePath

ANYONE = "*"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PLACE = re.compile(r"\{(/[^{}\s]*)\}")
"""A pointer into the delivery's body, in a template."""
_LEAST_SECRET = 16
"""Bytes: a shorter secret, or a blank line, can be guessed."""
_DECIDED = {
    *("task", "context", "shared_context_length", "parent_id", "idempotency_key", "continues", "retry_of"),
    *("from_turn", "merges", "after"),
}
"""Fields of a request that belong into no table: the trigger makes them, or they name other delegations."""


def _pointer(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"{text[:100]!r} is not a JSON pointer, such as /sender/login")
    return text


def _request(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        made = DelegationRequest.model_validate({"task": "-", **fields})
    except ValidationError as error:
        mistakes = explain(error, DelegationRequest)
        raise ValueError("; ".join(f"{each['pointer'].lstrip('/')}: {each['detail']}" for each in mistakes)) from None
    given = made.model_fields_set if "task" in fields else made.model_fields_set - {"task"}
    if foreign := sorted(given & _DECIDED):
        raise ValueError(f"{foreign[0]} is not a field of this table: it follows from the table")
    return fields


def _texts(value: Any) -> list[str]:
    """Returns values as the texts that they have in JSON."""
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not listed or not all(isinstance(each, str | bool | int) for each in listed):
        raise ValueError("is a text, a number, true or false, or a list of these")
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in listed]


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text[:100]!r} cannot be the name of a table: letters, digits, and . _ - between them")
    return text


TableName = Annotated[str, AfterValidator(_name)]
"""A name that can be a part of a path."""
Pointer = Annotated[str, AfterValidator(_pointer)]
RequestTable = Annotated[dict[str, Any], AfterValidator(_request)]
"""Fields of a request that are the operator's."""


class TriggerSettings(BaseModel):
    """One endpoint for deliveries, ``POST /v1/triggers/NAME``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: Literal["github", "gitlab", "standard", "token"]
    """How a delivery is verified. ``standard``: Standard Webhooks; ``token``: a token with the scope ``submit``."""
    secret_file: AbsolutePath | None = None
    """One secret a line; each is accepted, so that one can be exchanged. Only its user may read the file."""
    owner: str = Field(default="", pattern=rf"^({NAME.pattern})?$")
    """Whose the delegations are; "" is the owner of the main token."""
    kind: Literal["start", "continue"] = "start"
    """``continue``: a message to the delegation with the same ``key``, or a continuation where it has ended."""
    author: Pointer | None = None
    """Where the name of the delivery's author is."""
    allowed: list[str] = []
    """Authors whose deliveries begin work, compared exactly with case; ``["*"]``: everyone who can cause a delivery."""
    when: dict[Pointer, Any] = {}
    """Further values that a delivery needs, by pointer: a value, or a list of which it is one."""
    task: str = Field(min_length=1)
    """What to do; ``{/issue/title}`` stands for what the body has there."""
    context: str = ""
    key: str | None = None
    """What work is about, such as ``{/repository/full_name}#{/issue/number}``: later deliveries find it by this."""
    request: RequestTable = {}
    """The other fields of the request."""

    @field_validator("when")
    @classmethod
    def _wanted(cls, when: dict[str, Any]) -> dict[str, list[str]]:
        return {pointer: _texts(value) for pointer, value in when.items()}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.scheme == "token") == (self.secret_file is not None):
            raise ValueError("secret_file holds the secrets of github, gitlab and standard; a token needs none")
        if self.author is None and self.allowed not in ([], [ANYONE]):
            raise ValueError("author is missing: the pointer to the name that has to be among the allowed ones")
        if ANYONE in self.allowed and len(self.allowed) > 1:
            raise ValueError('allowed has "*" beside names: it is everyone, or a list of names')
        if self.kind == "continue" and not self.key:
            raise ValueError("key is missing: it names what a delivery goes on with")
        if self.kind == "continue" and self.request:
            raise ValueError("request has no effect: a continuation has the request of what it goes on with")
        return self

    def secrets(self, name: str) -> list[bytes]:
        """Returns the secrets: keys of ``whsec_…``, other lines as they are.

        Raises Misconfigured where the file is missing, others may read it, or a line is too short or wrong.
        """
        if self.secret_file is None:
            return []
        place = f"triggers.{name}.secret_file"
        lines = [line.strip() for line in secret_bytes(self.secret_file, place).splitlines()]
        found = [line for line in lines if line]
        if not found or min(map(len, found)) < _LEAST_SECRET:
            raise Misconfigured(f"{place}: {self.secret_file} needs secrets of at least {_LEAST_SECRET} bytes")
        try:
            return [key_of(line) if self.scheme == "standard" else line for line in found]
        except ValueError as error:
            raise Misconfigured(f"{place}: a line of {self.secret_file} {error}") from None


def key_of(line: bytes) -> bytes:
    """Returns the key of a line ``whsec_…``. Raises ValueError."""
    return parsed_secret(line.decode("latin-1"))[1]


def secret_files(tables: Mapping[str, TriggerSettings]) -> Iterator[Path]:
    """Yields the files of secrets."""
    yield from (table.secret_file for table in tables.values() if table.secret_file)
