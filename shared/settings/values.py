"""Types of settings that may be written as text: lists and paths."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_paths(value: Any) -> Any:
    return [part.strip() for part in value.split(os.pathsep) if part.strip()] if isinstance(value, str) else value


def _parsed_table(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"{path} is nowhere, because this user has no home; set HOME, or an absolute path") from None


def _existing(path: Path) -> Path:
    """Returns an absolute path if it exists below the working directory, because workers may run in another one.

    Others stay relative; the reader looks for them in its own directories.
    """
    path = _expanded(path)
    return path.absolute() if path.exists() else path


COMMA_SEPARATED = BeforeValidator(_split)
"""For a list: a variable contains its entries separated by commas."""
PATHS = BeforeValidator(_split_paths)
"""For a tuple of paths: a variable contains them separated as those of ``PATH`` are."""
TABLE = BeforeValidator(_parsed_table)
"""For a table of tables: a variable contains it as JSON."""
FilePath = Annotated[Path, AfterValidator(_existing)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: _expanded(path).absolute())]


def upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value
