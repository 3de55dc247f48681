"""The servers that tests start, and their entries for mcp.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SERVERS = Path(__file__).parent


def raw(*quirks: str, **more: Any) -> dict[str, Any]:
    """The raw server, in the sandbox unless ``more`` has another one."""
    return {"command": "python3", "args": ["-SE", str(SERVERS / "raw.py"), *quirks], "show": [str(SERVERS)], **more}
