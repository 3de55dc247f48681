"""The list of settings: complete, with defaults and values, and a deputize.toml that can be read back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from deputize.shared.settings import Settings
from deputize.shared.settings.fields import SettingsFields
from deputize.shared.settings.listing import HIDDEN, as_toml, setting_lines

SECRET = "0123456789012345678901234567890123456789"


def settings_of(**variables: str) -> Settings:
    return Settings.load(environ={f"DEPUTIZE_{name}": text for name, text in variables.items()})


def test_every_setting_that_a_person_may_set_is_listed_with_its_variable() -> None:
    lines = {line.variable: line for line in setting_lines(settings_of(PORT="1", CAP_MAX_TURNS="7"))}
    assert (lines["DEPUTIZE_PORT"].value, lines["DEPUTIZE_PORT"].default) == ("1", "8642")
    assert (lines["DEPUTIZE_CAP_MAX_TURNS"].table, lines["DEPUTIZE_CAP_MAX_TURNS"].value) == ("caps", "7")
    assert "script" in lines["DEPUTIZE_MODEL"].description
    own = {"local", "temporary", "stack_since", "model_endpoint"}
    assert {line.table or line.name for line in lines.values()} == set(SettingsFields.model_fields) - own


def test_without_settings_everything_is_at_its_default() -> None:
    assert [line.variable for line in setting_lines(settings_of()) if not line.is_default] == []


def test_a_secret_is_listed_without_its_value() -> None:
    lines = setting_lines(settings_of(TOKEN=SECRET))
    assert {line.value for line in lines if line.name == "token"} == {HIDDEN}
    assert SECRET not in "\n".join(as_toml(lines))
    assert HIDDEN in next(text for text in as_toml(lines) if text.startswith("# token"))


def test_the_password_in_an_address_is_not_listed() -> None:
    lines = setting_lines(settings_of(REDIS_URL=f"redis://:{SECRET}@redis.test/0"))
    assert {line.value for line in lines if line.name == "redis_url"} == {HIDDEN}
    assert SECRET not in "\n".join(as_toml(lines))
    plain = setting_lines(settings_of(REDIS_URL="redis://redis.test/0"))
    assert {line.value for line in plain if line.name == "redis_url"} == {'"redis://redis.test/0"'}


def test_what_is_printed_as_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    given = settings_of(
        PORT="1", QUEUES="a,b", SANDBOX_PROCESSES="99", PRICES='{"my-model": {"input": 1, "output": 5.5}}', TOKEN=SECRET
    )
    file = tmp_path / "deputize.toml"
    file.write_text("\n".join(as_toml(setting_lines(given))))
    file.chmod(0o600)
    found = Settings.load(file, environ={"DEPUTIZE_TOKEN": SECRET})
    changed = {line.variable: line.value for line in setting_lines(found) if not line.is_default}
    assert changed == {line.variable: line.value for line in setting_lines(given) if not line.is_default}
    assert set(changed) == {f"DEPUTIZE_{name}" for name in ("PORT", "QUEUES", "SANDBOX_PROCESSES", "PRICES", "TOKEN")}


@pytest.mark.parametrize("unset", ["...", HIDDEN])
def test_every_commented_line_is_a_valid_setting_as_it_stands(unset: str) -> None:
    """What has no default is marked with dots, so that no one takes it for a value."""
    texts = [text.removeprefix("# ") for text in as_toml(setting_lines(settings_of(TOKEN=SECRET)))]
    lines = {line.name for line in setting_lines(settings_of())}
    values = [text for text in texts if text.partition(" = ")[0] in lines and not text.endswith(unset)]
    assert len(values) > 30
    for text in values:
        if not text.endswith(("...", HIDDEN)):
            tomllib.loads(text)
