"""Commands in a real sandbox that look for a credential, and what a whole run leaves of one.

| attacks | how many | leaks |
|---|---|---|
| commands that look into memory, variables, dumps and connections | 10 | 0 |
| clients that do not trust the proxy | 4 | 0 |
| other runs that ask the proxy of one | 2 | 0 |
| folders of a run that have the token's file in them | 2 | 0 |
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import ProgressMade
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import SYSTEM_PATH
from deputize.worker.web.egress_proxy import EgressProxy
from tests.attacks.conftest import USERS
from tests.attacks.stage import open_stage, uid_of
from tests.network.internet import PUBLIC, redirect
from tests.runs.bench import call, open_bench, say, script
from tests.waiting import until
from tests.worker.sandbox.sandboxes import said, sandbox_over
from tests.worker.web.certificates import certificate_of
from tests.worker.web.edge import HOST, TOKEN, Edge, credentials_of, echo, edge, leaks, serving_tls

pytestmark = pytest.mark.system
SEARCH = f"""
import os, pathlib
token = {TOKEN[::-1]!r}[::-1].encode()
for process in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("environ", "cmdline", "maps"):
        try:
            found = token in (process / name).read_bytes()
        except OSError:
            continue
        print(f"found in {{name}}" * found, end="")
    if int(process.name) == os.getpid():
        continue
    try:
        memory = open(process / "mem", "rb", 0)
        for line in (process / "maps").read_text().splitlines():
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            memory.seek(start)
            print("found in memory" * (token in memory.read(end - start)), end="")
    except (OSError, ValueError, OverflowError):
        pass
print("searched")
"""
URL = f"https://{HOST}/allowed/x"
COMMANDS: Mapping[str, tuple[str, str]] = {
    "variables and memory": (f"curl -sS {URL} >/dev/null & python3 search.py; wait", "searched"),
    "a core dump": (f"ulimit -c unlimited; curl -sS {URL} >x; sh -c 'kill -SEGV $$'; cat core* x", "***"),
    "the keys of the authority": ("grep -rls 'PRIVATE KEY' /etc /tmp /dev/shm /workspace; echo none", "none"),
    "another authority": ("echo x >>$SSL_CERT_FILE; rm $SSL_CERT_FILE; echo kept", "kept"),
    "what a client sends and gets": (f"curl -sSvk {URL} 2>&1", "***"),
    "all that curl writes": (f"curl -sS --trace-ascii - {URL}", "***"),
    "no proxy": (f"curl -sS --noproxy '*' -m 5 {URL} 2>&1", "curl"),
    "a proxy of its own": (f"HTTPS_PROXY=http://127.0.0.1:1 curl -sS -m 5 {URL} 2>&1", "curl"),
    "descriptors": ("ls -l /proc/self/fd /proc/1/fd 2>&1", "fd"),
    "a redirect that takes headers along": (f"curl -sSL --location-trusted {URL}/away 2>&1", "reached"),
}
"""Commands of one run, and what they print."""


IGNORANT: Mapping[str, str] = {
    "another file": f"curl -sS --cacert /etc/ssl/certs/ca-certificates.crt {URL}",
    "another variable": f"SSL_CERT_FILE= CURL_CA_BUNDLE= curl -sS {URL}",
    "a pinned key": f"curl -sS --pinnedpubkey 'sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=' {URL}",
    "its own list": f"wget -qO- -t 1 {URL}",
}
"""Clients that do not trust the authority of the run."""


def answered(head: str) -> bytes:
    return redirect("http://other.test/x") if "/away" in head else echo(head)


@asynccontextmanager
async def commands(folder: Path, **more: Any) -> AsyncIterator[tuple[Bubblewrap, Edge]]:
    assert await Bubblewrap.selftest() is None
    async with edge(folder, answered, **more) as edged:
        with sandbox_over(folder / "ws", reach=edged.proxy) as sandbox:
            (folder / "ws/search.py").write_text(SEARCH)
            yield sandbox, edged


async def test_no_command_finds_the_token(tmp_path: Path) -> None:
    async with commands(tmp_path) as (sandbox, edged):
        for attack, (line, expected) in COMMANDS.items():
            printed = await said(sandbox, line)
            assert expected in printed, (attack, printed)
            assert "found" not in printed, (attack, printed)
            assert leaks(printed, edged.everything) == [], attack
        left = [
            path.read_bytes() for path in (tmp_path / "ws").rglob("*") if path.is_file() and path.name != "search.py"
        ]
        assert leaks(*left) == []
        assert b"PRIVATE KEY" not in edged.proxy.trusted
        assert credentials_of(edged.heads) == len(edged.heads) > 4
        assert credentials_of(edged.elsewhere) == 0


async def test_a_run_without_the_credential_reaches_the_host_without_it(tmp_path: Path) -> None:
    async with commands(tmp_path) as (_, edged):
        other = EgressProxy("the list", ["*.test"], 1 << 20, network=edged.network)
        with sandbox_over(tmp_path / "other", reach=other) as sandbox:
            await said(sandbox, f"curl -sSk {URL}")
        assert len(edged.heads) == 1
        assert credentials_of(edged.heads) == 0


NEIGHBOURS: Mapping[str, Sequence[str]] = {"without a network": (), "with a network of its own": ("*.test",)}
"""The hosts that another run reaches."""


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
async def test_another_run_cannot_ask_the_proxy_of_a_run_that_has_the_credential(
    neighbour: str, tmp_path: Path
) -> None:
    hosts = NEIGHBOURS[neighbour]
    async with commands(tmp_path) as (sandbox, edged):
        os.mkfifo(tmp_path / "ws/wait")
        (tmp_path / "ws/wait").chmod(0o666)
        running = asyncio.create_task(said(sandbox, f"curl -sS {URL}; echo $HTTPS_PROXY >proxy; cat wait"))
        place = tmp_path / "ws/proxy"
        await until(lambda: place.exists() and place.read_text())
        own = EgressProxy("the list", hosts, 1 << 20, network=edged.network) if hosts else None
        with sandbox_over(tmp_path / "other", reach=own) as other:
            ways = "cut -d@ -f2 /proc/net/unix; ls /proc/*/root /tmp /run 2>/dev/null"
            printed = await said(other, f"curl -sSk -m 5 -x {place.read_text().strip()} {URL} 2>&1; {ways}")
        (tmp_path / "ws/wait").write_text("go on")
        assert leaks(printed, await running, edged.everything) == []
        assert credentials_of(edged.heads) == 1


FOLDERS: Mapping[str, str] = {"beside the code": "index.token", "in a folder": "deploy/secrets/index.token"}


@pytest.mark.parametrize("where", FOLDERS)
async def test_a_run_over_a_folder_with_the_file_of_the_token_gets_no_copy(
    where: str, redis_url: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    token = source / FOLDERS[where]
    token.parent.mkdir(parents=True)
    (source / "code.py").write_text("pass\n")
    token.write_text(TOKEN)
    token.chmod(0o600)
    table = {"host": HOST, "token_file": token}
    async with open_bench(redis_url, tmp_path / "home", credentials={"index": table}) as bench:
        model = script(tmp_path, [call("bash", command="cat code.py; find . -type f -exec rev {} +")], [say("done")])
        run = await bench.run(model=model, workspace={"kind": "directory", "path": str(source), "ignored": True})
        (printed,) = await bench.answers(run.delegation_id)
        left = [path.read_bytes() for path in bench.settings.workspaces.rglob("*") if path.is_file()]
    assert "pass" in printed
    assert leaks(printed, run.model_dump_json(), *left) == []
    assert f"{FOLDERS[where]} is private to the worker and was not copied" in run.left_out


@pytest.mark.parametrize("client", IGNORANT)
async def test_a_client_that_ignores_the_authority_is_named_with_what_to_do(client: str, tmp_path: Path) -> None:
    program = "wget" if "wget" in IGNORANT[client] else "curl"
    if not shutil.which(program, path=SYSTEM_PATH):
        pytest.skip(f"this machine has no {program}")
    async with commands(tmp_path) as (sandbox, edged):
        printed = await said(sandbox, f"{IGNORANT[client]}; true")
        assert "have it trust the file of $SSL_CERT_FILE" in printed
        assert edged.refused[0].startswith(f"a client of {HOST} ended TLS before a request (")
        assert edged.heads == []


async def test_a_whole_run_leaves_the_use_and_not_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="deputize-", dir="/tmp"))
    try:
        pem = certificate_of(HOST, folder)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        heads = list[str]()
        async with serving_tls(answered, heads, pem) as port:
            table = {"host": HOST, "path": "/allowed", "token_file": token}
            own = {"sandbox": {"allowed_hosts": ["*.test"]}, "credentials": {"index": table}}
            network = {"names": {HOST: [[PUBLIC]]}, "ports": {PUBLIC: port}}
            async with open_stage(folder, uid_of(USERS[-1]), network, **own) as stage:
                stage.marks["the token"] = TOKEN
                calls = [
                    call("bash", command=each) for each in (f"curl -sS {URL}", f"curl -sS -d a {URL}; cat {token}")
                ]
                outcome = await stage.attack(calls)
                log = b"".join(path.read_bytes() for path in (folder / "home").glob("*.log"))
        assert credentials_of(heads) == len(heads) == 1, outcome.answers()
        uses = [each.message for each in outcome.events if isinstance(each, ProgressMade)]
        assert "credentials.index: GET good.test/allowed/x 200" in uses
        assert b"credentials.index: GET good.test/allowed/x 200" in log
        assert "so POST is refused" in outcome.answers()[1]
        texts = [each.model_dump_json() for each in outcome.events]
        assert leaks(log, outcome.left, outcome.patch, outcome.result.model_dump_json(), *texts) == []
    finally:
        shutil.rmtree(folder)


def test_the_table_counts_all_attacks() -> None:
    rows = [line.split("|")[2:4] for line in (__doc__ or "").splitlines() if line.startswith("| ")][1:]
    sizes = [*map(len, (COMMANDS, IGNORANT, NEIGHBOURS, FOLDERS))]
    assert [[int(cell) for cell in row] for row in rows] == [[size, 0] for size in sizes]
