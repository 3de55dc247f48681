"""Settings. They are in ``fields.py``, and those of the sandbox in ``sandbox.py``; ``loading.py`` reads them."""

from .fields import (
    CAPS,
    AgentSettings,
    RedisSettings,
    SpendSettings,
    SpendWindows,
    ToolSettings,
)
from .loading import Settings
from .models import ModelPrice, ModelSettings
from .sandbox import SandboxSettings
from .variables import environment, header_pairs, secrets_of

__all__ = [
    "CAPS",
    "AgentSettings",
    "ModelPrice",
    "ModelSettings",
    "RedisSettings",
    "SandboxSettings",
    "Settings",
    "SpendSettings",
    "SpendWindows",
    "ToolSettings",
    "environment",
    "header_pairs",
    "secrets_of",
]
