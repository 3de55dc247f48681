"""The keys of other clients' mcp.json: honoured, or told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker.mcp.configuration import one, read


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ({}, (None, None, 300)),
        ({"connect_timeout": 5, "execute_timeout": 60, "sse_read_timeout": 7}, (5, 60, 7)),
        ({"connectTimeout": 5, "executeTimeout": 60, "sseReadTimeout": 7}, (5, 60, 7)),
        ({"connectTimeout": 5000, "executeTimeout": 60_000, "sseReadTimeout": 7000}, (5, 60, 7)),
        ({"connectTimeoutMs": 500, "executeTimeoutSeconds": 2000, "sse_read_timeout_ms": 700}, (0.5, 2000, 0.7)),
        ({"startup_timeout_sec": 20, "tool_timeout_sec": 90}, (20, 90, 90)),
        ({"timeout": 30_000}, (None, 30, 30)),
        ({"timeout": 600}, (None, 600, 600)),
        ({"timeout": 600, "idleSeconds": 5}, (None, 600, 5)),
    ],
)
def test_the_times_of_other_clients_are_honoured(
    tmp_path: Path, written: dict[str, float], seconds: tuple[float | None, ...]
) -> None:
    server = one(tmp_path, {"url": "https://a.test/sse", **written})
    assert (server.connect_seconds, server.call_seconds, server.idle_seconds) == pytest.approx(seconds)
    assert not read(tmp_path, {"mcpServers": {"one": {"command": "x", **written}}}).remarks["one"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"timeout": "soon"}, "timeout is not a number of seconds above 0"),
        ({"connect_timeout": 0}, "connect_timeout is not a number"),
        ({"execute_timeout": True}, "execute_timeout is not a number"),
        ({"sse_read_timeout": float("inf")}, "sse_read_timeout is not a number"),
        ({"exclude_tool": ["x"]}, "key exclude_tool is not known and has no effect; did you mean exclude_tools?"),
        ({"sandbx": False}, "did you mean sandbox?"),
        ({"tools": {"alow": []}}, "key tools.alow is not known"),
        ({"zzz": 1}, "key zzz is not known and has no effect"),
    ],
)
def test_what_has_no_effect_is_told_of(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    config = read(tmp_path, {"mcpServers": {"one": {"command": "x", **entry}}})
    (remark,) = config.remarks["one"]
    assert said in remark
    assert len(config.servers) == 1


def test_what_is_for_people_needs_no_remark(tmp_path: Path) -> None:
    entry = {"command": "x", "description": "…", "name": "X", "_comment": 1, "//": "no"}
    assert read(tmp_path, {"mcpServers": {"one": entry}}).remarks["one"] == []


@pytest.mark.parametrize(
    "entry", [{"disabled": "true"}, {"disabled": 1}, {"enabled": False}, {"enabled": False, "x": 1}]
)
def test_what_is_switched_off_in_other_words_is_off(tmp_path: Path, entry: dict[str, Any]) -> None:
    assert not read(tmp_path, {"mcpServers": {"one": {"command": "x", **entry}}}).servers


def test_a_list_of_tools_is_the_list_of_allowed_ones(tmp_path: Path) -> None:
    tools = one(tmp_path, {"command": "x", "tools": ["get_*"]}).tools
    assert [tools.lets(name) for name in ("get_one", "set")] == [True, False]
