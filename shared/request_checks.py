"""Request checks that apply to every caller: size caps, and no scripts other than the operator's."""

from __future__ import annotations

from pathlib import Path

from .errors import TooLarge
from .request import MAX_REQUEST_BYTES, MAX_TEXT_BYTES, DelegationRequest
from .settings import Settings

PREFIX = "scripted:"


def check_sizes(request: DelegationRequest) -> None:
    """Raises ``TooLarge`` for a request over one of the caps (UTF-8 bytes)."""
    text = sum(len(each.encode()) for each in (request.task, request.context, request.system_prompt or ""))
    if text > MAX_TEXT_BYTES:
        words = "task, context and systemPrompt" if request.system_prompt else "task and context"
        raise TooLarge(f"{words} are {text:,} bytes together; the cap is {MAX_TEXT_BYTES:,}")
    whole = len(request.to_json().encode())
    if whole > MAX_REQUEST_BYTES:
        raise TooLarge(f"the request is {whole:,} bytes; the cap is {MAX_REQUEST_BYTES:,}")


def foreign_script(model: str | None, settings: Settings) -> str | None:
    """Returns why a request may not name this model, or None if it may."""
    if model is None or model == settings.model or not model.startswith(PREFIX) or model == PREFIX:
        return None
    try:
        named = Path(model.removeprefix(PREFIX)).resolve()
        if settings.scripts is not None and named.is_relative_to(settings.scripts.resolve()):
            return None
    except (OSError, ValueError, RuntimeError):  # not a path, or a symbolic link to itself
        pass
    return "a request may not name a script; the operator's settings do, by DEPUTIZE_MODEL or DEPUTIZE_SCRIPTS"
