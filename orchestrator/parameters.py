"""The types of operations' parameters: what a value has to meet, the same over HTTP and in Python."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from ..shared.ids import ID
from ..shared.request import MAX_NAME
from ..shared.runs.cost import check_group
from .audit_log import CURSOR

MAX_SEQ = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""


def spelled(pattern: re.Pattern[str], what: str) -> AfterValidator:
    """Returns a validator for ``what``: texts that match the pattern as a whole."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"is not {what}")
        return text

    return AfterValidator(check)


DelegationId: TypeAlias = Annotated[str, Field(max_length=MAX_NAME), spelled(ID, "the id of a delegation")]
Cursor: TypeAlias = Annotated[str, Field(max_length=MAX_NAME), spelled(ID, "the nextCursor of a page")]
AuditCursor: TypeAlias = Annotated[str, Field(max_length=64), spelled(CURSOR, "the nextCursor of a page")]
Name: TypeAlias = Annotated[str, Field(max_length=MAX_NAME)]
PageSize: TypeAlias = Annotated[int, Field(ge=1, le=500)]
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]
Positive: TypeAlias = Annotated[int, Field(ge=1)]
Position: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SEQ)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bytes: TypeAlias = Annotated[int, Field(ge=0, le=2**63)]
Group: TypeAlias = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(check_group)]
Reason: TypeAlias = Annotated[str, Field(max_length=2000)]
