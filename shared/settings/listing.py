"""The settings as people read them: each with its variable, its default, the value in force and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import to_json

from ..wire import field_docstrings
from .fields import SettingsFields
from .loading import TABLES, VARIABLES
from .variables import credentials_in

HIDDEN = "(set)"
"""Stands for the value of a secret."""
_SET_BY_THE_STACK = {"local", "temporary", "stack_since"}


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting. ``value`` and ``default`` are TOML values; "" where there is none."""

    variable: str
    table: str | None
    name: str
    value: str
    default: str
    description: str

    @property
    def is_default(self) -> bool:
        return self.value == self.default


def setting_lines(settings: SettingsFields) -> list[SettingLine]:
    """Returns all settings that a person may set, those of tables last. The values of secrets are left out."""
    defaults = SettingsFields()
    lines = [
        SettingLine(
            variable,
            table,
            name,
            HIDDEN if isinstance(value, str) and credentials_in(value) else _toml(value),
            _toml(_value(defaults, table, name)),
            field_docstrings(TABLES[table][1] if table else SettingsFields).get(name, ""),
        )
        for variable, (table, name) in VARIABLES.items()
        if name not in _SET_BY_THE_STACK
        for value in [_value(settings, table, name)]
    ]
    return sorted(lines, key=lambda line: line.table or "")


def as_toml(lines: list[SettingLine]) -> Iterator[str]:
    """Yields a whole deputize.toml: what differs from its default is set, the rest are comments."""
    for table, inside in groupby(lines, lambda line: line.table):
        if table:
            yield f"[{table}]"
        for line in inside:
            yield from (f"# {text}".rstrip() for text in line.description.splitlines())
            shown = f"{line.name} = {line.value or line.default or '...'}"
            yield f"# {shown}" if line.is_default or line.value in ("", HIDDEN) else shown
            yield ""


def _value(settings: SettingsFields, table: str | None, name: str) -> Any:
    return getattr(getattr(settings, table) if table else settings, name)


def _toml(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr) or (value and isinstance(value, list) and isinstance(value[0], SecretStr)):
        return HIDDEN
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(key).decode()} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, BaseModel):
        return _toml(value.model_dump(exclude_none=True))
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return to_json(value, fallback=str).decode()
