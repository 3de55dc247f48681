"""Requests of runs that are made to harm the worker that carries them out, and all others on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.runs.bench import call, say, script

SERVER = Path(__file__).parent / "hostile_server.py"
WAYS = ("newlines", "small", "large")
LINE = b"a line of no interest\n"


def servers(folder: Path) -> Path:
    """An mcp.json with the hostile server, once for each of its ways."""
    entry = {"command": "python3", "show": [str(SERVER.parent)]}
    found = {way: {**entry, "args": ["-SE", str(SERVER), way]} for way in WAYS}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": found}))
    return folder / "mcp.json"


def hostile(folder: Path) -> Iterator[dict[str, Any]]:
    """One of each kind: MCP servers that flood, large files, patterns without end, commands, large calls of no tool."""
    refused = _large_files(folder)
    files = refused | {"ignored": True}  # git, which takes too long with these rules, is not asked
    harm = [call(f"mcp__{way}__harm", a="aaa") for way in WAYS]
    edits = [call("edit_file", path="edited.txt", old_string=f"of no {n}", new_string="of") for n in range(4)]
    everywhere = call("edit_file", path="edited.txt", old_string="no", new_string="of", replace_all=True)
    reads = [call("read_file", path="large.txt", offset=850_000 + n, limit=1) for n in range(8)]
    greps = call("grep", pattern="(l+i*)+n?e of$"), call("grep", pattern="interest$")
    yield from (_doing(folder, each) for each in harm)
    yield _doing(folder, call("mcp__small__harm", a="a" * 41 + "!"))
    yield _doing(folder, *edits, workspace=files)
    yield _doing(folder, everywhere, workspace=files)
    yield _doing(folder, *reads, workspace=files)
    yield _doing(folder, *[call("glob", pattern=f"**/*{n}") for n in range(8)], workspace=files)
    yield _doing(folder, *greps, workspace=files)
    yield _doing(folder, *reads, workspace=refused)
    yield _doing(folder, call("bash", command="yes | head -c 300000000; yes >&2 | head -c 1000"))
    yield _doing(folder, call("bash", command="for n in $(seq 20000); do echo $n > f$n; done"))
    yield _doing(folder, call("bash", command="for n in 1 2 3 4; do seq 1000000 > new$n.txt; done"))
    yield _doing(folder, call("bash", command="for n in 1 2 3 4; do while :; do :; done & done; wait"))
    yield _doing(folder, call("glob", pattern="*"), context="a" + " " * 1_000_000 + "b")
    unknown = [call("explode", number=number, text="ab c" * 5_000) for number in range(30)]
    yield _doing(folder, *unknown, tools=["glob"])


def _doing(folder: Path, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run that makes these calls three times over."""
    model = script(folder, *[list(calls)] * 3, [say("done")])
    limits = {"timeout_seconds": 60, "max_tokens": 3_000_000}
    tools = sorted({each["call"] for each in calls})
    return {"model": model, "tools": tools, "approval_mode": "auto", "limits": limits} | more


def _large_files(folder: Path) -> dict[str, Any]:
    """A workspace with files of 20 and of 7 MB, many long names, and ``.gitignore`` lines that fit none of them."""
    source = folder / "large"
    source.mkdir()
    (source / "large.txt").write_bytes(LINE * 900_000)
    (source / "edited.txt").write_bytes(LINE * 330_000)
    (source / ".gitignore").write_text("".join(f"*{number}*x*y*z\n" for number in range(20_000)))
    for number in range(400):
        (source / f"{'n' * 200}{number}").touch()
    return {"kind": "directory", "path": str(source)}
