"""A tokens file, and clients that send its tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from pydantic import SecretStr

from deputize.orchestrator.access_tokens import digest_of, written_entry
from deputize.orchestrator.scopes import Scope
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.serving import served, settings

MAIN = "the token of DEPUTIZE_TOKEN"
OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json", "/", "/web/{name:path}", "/v1/triggers/{name}"})
"""For probes, clients that are generated, files of the web page, and signed deliveries; they need no token."""


def secret_of(name: str) -> str:
    return f"secret-{name}"


def entry(name: str, *scopes: str, more: str = "") -> str:
    return written_entry(name, digest_of(secret_of(name).encode()), scopes, None) + more


def write(path: Path, *entries: str) -> Path:
    path.write_text("\n".join(entries), "utf-8")
    path.chmod(0o600)
    return path


def one_for_each_scope(folder: Path) -> Path:
    return write(folder / "tokens.toml", *(entry(scope, *{scope, Scope.ALL}) for scope in Scope))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret_of(name)}"}


@asynccontextmanager
async def serving(service: Any, path: Path, **fields: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service with this tokens file. It sends no token by itself."""
    using = settings(tokens_file=path, token=SecretStr(MAIN), no_token=False, **fields)
    async with (
        served(service, using) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as http,
    ):
        yield http


async def statuses(http: httpx2.AsyncClient, names: Sequence[str], path: str = "/v1/workers") -> list[int]:
    return [(await http.get(path, headers=bearer(name))).status_code for name in names]
