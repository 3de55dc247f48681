"""Settings: the environment beats the file, the file beats the default, and every mistake is named."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.shared.settings.files import configuration_folder
from deputize.shared.settings.loading import secret_variables
from deputize.shared.settings.variables import HEADER_VARIABLES
from tests.processes.ordinary_user import need_ordinary_user
from tests.worker.forked import in_child


def test_the_environment_beats_the_file_and_the_file_beats_the_default(tmp_path: Path) -> None:
    config = tmp_path / "deputize.toml"
    config.write_text('port = 1\nmodel = "from-file"\n[caps]\nmax_turns = 7\n')
    settings = Settings.load(config, environ={"DEPUTIZE_PORT": "2"})
    assert (settings.port, settings.model, settings.host) == (2, "from-file", "127.0.0.1")
    assert (settings.caps.max_turns, settings.caps.max_tool_calls) == (7, 1000)


def test_a_secret_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-key\n")
    settings = Settings.load(environ={"ANTHROPIC_API_KEY_FILE": str(tmp_path / "key")})
    assert settings.model_endpoint["ANTHROPIC_API_KEY"].get_secret_value() == "sk-key"
    assert settings.has_model_endpoint
    assert "sk-key" not in repr(settings)


@pytest.mark.parametrize("variable", [*secret_variables(), "ANTHROPIC_BASE_URL"])
def test_every_secret_may_be_a_file_and_is_masked(variable: str, tmp_path: Path) -> None:
    value = "X-Key: a-secret-value" if variable in HEADER_VARIABLES else "a-secret-value"
    value = "https://x:a-secret-value@host" if "URL" in variable else value
    secret = "YSBzZWNyZXQga2V5IG9mIG1vcmUgdGhhbiAyNCBieXRlcw==" if "WEBHOOK" in variable else "a-secret-value"
    (tmp_path / "file").write_text(f"whsec_{secret}\n" if "WEBHOOK" in variable else f"{value}\n")
    settings = Settings.load(environ={"DEPUTIZE_REDIS_URL": "redis://h", f"{variable}_FILE": str(tmp_path / "file")})
    assert secret in settings.secrets
    assert secret not in repr(settings)


def test_a_file_that_is_no_text_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"sk-\xff-key")
    with pytest.raises(Misconfigured, match=r"DEPUTIZE_TOKEN_FILE names .*key, which is not UTF-8") as refusal:
        Settings.load(environ={"DEPUTIZE_TOKEN_FILE": str(tmp_path / "key")})
    assert "sk-" not in "".join(traceback.format_exception(refusal.value)).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"DEPUTIZE_PORT": "many"}, "port"),
        ({"DEPUTIZE_LEASE_SECONDS": "0"}, "lease_seconds"),
        ({"DEPUTIZE_LOG_LEVEL": "INFOO"}, "log_level"),
        ({"DEPUTIZE_LOG_FORMAT": "xml"}, "log_format"),
        ({"DEPUTIZE_CAP_MAX_TURNS": "-1"}, "max_turns"),
        ({"DEPUTIZE_TOOLS_ENABLE_BASH": "maybe"}, "tools/enable_bash"),
        ({"DEPUTIZE_TOOLS_DISCOVERY_COMMAND": "find-tools"}, "tools: discovery_command needs call_command"),
        ({"DEPUTIZE_SPEND_DAILY_USD": "-1"}, "spend/daily_usd"),
        ({"DEPUTIZE_PRICES": "{"}, "prices: is not valid JSON"),
        ({"DEPUTIZE_CONFIG": "/nowhere/deputize.toml"}, "does not exist"),
        ({"ANTHROPIC_API_KEY_FILE": "/nowhere/key"}, "ANTHROPIC_API_KEY_FILE"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        Settings.load(environ=environ)


@pytest.mark.parametrize(
    ("environ", "places"),
    [
        ({"DEPUTIZE_CONCURRENCY": "many"}, "DEPUTIZE_CONCURRENCY"),
        ({"DEPUTIZE_CAP_MAX_TURNS": "x"}, "DEPUTIZE_CAP_MAX_TURNS"),
        ({"DEPUTIZE_SANDBOX": "perhaps"}, "DEPUTIZE_SANDBOX"),
        ({"DEPUTIZE_PRICES": '{"x": {"input": "a lot"}}'}, "DEPUTIZE_PRICES"),
        ({"DEPUTIZE_PORT": "x", "DEPUTIZE_TOOLS_ENABLE_WEB": "x"}, "DEPUTIZE_PORT or DEPUTIZE_TOOLS_ENABLE_WEB"),
    ],
)
def test_where_a_wrong_setting_can_be_corrected_is_named(environ: dict[str, str], places: str) -> None:
    with pytest.raises(Misconfigured, match=f"; correct deputize.toml or {places}$"):
        Settings.load(environ=environ)


TEXTS_OF_HEADERS = {
    "DEPUTIZE_TOKEN": "token",
    "DEPUTIZE_TOOLS_SEARCH_KEY": "tools/search_key",
    "DEPUTIZE_TOOLS_USER_AGENT": "tools/user_agent",
}
UNSENT = {
    "end": "hunter2\n",
    "middle": "hunt\r\ner2",
    "tab": "\thunter2",
    "blank": "hunter2 ",
    "bytes": "hunter2\udcff",
}


@pytest.mark.parametrize("text", UNSENT.values(), ids=UNSENT)
@pytest.mark.parametrize("variable", TEXTS_OF_HEADERS)
def test_what_no_header_can_have_is_refused_with_its_name_and_not_shown(variable: str, text: str) -> None:
    where = rf"settings: {TEXTS_OF_HEADERS[variable]}: there is .*; correct deputize.toml or {variable}$"
    with pytest.raises(Misconfigured, match=where) as refusal:
        Settings.load(environ={variable: text})
    assert "hunt" not in str(refusal.value)


def test_a_token_in_a_file_that_no_header_can_have_is_refused_by_its_variable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunt\ner2\n")
    with pytest.raises(Misconfigured, match=r"no header can have.*; correct deputize\.toml or DEPUTIZE_TOKEN_FILE$"):
        Settings.load(environ={"DEPUTIZE_TOKEN_FILE": str(tmp_path / "token")})


def test_a_token_may_have_all_letters_and_a_key_of_a_search_provider_only_ascii() -> None:
    token = Settings.load(environ={"DEPUTIZE_TOKEN": "clé secrète"}).token
    assert token
    assert token.get_secret_value() == "clé secrète"
    with pytest.raises(Misconfigured, match="tools/search_key: there is a character that is not ASCII"):
        Settings.load(environ={"DEPUTIZE_TOOLS_SEARCH_KEY": "clé"})


def test_an_unknown_key_of_the_file_is_named_with_the_closest_one(tmp_path: Path) -> None:
    config = tmp_path / "deputize.toml"
    config.write_text("concurency = 5\n")
    with pytest.raises(Misconfigured, match=r"did you mean 'concurrency'\?; correct /\S+deputize\.toml$"):
        Settings.load(config, environ={})


@pytest.mark.parametrize("how", ["option", "variable", "own"])
def test_the_file_in_use_is_named_where_a_setting_is_wrong(tmp_path: Path, how: str) -> None:
    config = tmp_path / ("deputize/deputize.toml" if how == "own" else "other.toml")
    config.parent.mkdir(exist_ok=True)
    config.write_text('port = "x"\n')
    environ = {"variable": {"DEPUTIZE_CONFIG": str(config)}, "own": {"XDG_CONFIG_HOME": str(tmp_path)}}.get(how, {})
    with pytest.raises(Misconfigured) as refused:
        Settings.load(config if how == "option" else None, environ=environ)
    assert str(refused.value).endswith(f"; correct {config} or DEPUTIZE_PORT")


def test_a_child_process_reads_the_same_settings(tmp_path: Path) -> None:
    settings = Settings.load(
        environ={"DEPUTIZE_CAP_MAX_TURNS": "9", "DEPUTIZE_TOKEN": "secret"},
        home=tmp_path,
        local=True,
        queues=["a", "b"],
        spend={"daily_usd": 20, "per_label": {"team:docs": 5}},
        prices={"house": {"input": 1, "output": 5}},
        tools={"enable_note": True, "allowed_hosts": ["a.example", "*.b.example"], "search_key": "key"},
    )
    environ = settings.child_environment()
    again = Settings.load(environ={name: text for name, text in environ.items() if name.startswith("DEPUTIZE_")})
    assert again.model_dump(exclude={"model_endpoint"}) == settings.model_dump(exclude={"model_endpoint"})


@pytest.mark.parametrize("name", ["DEPUTIZE_MCP_CONFIG", "DEPUTIZE_SKILLS_DIR", "DEPUTIZE_TOOLS_MCP_CONFIG_PATH"])
def test_a_child_process_in_another_directory_finds_what_is_named_from_here(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").touch()
    assert Settings.load(environ={name: "here"}).child_environment()[name] == str(tmp_path / "here")
    assert Settings.load(environ={name: "elsewhere"}).child_environment()[name] == "elsewhere"


def test_policy_files_are_listed_as_in_path_and_reach_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(environ={"DEPUTIZE_POLICY": "a.toml: /b,c.toml"})
    assert settings.policy == (tmp_path / "a.toml", Path("/b,c.toml"))
    passed = settings.child_environment()["DEPUTIZE_POLICY"]
    assert Settings.load(environ={"DEPUTIZE_POLICY": passed}).policy == settings.policy
    assert "DEPUTIZE_POLICY" not in Settings.load(environ={"DEPUTIZE_POLICY": " "}).child_environment()


@pytest.mark.parametrize(
    ("value", "names"), [('"a:b.toml"', ["a:b.toml"]), ('["a.toml", "/b.toml"]', ["a.toml", "/b.toml"])]
)
def test_policy_files_of_a_file_lie_beside_it(tmp_path: Path, value: str, names: list[str]) -> None:
    config = tmp_path / "deputize.toml"
    config.write_text(f"policy = {value}\n")
    assert Settings.load(config, environ={}).policy == tuple(tmp_path / name for name in names)


def test_home_is_made_absolute() -> None:
    assert Settings.load(environ={"DEPUTIZE_HOME": "~/x"}).home == Path.home() / "x"


@pytest.mark.parametrize("name", ["home", "workspace_root", "scripts", "mcp_config", "skills_dir"])
def test_a_relative_path_of_a_file_begins_beside_the_file(name: str, tmp_path: Path) -> None:
    config = tmp_path / "deputize.toml"
    config.write_text(f'{name} = "there"\n')
    assert Settings.load(config, environ={}).model_dump()[name] == tmp_path / "there"


def test_only_workers_get_the_key_of_the_model() -> None:
    settings = Settings.load(environ={"ANTHROPIC_API_KEY": "sk-key"})
    assert settings.endpoint_variables() == {"ANTHROPIC_API_KEY": "sk-key"}
    assert "sk-key" not in settings.child_environment().values()


def test_a_blank_variable_is_not_left_to_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", " ")
    monkeypatch.setenv("OTHER_PROGRAM", "")
    Settings.load()
    assert ("SSL_CERT_FILE" in os.environ, "OTHER_PROGRAM" in os.environ) == (False, True)


@pytest.mark.parametrize("value", [True, False, "required"])
def test_the_sandbox_is_a_switch_and_a_table(value: bool | str, tmp_path: Path) -> None:
    config = tmp_path / "deputize.toml"
    config.write_text(f"sandbox = {str(value).lower() if isinstance(value, bool) else repr(value)}\n")
    environ = {"DEPUTIZE_SANDBOX_SHOW": "/opt/a,/opt/b"}
    assert Settings.model_validate({"sandbox": value}).sandbox.enabled == value
    assert Settings.load(config, environ=environ).sandbox.enabled == value
    assert Settings.load(config, environ=environ).sandbox.show == [Path("/opt/a"), Path("/opt/b")]
    config.write_text('[sandbox]\nenabled = "required"\nshow = ["tools"]\n')
    settings = Settings.load(config, environ={"DEPUTIZE_SANDBOX": str(value)})
    assert (settings.sandbox.enabled, settings.sandbox.show) == (value, [tmp_path / "tools"])
    passed = {name: text for name, text in settings.child_environment().items() if name.startswith("DEPUTIZE_")}
    assert Settings.load(environ=passed).sandbox == settings.sandbox


@pytest.mark.parametrize("table", ["tools", "caps", "spend", "sandbox"])
def test_what_is_no_table_is_named_also_where_a_variable_sets_a_part_of_it(table: str, tmp_path: Path) -> None:
    part = {"tools": "MAX_DEPTH", "caps": "MAX_TURNS", "spend": "DAILY_USD", "sandbox": "PROCESSES"}[table]
    config = tmp_path / "deputize.toml"
    config.write_text(f"{table} = 3\n")
    with pytest.raises(Misconfigured, match=table):
        Settings.load(config, environ={f"DEPUTIZE_{table.upper()}_{part}": "2"})


def test_a_setting_that_is_another_one_now_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("workspace_max_bytes = 1\n")
    with pytest.raises(Misconfigured, match=r"workspace_max_bytes is sandbox\.disk_bytes now"):
        Settings.load(tmp_path / "mine.toml", environ={})
    with pytest.raises(Misconfigured, match="DEPUTIZE_WORKSPACE_MAX_BYTES is DEPUTIZE_SANDBOX_DISK_BYTES now"):
        Settings.load(environ={"DEPUTIZE_WORKSPACE_MAX_BYTES": "1"})


def test_hosts_that_commands_may_reach_are_names_and_patterns_of_names() -> None:
    environ = {"DEPUTIZE_SANDBOX_SETUP_HOSTS": "Example.org., *.example.org,10.0.0.5,::1,*"}
    expected = ["example.org", "*.example.org", "10.0.0.5", "::1", "*"]
    assert Settings.load(environ=environ).sandbox.setup_hosts == expected


@pytest.mark.parametrize(
    "host", ["https://example.org", "example.org:443", "example.org/simple", "*example.org", "a.*.org", "a b", ""]
)
def test_what_is_no_host_is_refused_with_an_example(host: str) -> None:
    with pytest.raises(Misconfigured, match=r"(?i)setup_hosts.*is not a host such as example\.org"):
        Settings.load(environ={}, sandbox={"setup_hosts": [host]})


def test_a_user_without_a_home_has_no_settings_of_its_own_and_is_asked_for_a_place() -> None:
    """As in a container whose user is only a number."""
    need_ordinary_user()

    def load() -> list[str]:
        os.environ.pop("HOME", None)
        with pytest.raises(Misconfigured) as refused:
            Settings.load(environ={})
        return [
            str(refused.value),
            str(Settings.load(environ={"DEPUTIZE_HOME": "/x"}).home),
            str(configuration_folder({})),
        ]

    refused, home, own = in_child(load, ordinary=True)
    assert "this user has no home; set HOME" in refused
    assert "DEPUTIZE_HOME" in refused
    assert (home, own) == ("/x", "/~/.config/deputize")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("DEPUTIZE_TOKN", "did you mean DEPUTIZE_TOKEN?"),
        ("deputize_model", "did you mean DEPUTIZE_MODEL?"),
        ("DEPUTIZE_TOOLS_PRIVATE_HOST", "did you mean DEPUTIZE_TOOLS_PRIVATE_HOSTS?"),
        ("DEPUTIZE_MAX_TURNS", "did you mean DEPUTIZE_CAP_MAX_TURNS?"),
        ("DEPUTIZE_TOKEN_FIEL", "did you mean DEPUTIZE_TOKEN_FILE?"),
    ],
)
def test_a_misspelt_variable_is_warned_of(caplog: pytest.LogCaptureFixture, name: str, hint: str) -> None:
    Settings.load(environ={name: "x", "DEPUTIZE_EMPTY": ""})
    (message,) = caplog.messages
    assert name in message
    assert message.endswith(hint)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("scripted:script.yaml", "scripted:{here}/script.yaml"),
        ("scripted:../a/b.json", "scripted:{here}/../a/b.json"),
        ("scripted:~/s.yaml", "scripted:{home}/s.yaml"),
        ("scripted:/s.yaml", "scripted:/s.yaml"),
        ("scripted", "scripted"),
        ("scripted:", "scripted:"),
        ("anthropic:claude", "anthropic:claude"),
    ],
)
def test_a_script_is_found_where_its_name_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, held: str
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = held.format(here=tmp_path, home=Path.home())
    assert Settings.load(environ={"DEPUTIZE_MODEL": given}).model == wanted
