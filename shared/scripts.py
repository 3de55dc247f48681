"""Scripts in a model's place are files of the worker's: whoever hands over work may not name any file as one."""

from __future__ import annotations

from pathlib import Path

from shared.settings import Settings

PREFIX = "scripted:"


def foreign_script(model: str | None, settings: Settings) -> str | None:
    """Why a request may not name this model; None where it may."""
    if model is None or model == settings.model or not model.startswith(PREFIX) or model == PREFIX:
        return None
    try:
        named = Path(model.removeprefix(PREFIX)).resolve()
        if settings.scripts is not None and named.is_relative_to(settings.scripts.resolve()):
            return None
    except (OSError, ValueError, RuntimeError):  # no path at all, or one that leads to itself
        pass
    return "a request may not name a script; the operator's settings do, by DEPUTIZE_MODEL or DEPUTIZE_SCRIPTS"
