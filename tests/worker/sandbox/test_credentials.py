"""Usual programs use a credential that they never see, as the page shows it."""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from deputize.shared.settings import Settings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import SYSTEM_PATH, BindMount
from deputize.worker.sandbox.project_tools import ProjectTools
from deputize.worker.web.dial import trust_store
from deputize.worker.web.egress_proxy import reach_of
from tests.network.internet import PUBLIC, Rerouted, response
from tests.orchestrator.doc_pages import blocks
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over
from tests.worker.web.certificates import certificate_of
from tests.worker.web.edge import TOKEN, edge, serving_tls

INDEX = "packages.example.org"
URL = "https://good.test/allowed/x"
CLIENTS = {
    "curl": (f"curl -sS {URL}", "GET good.test/allowed/x 200"),
    "python": (
        f"python3 -c 'import urllib.request as r; print(r.urlopen(\"{URL}\").read())'",
        "GET good.test/allowed/x 200",
    ),
    "git": (f"git ls-remote {URL}.git; echo reached", "GET good.test/allowed/x.git/info/refs 200"),
    "npm": (
        "npm view x --registry https://good.test/allowed/ --fetch-retries=0; echo reached",
        "GET good.test/allowed/x 200",
    ),
    "wget": (f"wget -qO- --ca-certificate=$SSL_CERT_FILE {URL}", "GET good.test/allowed/x 200"),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_usual_programs_trust_the_proxy_for_this_host(client: str, tmp_path: Path) -> None:
    line, use = CLIENTS[client]
    if not shutil.which(client.replace("python", "python3"), path=SYSTEM_PATH):
        pytest.skip(f"this machine has no {client}")
    assert await Bubblewrap.selftest() is None
    async with edge(tmp_path) as edged:
        with sandbox_over(tmp_path / "ws", reach=edged.proxy) as sandbox:
            assert "reached" in await said(sandbox, line)
        assert f"credentials.index: {use}" in edged.used
        assert edged.refused == []


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The certificate of the index, which this process trusts meanwhile, as the page describes it."""
    pem = certificate_of(INDEX, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    trust_store.cache_clear()
    yield pem
    trust_store.cache_clear()


def wheel_at(folder: Path) -> Path:
    path = folder / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("greeting.py", "word = 'installed'\n")
        info = "greeting-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.long
async def test_the_command_of_the_page_installs_from_a_private_index(trusted: Path, tmp_path: Path) -> None:
    (_, first), (_, command) = blocks("credentials")[:2]
    (tmp_path / "deputize.toml").write_text(first.split("<<'END'\n")[1].split("END\n")[0])
    (tmp_path / "index.token").write_text(TOKEN)
    (tmp_path / "index.token").chmod(0o600)
    wheel, heads, used = wheel_at(tmp_path), list[str](), list[str]()
    page = f'<a href="{wheel.name}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}">{wheel.name}</a>'

    def index(head: str) -> bytes:
        if base64.b64encode(f"robot:{TOKEN}".encode()).decode() not in head:
            return response(status="401 Unauthorized")
        return response(wheel.read_bytes(), "application/octet-stream") if ".whl" in head else response(page)

    spec = find_spec("pip")
    assert spec
    assert spec.origin
    tools = ProjectTools(mounts=(BindMount("pip", Path(spec.origin).parent, "/opt/pip/pip"),))
    assert await Bubblewrap.selftest() is None
    async with serving_tls(index, heads, trusted) as port:
        settings = Settings.load(tmp_path / "deputize.toml", {})
        network = Rerouted({INDEX: [[PUBLIC]]}, {PUBLIC: port})
        reach = reach_of(settings, "allowed_hosts", on_used=used.append, network=network)
        with sandbox_over(tmp_path / "ws", reach=reach, tools=tools) as sandbox:
            own = "--no-cache-dir --no-deps --disable-pip-version-check --target lib"
            done = await sandbox.run(bash(f"{command.strip()} {own}", 60, env={"PYTHONPATH": "/opt/pip"}))
            assert done.exit_code == 0, done.stdout + done.stderr
            printed = await said(sandbox, "PYTHONPATH=lib python3 -c 'import greeting; print(greeting.word)'")
    assert printed == "installed"
    assert used == [
        f"credentials.index: GET {INDEX}/simple/greeting/ 200",
        f"credentials.index: GET {INDEX}/simple/greeting/{wheel.name} 200",
    ]
