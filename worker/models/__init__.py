"""Model providers: the protocol is ``base.py``; a provider is one file and one line of ``MODELS``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from .base import Model

if TYPE_CHECKING:
    from ...shared.settings import Settings

MODELS: Mapping[str, str] = {
    "anthropic": "deputize.worker.models.anthropic:AnthropicModel",
    "scripted": "deputize.worker.models.scripted:ScriptedModel",
}
"""Import path of the class for each kind. Imported on demand, because importing an HTTP client is slow."""


def open_model(name: str, settings: Settings) -> Model:
    """Returns the model ``scripted``, ``scripted:FILE``, ``anthropic:NAME``, that of a table NAME, or the endpoint's.

    Raises Misconfigured for a script that cannot be read, and for a table that cannot be used. An unknown model name
    fails at the first reply.
    """
    kind, _, argument = name.partition(":")
    if name in settings.models or kind not in MODELS or (kind == "anthropic" and not argument):
        kind, argument = "anthropic", name
    module, _, class_name = MODELS[kind].partition(":")
    return getattr(import_module(module), class_name).open(argument, settings)


async def close_models() -> None:
    """Closes the model connections of the running event loop. Must be called before the loop is closed."""
    if endpoint := sys.modules.get("deputize.worker.models.endpoint"):
        await endpoint.close_endpoints()
