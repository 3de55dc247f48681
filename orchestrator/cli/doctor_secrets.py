"""Rows of `deputize doctor` about secrets. Each protection is tried, not assumed."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deputize.orchestrator.cli.findings import Finding

if TYPE_CHECKING:
    from deputize.shared.settings import Settings

_OF_OTHERS = "ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr"
_IS_PRIVATE = (
    "import ctypes; from deputize.shared.libc import keep_memory_private; keep_memory_private(); "
    "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
)


def secret_checks(settings: Settings) -> Iterator[Finding]:
    """Yields the rows: masking, where keys are kept, and whether memory and environment are private."""
    yield _masking(settings)
    yield from _keys()
    yield _memory()


def _masking(settings: Settings) -> Finding:
    from deputize.shared.masking import MIN_SECRET, SecretMask

    secrets = settings.secrets
    mask = SecretMask(secrets)
    probes = [*(secret for secret in secrets if len(secret) >= MIN_SECRET), _OF_OTHERS]
    for probe in probes:
        encoded = base64.b64encode(f"x {probe}".encode()).decode() if probe != _OF_OTHERS else probe
        event = mask.json(json.dumps({"text": f"a {probe} b", "encoded": encoded}))
        if probe in event or encoded in event:
            return Finding("✗", "masking", "a secret of these settings was not masked in an event", "report this")
    if len(probes) - 1 < len(secrets):
        detail = f"a secret has fewer than {MIN_SECRET} characters, so it is not masked: it could be any word"
        return Finding("!", "masking", detail, "use a longer one")
    detail = f"{len(secrets)} values of these settings were masked in an event, and a token known by its shape"
    return Finding("✓", "masking", detail)


def _keys() -> Iterator[Finding]:
    from deputize.shared.settings.loading import secret_variables
    from deputize.shared.settings.variables import environment

    environ = environment()
    exposed = [name for name in secret_variables() if environ.get(name, "").strip()]
    files = {name: path for name in secret_variables() if (path := environ.get(f"{name}_FILE", "").strip())}
    if opened := [name for name, path in files.items() if Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]:
        paths = " ".join(files[name] for name in opened)
        yield Finding("!", "keys", f"other users may read the file of {', '.join(opened)}", f"chmod 600 {paths}")
    if exposed:
        detail = f"{', '.join(exposed)} in the environment, which every program started from here inherits"
        yield Finding("!", "keys", detail, f"put it into a file, and its path into {exposed[0]}_FILE")
    elif files and not opened:
        yield Finding("✓", "keys", f"from files: {', '.join(files)}")


def _memory() -> Finding:
    command = [sys.executable, "-P", "-c", _IS_PRIVATE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stdout.strip() == "0":
        return Finding("✓", "memory", "other programs of this user cannot read that of our processes, nor their keys")
    remedy = "run workers as a user that runs nothing else"
    return Finding("!", "memory", "programs of this user can read that of our processes, and the keys in it", remedy)
