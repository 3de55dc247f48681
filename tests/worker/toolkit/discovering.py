"""Discovery commands of tests, and the tools that they announce."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deputize.shared.settings import ToolSettings
from deputize.worker.toolkit.discovery import Discovery
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool
from tests.toolbench import Toolbench

GREET = {
    "name": "greet",
    "description": "Greets somebody.",
    "parameters": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
}

CALLS = """
case "$1" in
  greet) printf 'hello '; cat ;;
  fail) echo half; echo "no such thing" >&2; exit 3 ;;
  grumble) echo done; echo "but I grumble" >&2 ;;
  whisper) echo "DeprecationWarning: x" >&2 ;;
  die) kill -9 $$ ;;
  store) cat > stored.json ;;
esac
"""


def settings(discovery: str = "cat tools.json", calling: str = "sh calls.sh", **fields: Any) -> ToolSettings:
    return ToolSettings(discovery_command=discovery, call_command=calling, **fields)


def announce(folder: Path, *declarations: Any) -> None:
    """Makes a folder in which the commands of ``settings`` find these tools."""
    folder.mkdir(exist_ok=True)
    (folder / "tools.json").write_text(json.dumps(declarations))
    (folder / "calls.sh").write_text(CALLS)


def place(desk: Toolbench, warn: Callable[[str], None], patterns: Sequence[str] | None = None) -> ToolSourceContext:
    return ToolSourceContext("dlg_01k00000000000000000000000", patterns, desk.files, desk.sandbox, warn)


async def found(desk: Toolbench, chosen: ToolSettings, patterns: Sequence[str] | None = None) -> tuple[Any, list[str]]:
    """The discovered tools by name, and what was warned of."""
    warnings: list[str] = []
    async with Discovery(chosen, BUILTIN).open(place(desk, warnings.append, patterns)) as tools:
        return {tool.name: tool for tool in tools}, warnings


async def announced(desk: Toolbench, *declarations: Any) -> tuple[dict[str, AnyTool], list[str]]:
    desk.write("tools.json", json.dumps(declarations))
    desk.write("calls.sh", CALLS)
    return await found(desk, settings())
