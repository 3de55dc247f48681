"""Files that a git host executes, or takes orders from, once a branch that has them is pushed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def _pattern() -> re.Pattern[str]:
    known = tomllib.loads(Path(__file__).with_name("executed_files.toml").read_text("utf-8"))
    folders = "|".join(map(re.escape, known["folders"]))
    return re.compile(rf"(?:{folders})(?:/.*)?|{'|'.join(known['files'])}", re.DOTALL)


def run_by_hosts(paths: Iterable[str]) -> list[str]:
    """Returns those of the paths that a git host may act upon; letters of both cases count alike."""
    return [path for path in paths if _pattern().fullmatch(path.lower())]
