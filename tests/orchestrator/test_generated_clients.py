"""Clients that others generate from the OpenAPI document delegate a task and read its result."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.orchestrator.app import create_app
from tests.architecture.sources import ROOT
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, settings
from tests.waiting import until

pytestmark = pytest.mark.system

BIN = Path(sys.executable).parent
NODE = ROOT / ".venv" / "bin" / "node"
PACKAGES = ROOT / ".venv" / "npm" / "node_modules"

PYTHON = """
import sys
from generated import Client
from generated.api.delegations import create_delegation, get_delegation
from generated.models import Delegation, DelegationRequest, Limits

with Client(sys.argv[1]) as client:
    made = create_delegation.sync(client=client, body=DelegationRequest(task="count", limits=Limits(max_turns=3)))
    assert isinstance(made, Delegation), made
    done = get_delegation.sync(client=client, id=made.id, wait=30)
    assert isinstance(done, Delegation) and done.result, done
    print(done.status, done.result.summary, done.request.limits.max_turns)
"""
TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./schema.d.ts";

declare const process: { argv: string[] };
const client = createClient<paths>({ baseUrl: process.argv[2] });
const made = await client.POST("/v1/delegations", { body: { task: "count", limits: { maxTurns: 3 } } });
if (!made.data) throw new Error(JSON.stringify(made.error));
const params = { path: { id: made.data.id }, query: { wait: 30 } };
const done = await client.GET("/v1/delegations/{id}", { params });
if (!done.data) throw new Error(JSON.stringify(done.error));
console.log(done.data.status, done.data.result?.summary, done.data.request.limits?.maxTurns);
"""
TYPO = TYPESCRIPT.replace("task:", "tasks:")


async def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "PYTHONPATH": str(cwd)}
    done = await asyncio.to_thread(subprocess.run, command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(create_app(opening(FakeService()), settings()).openapi()))
    return path


async def finished(service: FakeService) -> None:
    await until(lambda: service.following == 1)
    (id,) = service.runs
    service.finish(id, summary="42")


@pytest.mark.costly
async def test_a_python_client_runs_a_delegation(
    document: Path, tmp_path: Path, url: str, service: FakeService
) -> None:
    generator = [BIN / "openapi-python-client", "generate", "--path", document, "--meta", "none"]
    said = await run(*generator, "--output-path", tmp_path / "generated", cwd=tmp_path)
    assert "will not be generated" not in said
    (tmp_path / "script.py").write_text(PYTHON)
    told, _ = await asyncio.gather(run(sys.executable, "script.py", url, cwd=tmp_path), finished(service))
    assert told.split() == ["succeeded", "42", "3"]


@pytest.mark.costly
async def test_a_typescript_client_runs_a_delegation_and_a_typo_does_not_compile(
    document: Path, tmp_path: Path, url: str, service: FakeService
) -> None:
    generator = PACKAGES / "openapi-typescript" / "bin" / "cli.js"
    compiler = PACKAGES / "typescript" / "bin" / "tsc"
    if missing := [str(path) for path in (NODE, generator, compiler) if not path.exists()]:
        reason = f"{', '.join(missing)} is missing: run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    # By its default a field that has a default could not be left out.
    await run(NODE, generator, document, "--default-non-nullable=false", "--output", "schema.d.ts", cwd=tmp_path)
    (tmp_path / "script.ts").write_text(TYPESCRIPT)
    (tmp_path / "typo.ts").write_text(TYPO)
    options = ["--noEmit", "--strict", "--module", "nodenext", "--allowImportingTsExtensions"]
    said = await run(NODE, compiler, *options, "script.ts", "typo.ts", cwd=tmp_path, status=2)
    assert ("script.ts" in said, "typo.ts" in said, "task" in said) == (False, True, True), said
    told, _ = await asyncio.gather(run(NODE, "script.ts", url, cwd=tmp_path), finished(service))
    assert told.split() == ["succeeded", "42", "3"]
