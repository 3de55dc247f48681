"""``${VAR}`` in an mcp.json: what other clients write, understood in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shared.errors import Misconfigured

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expanded(value: Any, variables: Mapping[str, str], places: Mapping[str, str]) -> Any:
    """The value with ``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}`` replaced in all its texts, however deep.

    ``places`` are names that are no variables, such as ``workspaceFolder``. Raises ``Misconfigured`` that names a
    variable which is not set: a server that got the literal text instead would fail in ways nobody understands.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _meant(found[1], variables, places), value)
    if isinstance(value, list):
        return [expanded(part, variables, places) for part in value]
    if isinstance(value, dict):
        return {name: expanded(part, variables, places) for name, part in value.items()}
    return value


def _meant(inside: str, variables: Mapping[str, str], places: Mapping[str, str]) -> str:
    if inside.startswith("input:"):
        raise Misconfigured(
            f"${{{inside}}} asks a person, and here is nobody to ask; write ${{VARIABLE}} and set it for the worker"
        )
    if inside in places:
        return places[inside]
    name, has_default, default = inside.removeprefix("env:").partition(":-")
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"${{{inside}}} is not understood; there are ${{VAR}}, ${{VAR:-default}} and ${{env:VAR}}")
    if value := variables.get(name):
        return value
    if has_default:
        return default
    if name in variables:
        return ""
    raise Misconfigured(f"the variable {name} is not set; set it for the worker, or write ${{{name}:-default}}")
