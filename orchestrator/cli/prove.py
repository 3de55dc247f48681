"""`deputize prove`: the signature of a proof is verified, and its checks are made again here, without a service."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...shared.errors import Invalid, placed
from ...shared.promises import Finding
from . import output
from .connect import load_settings
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.checks import VerifyItem
    from ...shared.proof.comparison import Stated
    from ...shared.settings import Settings

T = TypeVar("T")

_MAX_FILE = 64 * 1024 * 1024
_STATED = ("model", "parameters", "approvalMode", "tools", "hosts", "subagents")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--repository", required=True, metavar="URL|DIR", help="Where the base is: https://…, or a directory.")
@click.option("--key", "keys", multiple=True, required=True, type=_FILE, help="A file of public keys; repeatable.")
@click.option("--checks", type=_FILE, metavar="FILE", help="A request with the checks that the proof leaves out.")
@click.option("--policy", type=_FILE, metavar="FILE", help="Rules for the proof, in TOML; see the page about proofs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per fact.")
def prove(
    file: Path, repository: str, keys: tuple[Path, ...], checks: Path | None, policy: Path | None, as_json: bool
) -> Exit:
    """Repeat the checks of a proof on this machine, and compare what they find with what was signed.

    FILE is what `deputize show ID --proof` prints. The base is cloned, the patch is applied, and the checks run in the
    sandbox on base, candidate and canary. A fact is ✓ repeated, ✗ different, or ! not tried. The exit code is 0 if all
    agree, 1 if one differs, and 6 if one could not be tried.
    """
    from ...shared.proof.comparison import Stated
    from ...shared.proof.envelope import opened
    from ...shared.proof.file import Proof
    from ...shared.proof.keys import public_keys
    from ...shared.proof.policy import Policy
    from ...shared.proof.statement import written
    from ...shared.request import DelegationRequest

    settings = load_settings()
    rules = _read(policy, Policy.read) if policy else Policy()
    further = _read(checks, DelegationRequest.model_validate_json).verify if checks else ()
    proof = _read(file, Proof.model_validate_json)
    statement, key = opened(written(proof.envelope), public_keys([path.read_bytes() for path in keys]))
    stated = Stated.of(statement)
    items = stated.items_of(proof, further)
    request = stated.request(proof, items, repository)
    facts = "; ".join(f"{name} {json.dumps(stated.run.get(name))}" for name in _STATED)
    output.note(f"stated by the key, and not repeated: delegation {stated.id}; {facts}")
    asked = {"request": request.to_dict(), "patch": proof.patch, "commit": stated.commit, "paths": rules.paths}
    asked["undelivered"] = stated.found["undelivered"]
    answer = _repeated(settings, asked) if request.verify else {}
    rows = [Finding("✓", "signature", f"by the key {key.id}"), *_found_rows(stated, items, answer)]
    rows += rules.rows(key.id, stated, proof.patch, answer.get("outside"))
    for row in rows:
        if as_json:
            output.json_line(json.dumps(row.to_dict(), ensure_ascii=False))
        else:
            output.line(f"{row.state} {row.name:10} {row.detail}")
            output.lines([f"{'':12} {row.remedy}"] if row.remedy else [])
    states = {row.state for row in rows}
    return Exit.FAILED if "✗" in states else Exit.NOT_PROVEN if "!" in states else Exit.SUCCEEDED


def _found_rows(stated: Stated, items: Sequence[VerifyItem | None], answer: Mapping[str, Any]) -> Iterator[Finding]:
    from ...shared.facts import Verification

    if why := answer.get("misfit"):
        yield Finding("✗", "patch", why)
        return
    if why := answer.get("untried"):
        yield Finding("!", "checks", f"not tried: {why}")
        return
    if not answer:
        yield Finding("!", "base", "not tried: no check can be made")
    elif stated.base:
        yield Finding("✓", "base", stated.base)
    else:
        yield Finding("!", "base", "not tried: of a directory only the files in the patch were compared")
    if answer:
        yield Finding("✓", "patch", f"sha256 {stated.patch}")
    if stated.commit:
        wrong = answer.get("other") or answer.get("uncompared") or ("" if answer else "not tried")
        state = "✗" if answer.get("other") else "!" if wrong else "✓"
        yield Finding(state, "commit", f"{stated.commit}{f': {wrong}' if wrong else ''}")
    yield from stated.compared(items, Verification.model_validate(answer["verification"]) if answer else None)


def _read(path: Path, read: Callable[[bytes], T]) -> T:
    """Returns what a file holds. Raises Invalid with its name."""
    from pydantic import ValidationError

    with path.open("rb") as file:
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise Invalid(f"{path} has more than {_MAX_FILE:,} bytes")
    try:
        return read(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))  # empty where nothing of it can be read
        raise Invalid(f"{path}: {placed({'pointer': place, 'detail': first['msg']})}") from None
    except ValueError as error:
        raise Invalid(f"{path}: {error}") from None


def _repeated(settings: Settings, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a process of the worker's code finds, which works in a folder that is removed afterwards."""
    from ...shared.workspaces import delete

    folder = Path(tempfile.mkdtemp(prefix="deputize-prove-"))
    try:
        done = subprocess.run(  # Ctrl-C ends this process, which then ends that one
            [sys.executable, "-P", "-m", "deputize.worker.proofs", str(folder)],
            env=settings.child_environment(),
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            check=False,
            start_new_session=True,
        )
    finally:
        delete(folder)
    ended = f"the program that repeats them ended with {done.returncode}"
    return {"untried": ended} if done.returncode else json.loads(done.stdout)
