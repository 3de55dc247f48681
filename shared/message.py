"""Messages to a delegation that is under way: what its model is to read before its next turn, or that it is to end."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from .errors import Invalid, TooLarge
from .ids import new_id
from .wire import Request, Timestamp, Wire, now

MAX_MESSAGE_BYTES = 16 * 1024
"""Bytes of a message's text in UTF-8."""
MAX_UNREAD = 20
"""Messages of one delegation that its model has not read yet."""


NO_TEXT = "a message needs a text; only with the mode wrapUp it may be left out"


class MessageMode(StrEnum):
    STEER = "steer"
    """The model reads it before its next turn."""
    WRAP_UP = "wrapUp"
    """The work ends: no further tool calls, and one last turn for the report."""


class MessageRequest(Request):
    """A message to a delegation that is not finished."""

    text: str = ""
    """The text for the model, at most 16 KiB; not blank, except with the mode ``wrapUp``."""
    mode: MessageMode = MessageMode.STEER
    """``steer``: read before the next turn. ``wrapUp``: no further tool calls, one last turn for the report."""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.mode is MessageMode.STEER and not self.text.strip():
            raise ValueError(NO_TEXT)
        return self


class SentMessage(Wire):
    """A message that was accepted; the event ``message_read`` with its id is the receipt."""

    message_id: str
    """The id that the event ``message_read`` refers to."""


class Message(SentMessage):
    """A message as it is kept."""

    text: str = ""
    """The text for the model."""
    mode: MessageMode = MessageMode.STEER
    """Whether the model reads it before its next turn, or is to end its work."""
    by: str | None = None
    """The name of the sender's token; null where no token is required."""
    at: Timestamp
    """When it was accepted."""

    @classmethod
    def new(cls, text: str, mode: MessageMode, by: str | None = None) -> Self:
        """Returns a message that is sent now. Raises ``TooLarge``, and Invalid without one where it needs one."""
        if mode is MessageMode.STEER and not text.strip():
            raise Invalid.of([{"pointer": "/text", "detail": NO_TEXT}])
        if (size := len(text.encode())) > MAX_MESSAGE_BYTES:
            raise TooLarge(f"the text has {size:,} bytes, over {MAX_MESSAGE_BYTES:,}; put long material into a file")
        return cls(message_id=new_id("msg"), text=text if text.strip() else "", mode=mode, by=by, at=now())
