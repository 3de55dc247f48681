"""The proof of a run: signed where it ended, attached to its commit, and repeated with its file alone."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict
from deputize.shared.proof.file import Proof
from deputize.shared.proof.keys import keys_in, make_key
from deputize.shared.request import Deliver
from tests.network.git_server import GitServer, git, git_server, make_repository
from tests.orchestrator.command_line import deputize
from tests.runs.bench import Bench, call, open_bench, say, script

BUG, FIXED = (f"def double(number):\n    return number {sign} 2\n" for sign in "+*")
TEST = "import app\n\ndef test_double():\n    assert app.double(3) == 6\n"
FIX = f"cat > app.py <<'EOF'\n{FIXED}EOF\n"
LEAK = "env; cat /proc/*/environ; cat {key} {home}/proof-keys/*; "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "served") as server:
        server.add(make_repository(tmp_path / "source", {"app.py": BUG, "test_app.py": TEST}))
        yield server


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path, server: GitServer) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home", git_hosts=[server.host]) as bench:
        yield bench


async def run(bench: Bench, server: GitServer, tmp_path: Path, command: str, **fields: Any) -> ToolAgentResult:
    model = script(tmp_path, [call("bash", command=command)], [say("done")])
    return await bench.run(model=model, workspace={"kind": "git", "url": server.url()}, **fields)


def noted(server: GitServer, result: ToolAgentResult) -> str:
    assert result.git
    assert result.git.commit
    ref = f"refs/notes/deputize/{result.delegation_id}"
    return git(server.root / "project.git", "notes", "--ref", ref, "show", result.git.commit)


@pytest.mark.costly
@pytest.mark.system
async def test_a_verified_run_is_proved_again_with_its_file_alone(
    bench: Bench, server: GitServer, redis_url: str, tmp_path: Path
) -> None:
    made = make_key(bench.settings.proof_key_folder)
    leak = LEAK.format(key=made, home=bench.settings.home)
    asked = {"verify": ["python -m pytest -q"], "deliver": {"attestation": "git-notes"}}
    result = await run(bench, server, tmp_path, leak + FIX, **asked)
    assert (result.verification.verdict, result.errors) == ("verified", [])
    async with open_service(bench.settings, redis_url) as service:
        proof = await service.proof(result.delegation_id)
        kept = json.dumps([each.to_json() for each in await service.events(result.delegation_id)])
    secret = made.read_text().splitlines()[1]
    assert [text for text in (kept, result.to_json(), proof.to_json()) if secret in text] == []
    envelope = json.dumps(proof.envelope)
    assert (len(envelope) < 20_000, json.loads(noted(server, result)) == proof.envelope) == (True, True)
    await proves_elsewhere(proof, made, server, tmp_path)


async def proves_elsewhere(proof: Proof, made: Path, server: GitServer, tmp_path: Path) -> None:
    """With another home, another working directory and no service. What was changed is refused before anything runs."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    keys = {name: (elsewhere / name).write_bytes for name in ("key.pub", "other.pub")}
    keys["key.pub"](made.with_suffix(".pub").read_bytes())
    keys["other.pub"](make_key(tmp_path / "other").with_suffix(".pub").read_bytes())
    rules = f'keys = ["{keys_in(made.parent)[made].id}"]\npaths = ["*.py"]\nmax_lines = 2\ncanary = "red"\n'
    (elsewhere / "rules.toml").write_text(f'{rules}verdict = "verified"\n')
    (elsewhere / "request.json").write_text(json.dumps({"task": "x", "verify": ["python -m pytest -q"]}))

    async def prove(*more: str, key: str = "key.pub", **changed: Any) -> tuple[int, list[str], str]:
        (elsewhere / "proof.json").write_text(json.dumps(proof.to_dict() | changed))
        arguments = ["prove", "proof.json", "--repository", server.url(), "--key", key, "--json", *more]
        done = await deputize(*arguments, cwd=elsewhere, DEPUTIZE_HOME=str(elsewhere / "home"))
        return done.code, [f"{row['name']} {row['state']}" for row in map(json.loads, done.out.splitlines())], done.err

    facts = ["signature", "base", "patch", "commit", "check 1", "verdict", "restored", "released"]
    facts += [f"policy {rule}" for rule in ("keys", "paths", "max_lines", "canary", "verdict")]
    found = await prove("--policy", "rules.toml", "--checks", "request.json", verify=[None])
    assert found[:2] == (0, [f"{fact} ok" for fact in facts]), found
    code, rows, _ = await prove(verify=[None])
    assert (code, [row for row in rows if not row.endswith("warning")]) == (6, ["signature ok"]), rows
    refused = [
        await prove(key="other.pub"),
        await prove(patch=proof.patch.replace("* 2", "* 3")),
        await prove(task="other", verify=["true"]),
        await prove(verify=[]),
        await prove(envelope={**proof.envelope, "payload": base64.b64encode(b"{}").decode()}),
        await prove(envelope=proof.envelope["signatures"][0]),
    ]
    assert [(code, rows) for code, rows, _ in refused] == [(2, [])] * len(refused)
    assert [error.rpartition(": ")[2].strip() for *_, error in refused] == [
        "the proof was signed with a key that is none of those given",
        "the file has another patch than the signed statement",
        "the file has another task, check 1 than the signed statement",
        "the file has another number of checks than the signed statement",
        "one of both was changed",
        "not an envelope of DSSE",
    ]


@pytest.mark.costly
async def test_a_later_delivery_attaches_it_and_secrets_prevent_it(
    bench: Bench, server: GitServer, redis_url: str, tmp_path: Path
) -> None:
    make_key(bench.settings.proof_key_folder)
    secret = next(each for each in bench.settings.secrets if len(each) == 64)
    add = "printf 'def word():\\n    return \"%s\"\\n' {} >> app.py"
    check = "python3 -c 'import app; assert len(app.word()) > 4'"
    plain, leaking = [
        await run(bench, server, tmp_path, add.format(word), verify=[check]) for word in ("plain", secret)
    ]
    assert [each.verification.verdict for each in (plain, leaking)] == ["verified", "verified"]
    async with open_service(bench.settings, redis_url) as service:
        delivered = await service.deliver(plain.delegation_id, Deliver(attestation="git-notes"))
        assert delivered.result
        proof = await service.proof(plain.delegation_id)
        assert json.loads(noted(server, delivered.result)) == proof.envelope
        with pytest.raises(Conflict, match="there is no proof"):
            await service.proof(leaking.delegation_id)
    why = "the proof: values that must not leave the service are in the patch or in the checks"
    assert (plain.errors, leaking.errors) == ([], [why])
