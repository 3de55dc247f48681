"""mcp.json as tests write it, and what was read in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deputize.worker.mcp.config import Config, Server

ENVIRON = {"TOKEN": "t0ken", "EMPTY": ""}


def read(folder: Path, whole: Any) -> Config:
    path = folder / "mcp.json"
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    return Config.read(path, ENVIRON, Path("/workspaces/x"))


def one(folder: Path, entry: Any) -> Server:
    config = read(folder, {"mcpServers": {"one": entry}})
    assert config.problems == {}
    (server,) = config.servers
    return server


def problem(folder: Path, entry: Any) -> str:
    config = read(folder, {"mcpServers": {"one": entry, "good": {"command": "x"}}})
    assert [server.name for server in config.servers] == ["good"]
    return config.problems["one"]
