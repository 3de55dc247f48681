"""Rows of `deputize doctor` about secrets. Masking is tried, not assumed."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .findings import Finding

if TYPE_CHECKING:
    from ...shared.settings import Settings

_OF_OTHERS = "ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr"

_MOUNTED = Path("/run/secrets")
"""Where containers find their secrets: their user has to be able to read what is another's."""


class Mask(Protocol):
    """What masks the JSON that a run publishes."""

    def json(self, text: str) -> str: ...


def masking_row(settings: Settings, mask: Mask | None = None) -> Finding:
    """Masks every secret of the settings, and a token known by its shape; by default as workers do."""
    from ...shared.masking import MIN_SECRET, SecretMask

    secrets = settings.secrets
    mask = mask or SecretMask(secrets)
    probes = [*(secret for secret in secrets if len(secret) >= MIN_SECRET), _OF_OTHERS]
    for probe in probes:
        encoded = base64.b64encode(f"x {probe}".encode()).decode() if probe != _OF_OTHERS else probe
        event = mask.json(json.dumps({"text": f"a {probe} b", "encoded": encoded}))
        if probe in event or encoded in event:
            detail = "a secret of these settings was not masked in an event"
            return Finding("✗", "masking", detail, "run no service before this is mended, and report it")
    if len(probes) - 1 < len(secrets):
        detail = f"a secret has fewer than {MIN_SECRET} characters, so it is not masked: it could be any word"
        return Finding("!", "masking", detail, "use a longer one")
    detail = f"{len(secrets)} values of these settings were masked in an event, and a token known by its shape"
    return Finding("✓", "masking", detail)


def key_rows(mounted: Path = _MOUNTED) -> Iterator[Finding]:
    """Yields where keys are kept, if there are any. Files in ``mounted`` that are not ours are as they have to be."""
    from ...shared.settings.loading import secret_variables
    from ...shared.settings.variables import environment

    environ = environment()
    exposed = [name for name in secret_variables() if environ.get(name, "").strip()]
    files = {name: path for name in secret_variables() if (path := environ.get(f"{name}_FILE", "").strip())}
    if opened := [name for name, path in files.items() if _is_open(Path(path), mounted)]:
        paths = " ".join(files[name] for name in opened)
        yield Finding("!", "keys", f"other users may read the file of {', '.join(opened)}", f"chmod 600 {paths}")
    if exposed:
        detail = f"{', '.join(exposed)} in the environment, which every program started from here inherits"
        yield Finding("✓", "keys", f"{detail}; a file named by {exposed[0]}_FILE is more private")
    elif files and not opened:
        yield Finding("✓", "keys", f"from files: {', '.join(files)}")


def _is_open(path: Path, mounted: Path) -> bool:
    """Whether other users may read a file whose mode is ours to change."""
    found = path.stat()
    is_ours = found.st_uid == os.geteuid() or not path.is_relative_to(mounted)
    return is_ours and bool(found.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
