"""Task folders of Harbor (`task.toml`, `instruction.md`, `environment/`, `tests/`) as requests, without a container.

The files of `environment` are the workspace, and `tests/test.sh` is a hidden check: it succeeds where it writes the
reward 1. The absolute paths of a container (`/app`, `/tests`, `/logs/verifier`) become paths below the workspace. The
format was read in the package harbor 0.26.0.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...shared.errors import Invalid
from ...shared.text import clip

_PLACE = ".harbor"
_DOCKERFILE = "Dockerfile"
_CONTAINER_FILES = ("docker-compose.yaml", "docker-compose.yml", "singularity-compose.yaml")
_CONTAINER_KEYS = ("docker_image", "gpus", "tpu", "mcp_servers", "healthcheck", "env", "skills_dir")
_HARMLESS = {"FROM", "WORKDIR", "LABEL", "ARG", "MAINTAINER", "CMD"}
"""Instructions of a Dockerfile that add no file and no program."""
_FETCHES = re.compile(r"^[^#\n]*\b(apt|apt-get|apk|curl|wget|uvx|uv|pip3?|npm|npx)\b", re.MULTILINE)
_CANARY = re.compile(r"\A(?:\s*(?:<!--.*canary.*-->|#.*canary.*)\n)+", re.IGNORECASE)
"""Lines that mark benchmark files for those who collect texts; Harbor does not show them either."""
_SHOWN = 10
"""How many problems of a folder are named."""
_WHAT_NEXT = "Run it with Harbor itself, or make a task of it whose programs and files are on this machine"


def harbor_lines(folder: Path) -> bytes:
    """Returns the tasks of a folder, or of the folders in it, as JSON lines. Raises Invalid with the problems."""
    places = [folder] if _is_task(folder) else sorted(each for each in folder.iterdir() if _is_task(each))
    if not places:
        raise Invalid(f"{folder} has no task.toml, and no folder in it has one; give a folder of Harbor's tasks")
    problems, lines = list[str](), list[str]()
    for place in places:
        try:
            lines.append(json.dumps(_Task.read(place).request()))
        except (ValueError, OSError) as error:
            problems.append(f"{place}: {error}")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise Invalid(f"{'; '.join(problems[:_SHOWN])}{more}. {_WHAT_NEXT}.")
    return "\n".join(lines).encode()


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file()


@dataclass(frozen=True)
class _Task:
    """One folder. Raises ValueError and OSError for what cannot be done here."""

    folder: Path
    config: Mapping[str, Any]
    workdir: str

    @classmethod
    def read(cls, folder: Path) -> _Task:
        config = tomllib.loads((folder / "task.toml").read_text("utf-8"))
        workdir = _section(config, "environment").get("workdir") or _workdir(folder / "environment") or "/app"
        task = cls(folder, config, str(PurePosixPath(workdir)))
        if problem := next(task._problems(), None):
            raise ValueError(problem)
        return task

    def request(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "task": self._local(_CANARY.sub("", (self.folder / "instruction.md").read_text("utf-8")).strip(), ""),
            "workspace": self._workspace(),
            "verify": [self._check(), {"kind": "unchanged", "paths": [f"{_PLACE}/**"]}],
            "labels": {"harbor": str(_section(self.config, "task").get("name") or self.folder.resolve().name)},
        }
        seconds = _section(self.config, "agent").get("timeout_sec")
        return asked | ({"limits": {"timeoutSeconds": seconds}} if seconds else {})

    def _workspace(self) -> dict[str, Any]:
        environment = self.folder / "environment"
        if not environment.is_dir() or {each.name for each in environment.iterdir()} <= {_DOCKERFILE}:
            return {"kind": "empty"}
        return {"kind": "directory", "path": str(environment.resolve()), "exclude": [f"/{_DOCKERFILE}"]}

    def _check(self) -> dict[str, Any]:
        verifier, tests = _section(self.config, "verifier"), self.folder / "tests"
        files = {
            f"{_PLACE}/tests/{path.relative_to(tests).as_posix()}": self._local(path.read_text("utf-8"), "./")
            for path in sorted(tests.rglob("*"))
            if path.is_file()
        }
        variables = [f"{name}={shlex.quote(str(value))}" for name, value in verifier.get("env", {}).items()]
        reward = f"{_PLACE}/verifier/reward.txt"
        run = " ".join(["env", *variables, "bash", f"{_PLACE}/tests/test.sh"])
        line = f"mkdir -p {_PLACE}/verifier; rm -f {reward}; {run}; grep -Eqx '1(\\.0*)?' {reward}"
        return {"kind": "command", "run": line, "files": files, "timeoutSeconds": verifier.get("timeout_sec", 600)}

    def _local(self, text: str, here: str) -> str:
        """Returns a text with paths below the workspace in the place of those of a container."""
        moved = {"/tests": f"{_PLACE}/tests", "/logs/verifier": f"{_PLACE}/verifier"}
        for absolute, relative in moved.items():
            text = re.sub(rf"(?<![\w/.~-]){absolute}(?![\w.-])", relative, text)
        text = re.sub(rf"(?<![\w/.~-]){re.escape(self.workdir)}/", here, text)
        return re.sub(rf"(?<![\w/.~-]){re.escape(self.workdir)}(?![\w.-])", ".", text)

    def _problems(self) -> Iterator[str]:
        """Yields what needs a container, a network or more than one run."""
        if self.config.get("steps"):
            yield "it has several steps, and a run here is one"
        yield from self._container()
        verifier, script = _section(self.config, "verifier"), self.folder / "tests" / "test.sh"
        if verifier.get("environment") or verifier.get("environment_mode") == "separate":
            yield "[verifier] wants a container of its own"
        if any("${" in str(value) for value in verifier.get("env", {}).values()):
            yield "[verifier] env names variables of the machine, which checks do not see"
        text = script.read_text("utf-8")
        if found := _FETCHES.search(text):
            yield f"tests/test.sh uses {found[1]}, and checks have no network: install what it needs before"
        if "reward.json" in text:
            yield "tests/test.sh writes reward.json; only one number in reward.txt decides here"

    def _container(self) -> Iterator[str]:
        environment, folder = _section(self.config, "environment"), self.folder / "environment"
        if self.workdir == "/":
            yield "it works in the root of a container; give it a WORKDIR"
        yield from (f"[environment] {key} needs a container" for key in _CONTAINER_KEYS if environment.get(key))
        yield from (f"environment/{name} needs containers" for name in _CONTAINER_FILES if (folder / name).exists())
        for line in _instructions(folder):
            if not _needs_none(line, self.workdir):
                yield f"environment/{_DOCKERFILE} needs a container for {clip(line, 100)!r}"


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a table of task.toml")
    return found


def _instructions(environment: Path) -> list[str]:
    """Returns those of the Dockerfile, each as one line; none where there is no such file."""
    path = environment / _DOCKERFILE
    text = path.read_text("utf-8").replace("\\\n", " ") if path.is_file() else ""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _workdir(environment: Path) -> str | None:
    named = [line.split()[1] for line in _instructions(environment) if re.match(r"WORKDIR\s+/", line, re.IGNORECASE)]
    return named[-1] if named else None


def _needs_none(line: str, workdir: str) -> bool:
    """Whether an instruction does what a copy of the folder does, too."""
    word, *rest = line.split()
    if word.upper() in ("COPY", "ADD"):
        return len(rest) == 2 and rest[0] in (".", "./") and rest[1].rstrip("/") in (".", workdir)
    return word.upper() in _HARMLESS
