"""The models: one protocol (``base.py``), one file an adapter, one line here an adapter.

Adapters are imported when they are opened: the SDK alone takes two seconds, and many processes never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.settings import Settings
from worker.models.base import Model


def _anthropic(name: str, settings: Settings) -> Model:
    from worker.models.anthropic import AnthropicModel

    return AnthropicModel(name, settings.model_endpoint)


def _scripted(path: str, settings: Settings) -> Model:
    from worker.models.scripted import ScriptedModel

    return ScriptedModel.load(path)


MODELS: Mapping[str, Callable[[str, Settings], Model]] = {
    "anthropic": _anthropic,
    "scripted": _scripted,
}


def open_model(name: str, settings: Settings) -> Model:
    """The model of that name: ``scripted``, ``scripted:FILE``, ``anthropic:NAME``, or any NAME the endpoint knows.

    Raises Misconfigured when a script cannot be read. Whether an endpoint knows the model shows at the first reply.
    """
    kind, _, rest = name.partition(":")
    if kind in MODELS and (rest or kind == "scripted"):
        return MODELS[kind](rest, settings)
    return MODELS["anthropic"](name, settings)


async def close_models() -> None:
    """Closes the connections that models of the running loop hold open. Call it before a loop ends."""
    import sys

    if endpoint := sys.modules.get("worker.models.endpoint"):
        await endpoint.close_endpoints()
