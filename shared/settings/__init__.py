"""Settings. All of them are in ``fields.py``; ``loading.py`` reads them."""

from deputize.shared.settings.fields import (
    CAPS,
    AgentSettings,
    ModelPrice,
    SandboxSettings,
    SpendSettings,
    ToolSettings,
)
from deputize.shared.settings.loading import Settings
from deputize.shared.settings.model_endpoint import header_pairs, header_values
from deputize.shared.settings.variables import environment

__all__ = [
    "CAPS",
    "AgentSettings",
    "ModelPrice",
    "SandboxSettings",
    "Settings",
    "SpendSettings",
    "ToolSettings",
    "environment",
    "header_pairs",
    "header_values",
]
