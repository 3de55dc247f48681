"""`deputize settings` in its three forms, and the tokens that `deputize token` makes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.doctor import token_row
from deputize.orchestrator.home import SUPERVISOR_LOCK, StackInfo, kept_token, open_private, try_lock, write_info
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served, settings


async def test_settings_are_listed_with_what_differs_from_the_default(tmp_path: Path) -> None:
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_PORT="1", DEPUTIZE_CONFIG="/dev/null")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert done.code == 0
    assert rows["DEPUTIZE_PORT"] == ["1", "default:", "8642"]
    assert rows["DEPUTIZE_HOST"] == ['"127.0.0.1"']
    assert rows["DEPUTIZE_REDIS_URL"] == ["unset"]


async def test_settings_as_json_and_as_a_file(tmp_path: Path) -> None:
    variables = {"DEPUTIZE_SANDBOX_PROCESSES": "99", "DEPUTIZE_CONFIG": "/dev/null"}
    done = await deputize("settings", "--json", cwd=tmp_path, **variables)
    lines = {line["variable"]: line for line in map(json.loads, done.out.splitlines())}
    assert lines["DEPUTIZE_SANDBOX_PROCESSES"]["value"] == "99"
    done = await deputize("settings", "--toml", cwd=tmp_path, **variables)
    assert tomllib.loads(done.out)["sandbox"] == {"processes": 99}
    both = await deputize("settings", "--toml", "--json", cwd=tmp_path)
    assert (both.code, "--toml and --json" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (None, "does not exist"),
        ("short", "needs secrets of at least"),
        ("open", "other users may read"),
        ("a whole secret of a webhook", ""),
    ],
)
async def test_a_trigger_without_usable_secrets_is_a_mistake(tmp_path: Path, secret: str | None, why: str) -> None:
    (config := tmp_path / "d.toml").write_text(
        '[triggers.fix]\nscheme = "github"\nsecret_file = "secret"\nkey = "{/issue/number}"\ntask = "x"\n'
        'allowed = ["ann"]\nauthor = "/sender/login"\n'
    )
    if secret:
        (tmp_path / "secret").write_text(secret)
        (tmp_path / "secret").chmod(0o644 if secret == "open" else 0o600)
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_CONFIG=str(config))
    assert (done.code, why in done.err, "DEPUTIZE_PORT" in done.out) == (3 if why else 0, True, True), done.err
    assert "triggers.fix.secret_file" in done.err or not why


@pytest.mark.parametrize(
    ("toml", "variables", "why"),
    [
        ('[credentials.c]\nhost = "example.org"\ntoken_file = "/nope"', {}, "credentials.c.token_file: /nope"),
        (
            'policy = ["nofile.toml"]',
            {},
            "nofile.toml cannot be read: No such file or directory; correct",
        ),
        ('redis_url = "mysql://x"', {}, "redis_url: "),
        ("", {"DEPUTIZE_REDIS_URL": "foo"}, "correct DEPUTIZE_REDIS_URL"),
        ("", {"DEPUTIZE_REDIS_URL": "redis://localhost:99999/0"}, "correct DEPUTIZE_REDIS_URL"),
        ("", {"DEPUTIZE_REDIS_URL": "redis+sentinel://a"}, "correct DEPUTIZE_REDIS_URL"),
        ("", {"DEPUTIZE_URL": "ftp://x"}, "'ftp://x' is not a service URL"),
        ("", {"DEPUTIZE_URL": "localhost:8642"}, "'localhost:8642' is not a service URL"),
        ("", {"DEPUTIZE_MODEL": "scripted:/nope.yaml"}, "DEPUTIZE_MODEL: there is no script /nope.yaml"),
        ("", {"DEPUTIZE_TOKENS_FILE": "/nope"}, "/nope"),
        ("", {"DEPUTIZE_GIT_CREDENTIALS_FILE": "/nope"}, "git_credentials_file: /nope"),
        ("", {"DEPUTIZE_GIT_SIGNING_KEY_FILE": "/nope"}, "git_signing_key_file: /nope"),
        ("", {"DEPUTIZE_MCP_CONFIG": "nope.json"}, "nope.json cannot be read"),
    ],
)
async def test_what_a_start_would_refuse_is_named_after_the_list(
    tmp_path: Path, toml: str, variables: dict[str, str], why: str
) -> None:
    (config := tmp_path / "d.toml").write_text(toml)
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_CONFIG=str(config), **variables)
    assert (done.code, why in done.err, "DEPUTIZE_PORT" in done.out) == (3, True, True), done.err


async def test_all_that_a_start_would_refuse_is_named(tmp_path: Path) -> None:
    wrong = {"DEPUTIZE_REDIS_URL": "foo", "DEPUTIZE_URL": "bar"}
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_CONFIG="/dev/null", **wrong)
    assert [line[:10] for line in done.err.splitlines()] == ["deputize: "] * 2, done.err


async def test_models_are_listed_with_what_is_missing_and_without_keys(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'model = "house"\n[models.house]\nbase_url = "https://gateway.example.org"\nkey = "HOUSE_KEY"\n'
        'context_window = 64_000\nprice = { input = 1, output = 5 }\nlacks = ["thinking"]\n'
        '[models.other]\nplatform = "bedrock"\nmodel = "claude"\n'
    )
    here: dict[str, Any] = {"DEPUTIZE_CONFIG": str(tmp_path / "own.toml"), "cwd": tmp_path}
    head, house, other = (await deputize("models", **here)).out.splitlines()
    assert head.split()[:2] == ["model", "platform"]
    for part in (
        "house (default)",
        "https://gateway.example.org",
        "64,000",
        "1 / 5",
        "thinking",
        "HOUSE_KEY, which is not",
    ):
        assert part in house
    assert other.split()[:4] == ["other", "bedrock", "–", "claude"]
    done = await deputize("models", "--json", HOUSE_KEY="a-secret", **here)
    facts = json.loads(done.out.splitlines()[0])
    assert (facts["name"], facts["default"], facts["missing"]) == ("house", True, None)
    assert "a-secret" not in done.out


async def test_of_a_model_nothing_is_stated_that_is_not_so_and_no_secret_of_its_address(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'model = "scripted"\n[prices]\nclaude = { input = 2, output = 8 }\n'
        '[models.open]\nbase_url = "http://gateway.example.org/x?token=abc"\n'
        '[models.rented]\nplatform = "bedrock"\nmodel = "claude"\n'
    )
    here: dict[str, Any] = {"DEPUTIZE_CONFIG": str(tmp_path / "own.toml"), "cwd": tmp_path}
    listed = await deputize("models", **here)
    rows = [re.split("  +", line) for line in listed.out.splitlines()[1:]]
    assert [row[1] for row in rows] == ["script", "anthropic", "bedrock"]
    assert [row[5] for row in rows] == ["–", "by name", "2 / 8"]
    assert [row[7] for row in rows] == ["–", "none is named", "left to the platform's SDK"]
    done = await deputize("models", "--json", **here)
    facts = [json.loads(line) for line in done.out.splitlines()]
    assert [each["platform"] for each in facts] == ["script", "anthropic", "bedrock"]
    assert facts[1]["base_url"] == "http://gateway.example.org/x"
    assert "abc" not in listed.out + done.out


NAMED_BY = {
    "deputize.toml": "--config or DEPUTIZE_CONFIG",
    "mcp.json": "DEPUTIZE_MCP_CONFIG",
    ".mcp.json": "DEPUTIZE_MCP_CONFIG",
    "skills": "DEPUTIZE_SKILLS_DIR",
}
"""What is not used where it merely lies in the working directory, and what names it."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "skills/one").mkdir(parents=True)
    (folder / "skills/one/SKILL.md").touch()
    (folder / "mcp.json").write_text("{}")
    (folder / ".mcp.json").write_text("{}")
    (folder / "deputize.toml").write_text("port = 1\n")
    return folder


def hint_of(*names: str) -> str:
    hints = [f"found ./{name}, which is not used; name it with {NAMED_BY[name]}" for name in names]
    return "; ".join(hints) + "\n" if hints else ""


async def test_one_line_names_what_lies_in_the_working_directory_and_is_not_used(here: Path, tmp_path: Path) -> None:
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = await deputize("settings", cwd=here, **own)
    assert (done.code, done.err) == (0, hint_of(*NAMED_BY))
    assert not any(line.split()[:2] == ["DEPUTIZE_PORT", "1"] for line in done.out.splitlines())
    done = await deputize("settings", cwd=here / "skills", **own)
    assert (done.code, done.err) == (0, "")


async def test_what_is_named_is_not_hinted_at(here: Path, tmp_path: Path) -> None:
    named = {"DEPUTIZE_MCP_CONFIG": "mcp.json", "DEPUTIZE_SKILLS_DIR": "skills"}
    done = await deputize("--config", "deputize.toml", "settings", cwd=here, **named)
    assert (done.code, done.err) == (0, "")
    done = await deputize("settings", cwd=here, DEPUTIZE_CONFIG="deputize.toml", **named)
    assert (done.code, done.err) == (0, "")
    here.rename(tmp_path / "deputize")  # now it is this user's own configuration folder
    done = await deputize("settings", cwd=tmp_path / "deputize", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("given", [["submit", "read"], ["submit,read"], ["submit, read", "submit"]], ids=" & ".join)
async def test_a_new_token_is_printed_once_with_its_entry(tmp_path: Path, given: list[str]) -> None:
    scopes = [each for scope in given for each in ("--scope", scope)]
    done = await deputize("token", "new", "ci", *scopes, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    token, entry = done.out.split("\n", 1)
    assert len(token) > 40
    digest = sha256(token.encode()).hexdigest()
    assert tomllib.loads(entry) == {"token": [{"name": "ci", "sha256": digest, "scopes": ["submit", "read"]}]}
    assert token not in entry
    assert (await deputize("token", "new", "ci", "--scope", "read", cwd=tmp_path)).out.split("\n")[0] != token
    assert list(tmp_path.iterdir()) == []


async def test_a_stacks_own_token_can_be_exchanged_and_that_of_the_settings_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first, second = [(await deputize("token", "rotate", DEPUTIZE_HOME=str(home))).out.strip() for _ in range(2)]
    assert (len(first), first != second, kept_token(home)) == (43, True, second)
    refused = await deputize("token", "rotate", DEPUTIZE_HOME=str(home), DEPUTIZE_TOKEN="x" * 43)
    assert (refused.code, "DEPUTIZE_TOKEN; change it there" in refused.err, kept_token(home)) == (2, True, second)
    useless: list[dict[str, Any]] = [{"DEPUTIZE_NO_TOKEN": "1"}, {"DEPUTIZE_URL": "http://127.0.0.1:1"}]
    for each in useless:
        refused = await deputize("token", "rotate", DEPUTIZE_HOME=str(home), **each)
        assert (refused.code, refused.out, next(iter(each)) in refused.err, kept_token(home)) == (2, "", True, second)
    (tokens := tmp_path / "tokens.toml").write_text("")
    with_file: dict[str, Any] = {"DEPUTIZE_NO_TOKEN": "1", "DEPUTIZE_TOKENS_FILE": str(tokens)}
    third = await deputize("token", "rotate", DEPUTIZE_HOME=str(home), **with_file)
    assert (third.code, third.out.strip()) == (0, kept_token(home))


@pytest.mark.parametrize(
    "command", [["list"], ["status"], ["workers"], ["cancel", "--all"], ["logs", "@last"], ["permissions"]]
)
async def test_a_token_that_is_set_is_the_one_that_this_machines_stack_gets(tmp_path: Path, command: list[str]) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "cwd": tmp_path}
    service, using = FakeService(), settings(no_token=False, token="right")
    service.fleet.append(worker_card())
    with open_private(tmp_path / SUPERVISOR_LOCK, "ab") as lock:
        assert try_lock(lock, fcntl.LOCK_EX)
        async with served(service, using) as url:
            write_info(tmp_path, StackInfo(os.getpid(), url, "right", "redis://nowhere", None, 1, stays=True))
            kept = await deputize(*command, **here)
            wrong = await deputize(*command, DEPUTIZE_TOKEN="wrong", **here)
    assert "not a token" not in kept.err
    assert (wrong.code, "this is not a token of the service" in wrong.err) == (3, True), wrong.err


async def test_a_token_that_is_added_to_the_file_of_a_service_is_accepted_at_once(tmp_path: Path) -> None:
    service, file = FakeService(), tmp_path / "tokens.toml"
    tokens: dict[str, str] = {}

    async def new(name: str, *more: str) -> None:
        done = await deputize("token", "new", name, "--file", str(file), *more)
        assert (done.code, len(done.out.split())) == (0, 1)
        assert str(file) in done.err
        tokens[name] = done.out.strip()

    await new("reader", "--scope", "read", "--expires", "90d", "--owner", "ci", "--spend", "weekly_usd=20.5")
    async with served(service, settings(tokens_file=file, no_token=False)) as url:
        await new("boss", "--scope", "admin", "--scope", "submit")
        listed, submitted, shown = [
            await deputize(*command, DEPUTIZE_URL=url, DEPUTIZE_TOKEN=tokens[name])
            for name, command in (
                ("reader", ["list"]),
                ("reader", ["run", "x", "--detach"]),
                ("boss", ["audit", "--json"]),
            )
        ]
        table = await deputize("audit", DEPUTIZE_URL=url, DEPUTIZE_TOKEN=tokens["boss"])
        unknown = await deputize("list", DEPUTIZE_URL=url, DEPUTIZE_TOKEN="x")
    assert listed.code == 0
    assert (submitted.code, "'reader' lacks the scope submit" in submitted.err) == (3, True)
    assert (unknown.code, "not a token of the service" in unknown.err) == (3, True)
    (refused,) = map(json.loads, shown.out.splitlines())
    assert (refused["token"], refused["status"], refused["route"]) == ("reader", 403, "/v1/delegations")
    head, row = table.out.splitlines()
    assert head.split() == ["at", "token", "client", "request", "status", "delegations"]
    assert row.split()[2:] == ["reader", "127.0.0.1", "POST", "/v1/delegations", "403"]
    assert file.read_text().count("expires = 20") == 1
    entries = tomllib.loads(file.read_text())["token"]
    assert [(each.get("owner"), each.get("spend")) for each in entries] == [("ci", {"weekly_usd": 20.5}), (None, None)]
    assert [name for name, token in tokens.items() if token in file.read_text()] == []


async def test_an_audit_log_of_several_pages_has_a_cursor(tmp_path: Path) -> None:
    service = FakeService()
    async with served(service) as url:
        empty = await deputize("audit", DEPUTIZE_URL=url)
        for number in range(3):
            await deputize("run", f"task {number}", "--detach", DEPUTIZE_URL=url)
        first = await deputize("audit", "--limit", "2", DEPUTIZE_URL=url)
        rest = await deputize("audit", "--cursor", "2-0", DEPUTIZE_URL=url)
        counted = service.log[0].model_copy(update={"id": "9-0", "at": service.log[0].at - timedelta(days=1)})
        service.log.append(counted)
        times = [line[:19] for line in (await deputize("audit", DEPUTIZE_URL=url)).out.splitlines()[1:]]
        ids = [
            json.loads(line)["id"] for line in (await deputize("audit", "--json", DEPUTIZE_URL=url)).out.splitlines()
        ]
    assert times == sorted(times, reverse=True)
    assert ids[0] == "9-0"
    assert (empty.out, "no request" in empty.err) == ("", True)
    assert (len(first.out.splitlines()), "--cursor 2-0" in first.err) == (3, True)
    assert (len(rest.out.splitlines()), "--cursor" in rest.err) == (2, False)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["ci"], 2, "'--scope'. Choose from: read, submit, "),
        (["ci", "--scope", "read", "--expires", "2020-01-01"], 2, "is not a duration such as 90s, 15min, 24h or 7d"),
        (["ci", "--scope", "write"], 2, "'write'"),
        (["default", "--scope", "read"], 2, "DEPUTIZE_TOKEN"),
        (["a b", "--scope", "read"], 2, "NAME"),
        (["ci", "--scope", "read", "--owner", "a b"], 2, "--owner"),
        (["ci", "--scope", "read", "--owner", "default"], 2, "DEPUTIZE_TOKEN"),
        (["ci", "--scope", "read", "--spend", "weekly_usd"], 2, "WINDOW=USD"),
        (["ci", "--scope", "read", "--spend", "hourly_usd=1"], 2, "--spend"),
        (["ci", "--scope", "read", "--spend", "daily_usd=-1"], 2, "--spend"),
        (["ci", "--scope", "read", "--spend", "daily_usd=inf"], 2, "--spend"),
        (["old", "--scope", "read", "--file", "<file>"], 3, "that of the token 'old', too"),
        (["ci", "--scope", "read", "--file", "<open>"], 3, "chmod 600"),
    ],
)
async def test_what_cannot_be_a_token_is_refused(tmp_path: Path, arguments: list[str], code: int, why: str) -> None:
    file, is_open = tmp_path / "tokens.toml", tmp_path / "open.toml"
    is_open.touch(0o644)
    await deputize("token", "new", "old", "--scope", "read", "--file", str(file))
    given: dict[str, Any] = {"<file>": str(file), "<open>": str(is_open)}
    done = await deputize("token", "new", *(given.get(each, each) for each in arguments))
    assert (done.code, done.out) == (code, "")
    assert why in done.err


async def test_the_doctor_looks_at_the_tokens_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    await deputize("token", "new", "ci", "--scope", "read", "--file", str(file))
    found: list[str] = []
    for mode in (0o600, 0o644):
        file.chmod(mode)
        found.append(token_row(settings(tokens_file=file)).detail)
    assert found[0] == "1 accepted"
    assert "chmod 600" in found[1]
