"""The images as their Dockerfiles make them, of what this machine has.

The base image is Debian's smallest system and Python. What else a Dockerfile installs it names, and so do the
packages here; no other program is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.containers.confined import Mount
from tests.processes.ordinary_user import SOURCE

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/libexec", "/usr/lib/git-core")
"""Where programs lie that only some images have."""
_BASE = r"${Package} ${Essential} ${Priority}\n"


@dataclass(frozen=True)
class Image:
    """What a Dockerfile sets for its containers."""

    uid: int
    gid: int
    cwd: str
    environ: dict[str, str]
    entrypoint: list[str]
    command: list[str]
    packages: list[str]
    """Those of Debian that it installs."""


@cache
def image(role: str) -> Image:
    """The image of ``orchestrator`` or ``worker``, by the last stage of its Dockerfile."""
    text = (ROOT / role / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    last = text.rpartition("\nFROM ")[2]
    uid, gid = re.findall(r"^USER (\d+):(\d+)$", last, re.MULTILINE)[-1]
    (cwd,) = re.findall(r"^WORKDIR (\S+)$", last, re.MULTILINE)
    variables = dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", last, re.MULTILINE))))
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", last, re.MULTILINE)
    installed = " ".join(re.findall(r"apt-get install ([^&]*)", last)).split()
    packages = [each for each in installed if not each.startswith("-")]
    return Image(int(uid), int(gid), cwd, variables, _words(entrypoint), _words(command), packages)


def _words(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', text)


def need_packages() -> None:
    """Skips where the packages of this machine are not Debian's; in CI that fails."""
    if not shutil.which("dpkg-query"):
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail("SKIPPED: without dpkg-query it is unknown which programs belong to which package")


def files(packages: tuple[str, ...], folder: Path) -> list[Mount]:
    """The file system of an image with these packages beside the base's. ``folder`` keeps what has to be made."""
    mounts = [Mount("/usr", "/usr", True)]
    programs = _programs(packages)
    for number, place in enumerate(_FOLDERS):
        if not os.path.lexists(place):
            continue
        own = folder / f"{number}{place.replace('/', '-')}"
        if not own.exists():
            _keep(Path(place), own, programs)
        mounts.append(Mount(str(own), place, True))
    source = folder / "source"
    if not source.exists():
        source.mkdir(mode=0o755)
        command = [
            "cp",
            "-a",
            "--no-preserve=mode,ownership",
            *(each for each in SOURCE if each != "tests"),
            str(source),
        ]
        subprocess.run(command, cwd=ROOT, check=True)
    mounts += [Mount(str(path), str(ROOT / path.name), True) for path in source.iterdir()]
    mounts.append(Mount(str(ROOT / ".venv"), str(ROOT / ".venv"), True))
    base = Path(sys.base_prefix).resolve()
    return mounts if base.is_relative_to("/usr") else [*mounts, Mount(str(base), str(base), True)]


@cache
def _programs(packages: tuple[str, ...]) -> frozenset[str]:
    """The paths of all programs that an image has."""
    shown = subprocess.run(["dpkg-query", "-W", "-f", _BASE], capture_output=True, text=True, check=True).stdout
    base = [line.split()[0] for line in shown.splitlines() if {"yes", "required"} & {*line.split()[1:]}]
    listed = subprocess.run(
        ["dpkg-query", "-L", *base, *packages], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = {os.path.realpath(Path(path).parent) + "/" + Path(path).name for path in listed}
    interpreter = Path(sys.base_prefix).resolve() / "bin"
    found |= {str(path) for path in interpreter.glob("python3*")}
    return frozenset(found | {f"/usr/bin/{name}" for name in ("awk", "which")})


def _keep(place: Path, own: Path, programs: frozenset[str]) -> None:
    """Copies the programs of a folder that the image has."""
    own.mkdir(mode=0o755)
    for path in place.iterdir():
        is_kept = str(path) in programs
        if path.is_symlink():
            if is_kept:
                (own / path.name).symlink_to(path.readlink())
        elif is_kept and path.is_dir():
            shutil.copytree(path, own / path.name, symlinks=True)
        elif is_kept:
            shutil.copy2(path, own / path.name)
