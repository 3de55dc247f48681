"""Skills for tests, written where a test wants them."""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def write_skill(
    top: Path, name: str, /, text: str = "Do it well.", files: Mapping[str, str | bytes] | None = None, **head: Any
) -> Path:
    """A skill's folder below ``top``; ``head`` adds to, or with None takes away from, what a good head has."""
    folder = top / name
    fields = {"name": name.rpartition("/")[2], "description": f"How {name} is done."} | head
    lines = [f"{key}: {json.dumps(value)}" for key, value in fields.items() if value is not None]
    for path, content in {"SKILL.md": "\n".join(["---", *lines, "---", text]), **(files or {})}.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@cache
def sample_skills() -> Path:
    """A directory with a skill that has files, and one that has much to say; gone with the process."""
    folder = tempfile.TemporaryDirectory(prefix="skills-")
    weakref.finalize(sample_skills, folder.cleanup)  # holds it, and lets it go at the process's end
    top = Path(folder.name)
    write_skill(top, "release-notes", "Read references/style.md first.", {"references/style.md": "Be brief.\n"})
    rules = {f"rules/{number}.md": "A rule." for number in range(300)}
    write_skill(top, "long-guide", "One more rule of many.\n" * 20_000, rules)
    return top
