"""The models: one protocol (``base.py``), one file an adapter, one line here an adapter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module

from shared.settings import Settings
from worker.models.base import Model

MODELS: Mapping[str, str] = {
    "anthropic": "worker.models.anthropic:AnthropicModel",
    "scripted": "worker.models.scripted:ScriptedModel",
}
"""Kind → where its class is. Imported when opened: the SDK alone takes two seconds, and most processes need none."""


def open_model(name: str, settings: Settings) -> Model:
    """The model of that name: ``scripted``, ``scripted:FILE``, ``anthropic:NAME``, or any NAME the endpoint knows.

    Raises Misconfigured when a script cannot be read. Whether an endpoint knows the model shows at the first reply.
    """
    kind, _, rest = name.partition(":")
    if kind not in MODELS or (kind == "anthropic" and not rest):
        kind, rest = "anthropic", name
    module, _, adapter = MODELS[kind].partition(":")
    return getattr(import_module(module), adapter).open(rest, settings)


async def close_models() -> None:
    """Closes the connections that models of the running loop hold open. Call it before a loop ends."""
    if endpoint := sys.modules.get("worker.models.endpoint"):
        await endpoint.close_endpoints()
