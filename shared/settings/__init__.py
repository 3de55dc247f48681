"""Settings. They are in ``fields.py``, and those of the sandbox in ``sandbox.py``; ``loading.py`` reads them."""

from deputize.shared.settings.fields import (
    CAPS,
    AgentSettings,
    ModelPrice,
    SpendSettings,
    ToolSettings,
)
from deputize.shared.settings.loading import Settings
from deputize.shared.settings.model_endpoint import header_pairs, secrets_of
from deputize.shared.settings.redis import RedisSettings
from deputize.shared.settings.sandbox import SandboxSettings
from deputize.shared.settings.variables import environment

__all__ = [
    "CAPS",
    "AgentSettings",
    "ModelPrice",
    "RedisSettings",
    "SandboxSettings",
    "Settings",
    "SpendSettings",
    "ToolSettings",
    "environment",
    "header_pairs",
    "secrets_of",
]
