"""Settings. All of them are in ``fields.py``; ``loading.py`` reads them."""

from shared.settings.fields import CAPS, ToolSettings
from shared.settings.loading import Settings
from shared.settings.model_endpoint import header_pairs, header_values
from shared.settings.variables import environment

__all__ = ["CAPS", "Settings", "ToolSettings", "environment", "header_pairs", "header_values"]
