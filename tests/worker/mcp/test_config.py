"""mcp.json as a source of tools: where it is looked for, what is read in it, what a mistake costs, and names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.worker.mcp.config import Config, Server, expanded, exposed, find_config_file, prefix
from deputize.worker.mcp.source import McpServers
from deputize.worker.toolkit.sources import ToolSourceContext
from tests.runs.toolbench import Toolbench

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


# where


@pytest.mark.requirement("S000-018", "S000-103")
def test_the_file_is_looked_for_in_order(tmp_path: Path, home: Path) -> None:
    assert find_config_file(None, tmp_path, home) is None
    (home / "mcp.json").touch()
    assert find_config_file(None, tmp_path, home) == home / "mcp.json"
    (tmp_path / "other.json").touch()
    assert find_config_file(tmp_path / "other.json", tmp_path, home) == tmp_path / "other.json"


@pytest.mark.requirement("S000-018")
def test_a_relative_path_is_looked_for_here_and_beside_the_users_own(tmp_path: Path, home: Path) -> None:
    (home / "team.json").touch()
    assert find_config_file(Path("team.json"), tmp_path, home) == home / "team.json"
    (tmp_path / "team.json").touch()
    assert find_config_file(Path("team.json"), tmp_path, home) == tmp_path / "team.json"


@pytest.mark.requirement("P-17")
@pytest.mark.parametrize("name", ["mcp.json", ".mcp.json"])
def test_a_file_that_merely_lies_here_is_not_used(tmp_path: Path, home: Path, name: str) -> None:
    """It may have come into the working directory with another's files."""
    (tmp_path / name).write_text('{"mcpServers": {"one": {"command": "x", "sandbox": false}}}')
    assert find_config_file(None, tmp_path, home) is None
    (home / "mcp.json").touch()
    assert find_config_file(None, tmp_path, home) == home / "mcp.json"


# what


@pytest.mark.parametrize("root", ["mcpServers", "servers"])
def test_both_root_keys_are_read(tmp_path: Path, root: str) -> None:
    config = read(tmp_path, {root: {"b": {"command": "x"}, "a": {"url": "http://a.test"}}, "inputs": []})
    assert [(server.name, server.type) for server in config.servers] == [("b", "stdio"), ("a", "http")]


@pytest.mark.parametrize(
    ("entry", "type"),
    [
        ({"command": "x"}, "stdio"),
        ({"url": "https://a.test/mcp"}, "http"),
        ({"httpUrl": "https://a.test/mcp"}, "http"),
        ({"url": "https://a.test/mcp", "type": "streamable-http"}, "http"),
        ({"url": "https://a.test/mcp", "type": "streamableHttp"}, "http"),
        ({"url": "https://a.test/sse/"}, "sse"),
        ({"url": "https://a.test/sse", "type": "http"}, "http"),
        ({"url": "https://a.test/x", "type": "SSE"}, "sse"),
    ],
)
def test_the_transport_of_a_server_is_stated_or_guessed(tmp_path: Path, entry: Any, type: str) -> None:
    assert one(tmp_path, entry).type == type


def test_what_is_another_clients_alone_is_ignored(tmp_path: Path) -> None:
    entry = {"command": "x", "icon": 3, "envFile": "${nothing at all}", "env": None, "tools": ["*"]}
    server = one(tmp_path, {**entry, "description": "…", "gallery": True})
    assert (server.env, server.tools.lets("any")) == ({}, True)


def test_lists_of_tools_under_all_their_names(tmp_path: Path) -> None:
    ours = one(tmp_path, {"command": "x", "tools": {"allow": ["get_*"], "deny": ["get_all"]}}).tools
    theirs = one(tmp_path, {"command": "x", "includeTools": ["get_*"], "excludeTools": ["get_all"]}).tools
    called = one(tmp_path, {"command": "x", "includeTools": ["get_*()"], "excludeTools": ["get_all(x, y(1))", "(odd)"]})
    for tools in (ours, theirs, called.tools):
        assert [tools.lets(name) for name in ("get_one", "get_all", "set")] == [True, False, False]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ({}, (None, None, 300)),
        ({"connectSeconds": 5, "callSeconds": 60, "idleSeconds": 7}, (5, 60, 7)),
        ({"connect_timeout": 5, "execute_timeout": 60, "sse_read_timeout": 7}, (5, 60, 7)),
        ({"callSeconds": 2000}, (None, 2000, 2000)),
        ({"timeout": 30_000}, (None, 30, 30)),
        ({"timeout": 600}, (None, 600, 600)),
        ({"timeout": 600, "idleSeconds": 5}, (None, 600, 5)),
    ],
)
def test_times_are_seconds_but_a_long_timeout_is_in_milliseconds(
    tmp_path: Path, written: dict[str, float], seconds: tuple[float | None, ...]
) -> None:
    server = one(tmp_path, {"url": "https://a.test/sse", **written})
    assert (server.connect_seconds, server.call_seconds, server.idle_seconds) == seconds
    assert not read(tmp_path, {"mcpServers": {"one": {"command": "x", **written}}}).remarks["one"]


@pytest.mark.parametrize(
    ("entry", "remarks"),
    [
        ({"sandbx": False}, ["did you mean sandbox?"]),
        ({"tools": {"alow": []}}, ["key tools.alow is not known and has no effect; there are allow and deny"]),
        ({"alwaysAllow": [], "zzz": 1}, ["key alwaysAllow is not known", "key zzz is not known and has no effect"]),
        ({"description": "…", "name": "X", "_comment": 1, "//": "no", "enabled": True}, []),
    ],
)
def test_a_key_without_effect_is_named_unless_it_is_for_people(
    tmp_path: Path, entry: dict[str, Any], remarks: list[str]
) -> None:
    config = read(tmp_path, {"mcpServers": {"one": {"command": "x", **entry}}})
    assert len(config.servers) == 1
    for remark, expected in zip(config.remarks["one"], remarks, strict=True):
        assert expected in remark


@pytest.mark.parametrize("key", ["excludeTool", "exclude_tools", "disabledTools", "allowed_tools", "include_tools"])
def test_a_server_with_an_unknown_key_that_would_limit_its_tools_is_left_out(tmp_path: Path, key: str) -> None:
    """Without effect, such a key would offer the tools that it excludes."""
    config = read(tmp_path, {"mcpServers": {"one": {"command": "x", key: ["x"]}}})
    assert not config.servers
    assert f"its key {key} is not known, and would limit its tools" in config.problems["one"]


def test_an_unknown_key_that_limits_nothing_leaves_no_server_out(tmp_path: Path) -> None:
    assert one(tmp_path, {"command": "x", "allowedTools": None}).tools.lets("any")


@pytest.mark.parametrize("entry", [{"disabled": "true"}, {"disabled": 1}, {"enabled": False}])
def test_a_server_can_be_switched_off_in_several_forms(tmp_path: Path, entry: dict[str, Any]) -> None:
    assert not read(tmp_path, {"mcpServers": {"one": {"command": "x", **entry}}}).servers


def test_a_list_of_tools_is_the_list_of_allowed_ones(tmp_path: Path) -> None:
    tools = one(tmp_path, {"command": "x", "tools": ["get_*"]}).tools
    assert [tools.lets(name) for name in ("get_one", "set")] == [True, False]


@pytest.mark.parametrize(
    ("entry", "trusted"),
    [
        ({}, (False, False)),
        ({"trust": True}, (True, True)),
        ({"trust": ["get_*"]}, (True, False)),
        ({"trust": []}, (False, False)),
        ({"trust": ["get_one()"]}, (True, False)),
        ({"trust": ["get_one(-l)"]}, (False, False)),  # only with these arguments
    ],
)
def test_trust_is_the_operators_word(tmp_path: Path, entry: Any, trusted: tuple[bool, bool]) -> None:
    server = one(tmp_path, {"command": "x", **entry})
    assert (server.trusts("get_one"), server.trusts("set")) == trusted


@pytest.mark.requirement("S000-104")
def test_variables_are_filled_in_where_a_server_is_described(tmp_path: Path) -> None:
    entry = {
        "command": "${HOME_OF:-/opt}/x",
        "args": ["--token", "${env:TOKEN}", "${workspaceFolder}/src", "$TOKEN", "{TOKEN}"],
        "env": {"A": "<${TOKEN}>", "N": 3, "B": True, "E": "${EMPTY}", "D": "${EMPTY:-default}"},
    }
    server = one(tmp_path, entry)
    assert server.command == "/opt/x"
    assert server.args == ["--token", "t0ken", "/workspace/src", "$TOKEN", "{TOKEN}"]
    assert server.env == {"A": "<t0ken>", "N": "3", "B": "true", "E": "", "D": "default"}
    assert one(tmp_path, {**entry, "sandbox": False}).args[2] == "/workspaces/x/src"
    remote = one(tmp_path, {"url": "https://a.test/${TOKEN}", "headers": {"X": "Bearer ${TOKEN}"}})
    assert (remote.url, remote.headers) == ("https://a.test/t0ken", {"X": "Bearer t0ken"})


# mistakes


@pytest.mark.requirement("S000-024")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "x", "args": ["${NOPE}"]}, "the variable NOPE is not set; set it for the worker, or write"),
        (
            {"url": "http://a.test", "headers": {"X": "${input:key}"}},
            "asks a person, which is not possible here",
        ),
        ({"command": "x", "env": {"A": "${a b}"}}, "${a b} is not understood"),
        ({}, "it has neither a command (stdio) nor a url"),
        ({"type": "sse", "command": "x"}, "it has neither a command (stdio) nor a url"),
        ({"type": "pigeon", "command": "x"}, "type 'pigeon' is not known; there are stdio, http and sse"),
        ({"url": "ftp://a.test"}, "begins with neither http:// nor https://"),
        ({"command": "x", "args": "all"}, "args: Input should be a valid list"),
        ({"command": ["x"]}, "command: Input should be a valid string"),
        ({"command": "x", "timeout": "soon"}, "timeout: Input should be a valid number"),
        ({"command": "x", "connectSeconds": 0}, "connectSeconds: Input should be greater than 0"),
        ({"command": "x", "sse_read_timeout": float("inf")}, "sse_read_timeout: Input should be a finite number"),
        ("x", "it must be an object"),
        (None, "it must be an object"),
    ],
)
def test_a_bad_entry_is_left_out_by_name_and_the_others_go_on(tmp_path: Path, entry: Any, said: str) -> None:
    text = problem(tmp_path, entry)
    assert text.startswith(f"the MCP server 'one' of {tmp_path / 'mcp.json'} is left out: ")
    assert said in text


def test_what_is_disabled_needs_not_even_be_right(tmp_path: Path) -> None:
    config = read(tmp_path, {"mcpServers": {"one": {"disabled": True, "url": "${NOPE}"}}})
    assert (config.servers, config.problems) == ([], {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "has no servers"),
        ('{"mcpServers": []}', "has no servers"),
        ('"' + "x" * 2_000_000 + '"', "is larger than"),
    ],
)
def test_an_empty_file_is_a_mistake(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        read(tmp_path, text)


@pytest.mark.requirement("P-17")
def test_what_a_server_is_given_as_a_secret_is_known_by_its_name(tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN": "ghp_1", "DB_PASSWORD": "pw 2", "NODE_ENV": "production"}
    assert one(tmp_path, {"command": "x", "env": env}).secrets == ["ghp_1", "pw 2"]
    headers = {"Authorization": "Bearer abc", "Accept": "text/plain"}
    assert one(tmp_path, {"url": "https://a.test/?api_key=k1&page=2", "headers": headers}).secrets == ["abc", "k1"]


@settings(max_examples=25)
@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)
    | st.dictionaries(st.text(), st.text())
)
def test_whatever_stands_in_an_entry_it_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.getbasetemp()
    for key in (
        "command",
        "args",
        "env",
        "url",
        "headers",
        "tools",
        "trust",
        "type",
        "show",
        "disabled",
        "idleSeconds",
    ):
        config = read(folder, {"servers": {"one": {"command": "x", key: value}}})
        assert len(config.servers) + len(config.problems) == 1 or value is True


@given(st.text())
def test_text_without_a_reference_stays_as_it_is(text: str) -> None:
    if "${" not in text:
        assert expanded([{"a": text}], {}, {}) == [{"a": text}]


# what no name may contain


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"A": "v\0--bind\0/\0/tmp"}},
        {"command": "x", "env": {"A\0B": "v"}},
        {"command": "x", "cwd": ".\0--share-net"},
        {"command": "x\0y"},
        {"command": "x", "args": ["a", "b\0c"]},
        {"command": "x", "show": ["/opt\0/"]},
        {"url": "https://example.org/\0"},
        {"url": "https://example.org/", "headers": {"A": "b\r\nHost: other"}},
        {"url": "https://example.org/", "headers": {"A\n": "b"}},
    ],
)
def test_control_characters_are_refused_wherever_they_stand(tmp_path: Path, entry: Any) -> None:
    assert "control character" in problem(tmp_path, entry)


# the names of tools


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "git_status", "mcp__git__git_status"),
        ("my server", "get.time/now", "mcp__my_server__get_time_now"),
        ("é", "漢", "mcp______"),
        ("s" * 40, "t" * 40, f"mcp__{'s' * 40}__{'t' * 8}_"),
    ],
)
def test_names_are_such_as_every_model_takes(server: str, tool: str, name: str) -> None:
    assert exposed(server, tool, ()).startswith(name)
    assert exposed(server, tool, ()).startswith(prefix(server))


@given(st.text(), st.text(), st.text())
def test_names_differ_wherever_tools_do(server: str, tool: str, other: str) -> None:
    first = exposed(server, tool, ())
    second = exposed(server, other, {first})
    for name in (first, second):
        assert len(name) <= 64
        assert name.isascii()
        assert name.replace("-", "_").isidentifier()
    assert first != second or tool == other


# a source of tools


@asynccontextmanager
async def source(desk: Toolbench, configured: Path | None) -> AsyncIterator[tuple[list[str], ToolSourceContext]]:
    warnings: list[str] = []
    place = ToolSourceContext("", None, desk.files, desk.sandbox, warnings.append)
    async with McpServers(configured, 5, ENVIRON, desk.root.parent).open(place) as tools:
        assert tuple(tools) == ()
        yield warnings, place


@pytest.mark.requirement("S000-019", "S000-024")
async def test_a_configured_file_that_is_not_there_is_warned_of(bare_desk: Toolbench, home: Path) -> None:
    async with source(bare_desk, Path("/nowhere/mcp.json")) as (warnings, place):
        assert warnings == ["MCP config file not found: /nowhere/mcp.json"]
        assert place.may_be_missing("mcp__git__*")
        assert not place.may_be_missing("read_file")


async def test_where_no_file_is_there_is_no_message(bare_desk: Toolbench, home: Path) -> None:
    async with source(bare_desk, None) as (warnings, place):
        assert (warnings, place.missing) == ([], [])


@pytest.mark.requirement("S000-020", "S000-024")
@pytest.mark.parametrize("servers", [{}, {"off": {"command": "x", "disabled": True}}])
async def test_a_file_without_tools_is_warned_of(bare_desk: Toolbench, servers: Any) -> None:
    file = bare_desk.root.parent / "some.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    async with source(bare_desk, file) as (warnings, _):
        assert warnings == ["No available MCP tools found"]


@pytest.mark.requirement("S000-021", "S000-024")
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", None])
async def test_whatever_goes_wrong_is_warned_of(bare_desk: Toolbench, content: bytes | None) -> None:
    file = bare_desk.root.parent / "some.json"
    file.write_bytes(content or b"")
    if content is None:
        file.write_text('{"mcpServers": ' + "[" * 100_000)
    async with source(bare_desk, file) as (warnings, place):
        (warning,) = warnings
        assert warning.startswith("Failed to load MCP tools: ")
        assert place.may_be_missing("mcp__any")


@pytest.mark.requirement("S000-104")
def test_mcp_is_switched_off_and_on_by_the_settings() -> None:
    assert McpServers.of(Settings.load(environ={"DEPUTIZE_TOOLS_ENABLE_MCP": "false"})) == []
    assert len(McpServers.of(Settings.load(environ={}))) == 1
