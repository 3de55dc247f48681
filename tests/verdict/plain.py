"""What plain verifiers make of a case: the exit codes of its commands, in the run's own files before and after it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.runs.bench import Bench, call, say, script
from tests.verdict.cases import Case

_SAID = re.compile(r"^command (\d+) exits with (\d+)$", re.MULTILINE)
_OF_CHECKS = ("require", "accept", "protect", "max_verify_rounds")


def has_commands(case: Case) -> bool:
    """Whether a verifier of exit codes has something to execute."""
    return any(check["kind"] == "command" for check in case.checks)


async def exit_codes(case: Case, bench: Bench, folder: Path, *, work: bool) -> list[int]:
    """Carries the case out without checks, with or without its work; then its commands are executed in its sandbox."""
    checks = [check for check in case.checks if check["kind"] == "command"]
    of_case = case.turns()[: None if case.then is None else -2] if work else []
    turns: list[Any] = [turn for turn in of_case if "text" not in turn[0]]
    for number, check in enumerate(checks):
        if files := check.get("files"):
            turns.append([call("write_file", path=path, content=text) for path, text in files.items()])
        line = f"timeout {check.get('timeoutSeconds', 60)} bash -c {shlex.quote(check['run'])}"
        turns.append([call("bash", command=f"{line}\ncode=$?; echo; echo command {number} exits with $code")])
    fields: dict[str, Any] = {
        name: value for name, value in case.fields(folder / "project").items() if name not in _OF_CHECKS
    }
    model = script(folder, *turns, [say("Done.")], summary="Nothing more.")
    result = await bench.run(model=model, **{**fields, "verify": []})
    said = await bench.answers(result.delegation_id)
    codes = {int(number): int(code) for number, code in _SAID.findall("\n".join(said))}
    assert [*codes] == [*range(len(checks))], said
    return [*codes.values()]
