"""The process of the worker's code that commands ask about the policy: only that knows what calls touch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from ...shared.errors import Invalid, Misconfigured

if TYPE_CHECKING:
    from ...shared.settings import Settings

SHARED = f"{__name__}.shared"
"""Where a context has a process that several commands share."""
END_SECONDS = 10.0


class PolicyProcess:
    """One process for any number of questions; it starts with the first one, which takes seconds."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def ask(self, settings: Settings, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises Invalid for a wrong question, and Misconfigured for a wrong file."""
        environment = settings.child_environment()
        process = self._process = self._process or self._started(environment)
        assert process.stdin is not None
        assert process.stdout is not None
        own = {name: text for name, text in environment.items() if name.startswith("DEPUTIZE_")}
        try:
            process.stdin.write(json.dumps({**question, "settings": own}).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise Misconfigured(f"the policy cannot be asked: {self._why_it_ended(process)}")
        found: dict[str, Any] = json.loads(answer)
        if error := found.get("error"):
            raise Invalid(error) if found["usage"] else Misconfigured(error)
        return found

    def _started(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "deputize.worker.policy"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def _why_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait(END_SECONDS)
        assert self._errors is not None
        self._errors.seek(0)
        last = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        return last or f"exit code {code}"

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()  # it holds nothing
            self._process.communicate()
            self._process = None
        if self._errors is not None:
            self._errors.close()


@contextmanager
def policy_process(ctx: click.Context) -> Generator[PolicyProcess]:
    """Yields the process of the context, or one for this block."""
    if shared := ctx.meta.get(SHARED):
        yield shared
        return
    process = PolicyProcess()
    try:
        yield process
    finally:
        process.close()
