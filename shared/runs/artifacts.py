"""The artifacts of an ended run: one hash that maps a name to its latest version, and name and version to content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..delegation import Artifact
from ..errors import NotFound
from .keys import artifacts_key, record_key
from .record import not_found

MAX_KEPT_BYTES = 8 * 1024 * 1024
"""Cap on all artifact versions of one run together; the latest ones are kept first."""


def fields_of(latest: Sequence[Artifact], contents: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Returns the hash's fields. Names contain no slash, so the fields are unambiguous."""
    versions = {artifact.name: str(artifact.version) for artifact in latest}
    return versions | {_field(name, version): content for (name, version), content in contents.items()}


async def kept_artifact(redis: Any, id: str, name: str, version: int | None) -> str:
    """Returns the content of that version, or of the latest. Raises ``NotFound`` with the names that exist."""
    latest = None if "/" in name else await redis.hget(artifacts_key(id), name)
    if latest is None:
        raise await _unknown(redis, id, name)
    wanted = version or int(latest)
    content = await redis.hget(artifacts_key(id), _field(name, wanted))
    if content is None:
        raise NotFound(
            f"version {wanted} of artifact {name!r} of delegation {id} is not kept; the latest is {latest}, and old "
            f"ones are kept as long as all take no more than {MAX_KEPT_BYTES} bytes"
        )
    return content


async def _unknown(redis: Any, id: str, name: str) -> NotFound:
    if not await redis.exists(record_key(id)):
        return not_found(id)
    names = sorted(field for field in await redis.hkeys(artifacts_key(id)) if "/" not in field)
    there = f"it has {', '.join(names)}" if names else "it has none; they are kept when a delegation ends"
    return NotFound(f"delegation {id} has no artifact {name!r}; {there}")


def _field(name: str, version: int) -> str:
    return f"{name}/{version}"
