"""The tables ``models.NAME``: what they mean, where their keys are, and that a wrong one is named with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings

KEY = "gw-0123456789-of-the-gateway"
WHOLE = """
[models.house]
platform = "https://gateway.example/anthropic"
key = "HOUSE_KEY"
model = "qwen3-coder"
context_window = 64_000
max_output = 8_000
price = {input = 0.2, output = 0.8}
lacks = ["cache_control", "thinking"]

[models."claude-opus-5-5"]
max_output = 32_000

[models.rock]
platform = "bedrock"
model = "anthropic.claude-opus-5-5"
"""


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    config = tmp_path / "deputize.toml"
    config.write_text(text)
    return Settings.load(config, environ=environ)


def test_a_table_has_all_that_an_endpoint_is(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE, HOUSE_KEY=KEY)
    house = settings.table_of("house")
    assert (house.platform, house.base_url) == ("anthropic", "https://gateway.example/anthropic")
    assert (house.model, house.context_window, house.max_output) == ("qwen3-coder", 64_000, 8_000)
    assert house.price is not None
    assert (house.price.output, len(house.lacks)) == (0.8, 2)
    assert house.read_keys(settings.model_endpoint) == [KEY]
    assert settings.table_of("claude-opus-5-5").max_output == 32_000
    assert settings.table_of("another").max_output is None


@pytest.mark.parametrize(
    ("model", "environ", "reached"),
    [
        ("house", {}, True),
        ("rock", {}, True),
        ("claude-opus-5-5", {}, False),
        ("claude-opus-5-5", {"ANTHROPIC_API_KEY": "k"}, True),
        ("another", {}, False),
        ("scripted", {}, True),
        (None, {"DEPUTIZE_MODEL": "rock"}, True),
        (None, {}, False),
    ],
)
def test_a_table_with_an_endpoint_of_its_own_needs_no_other(
    tmp_path: Path, model: str | None, environ: dict[str, str], reached: bool
) -> None:
    assert loaded(tmp_path, WHOLE, **environ).reaches(model) is reached


def test_a_key_is_in_a_variable_in_the_file_of_a_variable_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    path = str(tmp_path / "key")
    for key, environ in {
        "HOUSE_KEY": {"HOUSE_KEY": KEY},
        "OTHER_KEY": {"OTHER_KEY_FILE": path},
        path: {},
    }.items():
        settings = loaded(tmp_path, f'[models.house]\nbase_url = "http://h"\nkey = "{key}"\n', **environ)
        assert settings.table_of("house").read_keys(settings.model_endpoint) == [KEY]
        assert KEY in settings.secrets
        assert KEY not in repr(settings) + str(settings.child_environment())


def test_only_workers_get_the_variables_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"HOUSE_KEY": KEY, "AWS_SECRET_ACCESS_KEY": "secret-of-aws", "AWS_BEARER_TOKEN_BEDROCK": "bearer-of-aws"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    settings = loaded(tmp_path, WHOLE, **secrets)
    assert settings.endpoint_variables() == secrets
    assert {*secrets.values()} <= {*settings.secrets}
    environment = settings.child_environment()
    assert not {*secrets, *secrets.values()} & {*environment, *environment.values()}
    again = Settings.load(environ={**environment, **settings.endpoint_variables()})
    assert (again.models, again.endpoint_variables()) == (settings.models, secrets)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("HOUSE_KEY", "key names the variable HOUSE_KEY, which is not set; set it, or HOUSE_KEY_FILE"),
        ("/nowhere/key", "key names the file /nowhere/key, which cannot be read: No such file or directory"),
        ("{}/empty", "key names the file {}/empty, which is empty"),
        ("{}/binary", "key names the file {}/binary, which cannot be read: it is not UTF-8"),
    ],
)
def test_a_key_that_is_not_there_is_named_where_it_is_needed(tmp_path: Path, key: str, reason: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff")
    settings = loaded(tmp_path, f'[models.house]\nkey = "{key.format(tmp_path)}"\n')
    assert settings.secrets == []
    with pytest.raises(Misconfigured) as error:
        settings.table_of("house").read_keys(settings.model_endpoint)
    assert str(error.value) == reason.format(tmp_path)


WRONG: dict[str, tuple[str, str]] = {
    'platform = "azure"': ("models/x/platform", "there is no platform 'azure'; there are anthropic, aws"),
    'platform = "bedrok"': ("models/x/platform", "did you mean bedrock? A gateway is named by its URL"),
    'platform = "https://h"\nbase_url = "https://h"': ("models/x", "set one of them"),
    'platform = "ftp://h"': ("models/x/platform", "A gateway is named by its URL, with http"),
    'base_url = "ftp://h"': ("models/x/base_url", "must begin with http:// or https://"),
    'base_url = "gateway.example"': ("models/x/base_url", "must begin with http:// or https://"),
    'base_url = "https://me:pw-123@h"': ("models/x/base_url", "name its variable or file in `key`"),
    f'key = "{KEY}"': ("models/x/key", "a variable in upper case (MY_GATEWAY_KEY), or a file by its absolute path"),
    'key = "keys/house"': ("models/x/key", "the key itself does not belong here"),
    'platform = "google-cloud"\nkey = "K"': ("models/x", "google-cloud has no key"),
    "context_window = 10": ("models/x/context_window", "greater than or equal to 1000"),
    "max_output = 1": ("models/x/max_output", "greater than or equal to 256"),
    "context_window = 8000\nmax_output = 8000": ("models/x", "max_output must be less than context_window"),
    'lacks = ["thinking", "tools"]': (
        "models/x/lacks/1",
        "'cache_control', 'thinking' or 'effort'",
    ),
    "price = {input = 1}": ("models/x/price/output", "Field required"),
    "context_windw = 9000": ("models/x/context_windw", "did you mean 'context_window'?"),
}


@pytest.mark.parametrize(("lines", "named"), WRONG.items(), ids=WRONG)
def test_a_wrong_table_is_refused_with_its_key_and_what_to_do(
    tmp_path: Path, lines: str, named: tuple[str, str]
) -> None:
    with pytest.raises(Misconfigured) as error:
        loaded(tmp_path, f"[models.x]\n{lines}\n")
    place, advice = named
    assert str(error.value).startswith(f"settings: {place}: ")
    assert advice in str(error.value)
    assert str(error.value).endswith("deputize.toml or DEPUTIZE_MODELS")
    assert not any(secret in str(error.value) for secret in (KEY, "pw-123"))


@pytest.mark.parametrize("name", ["scripted", "scripted-too", "anthropic:x", " "])
def test_a_table_cannot_have_a_name_that_means_another_model(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be the name of a table"):
        loaded(tmp_path, f'[models."{name}"]\nmodel = "m"\n')


def test_a_variable_holds_the_tables_as_json() -> None:
    tables: dict[str, Any] = {"DEPUTIZE_MODELS": '{"house": {"base_url": "http://h", "model": "m"}}'}
    assert Settings.load(environ=tables).table_of("house").model == "m"
