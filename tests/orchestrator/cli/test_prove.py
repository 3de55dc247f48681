"""`deputize prove` where nothing can be repeated, which is no difference."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deputize.shared.checks import CommandCheck
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Check, GitFacts, Verification
from deputize.shared.proof.envelope import signed
from deputize.shared.proof.file import Proof
from deputize.shared.proof.keys import make_key, signer_in
from deputize.shared.proof.statement import shown_item, statement_of
from deputize.shared.request import DelegationRequest
from tests.network.git_server import PATCH, git, make_repository
from tests.orchestrator.command_line import deputize

PLAIN = CommandCheck(kind="command", run="grep two app.txt")


def prepare(folder: Path, base: str) -> None:
    """Writes the proof of a run on this base into the folder, and its public key."""
    made = make_key(folder / "keys")
    (folder / "key.pub").write_bytes(made.with_suffix(".pub").read_bytes())
    signer = signer_in(folder / "keys")
    assert signer
    check = Check(item=shown_item(PLAIN), outcome="evidence", base="red", candidate="green", canary="red")
    result = ToolAgentResult(
        delegation_id="dlg_1",
        status=Status.SUCCEEDED,
        termination_reason=TerminationReason.COMPLETED,
        verification=Verification(verdict="verified", checks=[check], require="passed"),
        git=GitFacts(base=base),
    )
    asked = DelegationRequest(task="Mend it", verify=[PLAIN])
    statement = statement_of(asked, result, PATCH, datetime(2026, 1, 2, tzinfo=UTC), {"model": "claude"})
    envelope = json.loads(signed(statement, signer))
    proof = Proof(envelope=envelope, patch=PATCH, task="Mend it", verify=[PLAIN])
    (folder / "proof.json").write_text(proof.to_json())


@pytest.mark.long
@pytest.mark.parametrize(
    ("repository", "code", "why"),
    [
        ("none", 6, "! checks     not tried: repository_not_found: "),
        ("folder", 6, "! checks     not tried: repository_not_found: "),
        ("other", 6, "! checks     not tried: repository_ref: "),
        ("http://127.0.0.1:1/x.git", 6, "! checks     not tried: repository_unreachable: "),
        ("changed", 1, "✗ patch      the patch does not fit the base: app.txt: it is another file"),
        ("ftp://example.com/x", 6, "! checks     not tried: "),
    ],
)
async def test_only_what_was_looked_at_differs(tmp_path: Path, repository: str, code: int, why: str) -> None:
    base = "1" * 40
    if repository == "other":
        make_repository(tmp_path / "other", {"app.txt": "one\n"})
    elif repository == "changed":
        base = git(make_repository(tmp_path / "changed", {"app.txt": "three\n"}), "rev-parse", "HEAD")
    (tmp_path / "folder").mkdir()
    prepare(tmp_path, base)
    arguments = ("proof.json", "--repository", repository, "--key", "key.pub")
    done = await deputize("prove", *arguments, cwd=tmp_path, DEPUTIZE_HOME=str(tmp_path / "home"))
    assert (done.code, why in done.out + done.err) == (code, True), done
    assert [line for line in done.out.splitlines() if line.startswith("✗")] == ([why] if code == 1 else [])
