"""The tables ``credentials.NAME``: what they mean, and that a wrong one is named with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings

WHOLE = """
[credentials.index]
host = "Packages.example.org"
path = "/simple/"
token_file = "index.token"
"""
TOKEN = "canary-token-9f83a1c4e5d7"


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "deputize.toml"
    file.write_text(text)
    return Settings.load(file, {})


def test_a_table_is_read_and_reaches_workers(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE)
    table = settings.credentials["index"]
    assert (table.host, table.prefix, table.write) == ("packages.example.org:443", "/simple", False)
    assert table.token_file == tmp_path / "index.token"
    passed = settings.child_environment()
    assert Settings.load(environ={"DEPUTIZE_CREDENTIALS": passed["DEPUTIZE_CREDENTIALS"]}).credentials == {
        "index": table
    }


@pytest.mark.parametrize("form", ["", 'basic = "me"', 'header = "X-Token"'])
def test_the_token_is_hidden_and_its_file_is_shown_to_no_sandbox(form: str, tmp_path: Path) -> None:
    file = tmp_path / "index.token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    settings = loaded(tmp_path, WHOLE + form)
    assert file in settings.private
    assert TOKEN in settings.secrets
    assert TOKEN not in settings.child_environment()["DEPUTIZE_CREDENTIALS"]
    if "basic" in form:
        assert "bWU6Y2FuYXJ5LXRva2VuLTlmODNhMWM0ZTVkNw==" in settings.secrets


def test_without_its_file_a_table_keeps_nothing_from_starting(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE)
    assert settings.secrets == []
    with pytest.raises(Misconfigured, match=r"credentials.index.token_file: .* does not exist"):
        settings.credentials["index"].read("index")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("Packages.example.org", "https://a.test", "is not a host"),
        ("Packages.example.org", "*.a.test", "is not a host"),
        ("Packages.example.org", "a.test:0", "is not a host"),
        ("Packages.example.org", "a.test:70000", "is not a host"),
        ("Packages.example.org", "b\u00fccher.test", "in ASCII"),
        ("/simple/", "simple", "is not a path"),
        ("/simple/", "/a/../b", "is not a path"),
        ("/simple/", "/a%20b", "is not a path"),
        ("/simple/", "/a?b", "is not a path"),
        ("/simple/", "//a", "is not a path"),
        ("token_file", 'header = "Host"\ntoken_file', "cannot be the header of a token"),
        ("token_file", 'header = "a b"\ntoken_file', "cannot be the header of a token"),
        ("token_file", 'header = "Proxy-Authorization"\ntoken_file', "cannot be the header of a token"),
        ("token_file", 'basic = "a:b"\ntoken_file', "without a colon"),
        ("token_file", 'basic = "a"\nheader = "b"\ntoken_file', "two forms of one token"),
        ("token_file", "token", "token"),
    ],
)
def test_a_wrong_table_is_named_with_its_mistake(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=why) as refusal:
        loaded(tmp_path, WHOLE.replace(old, new))
    assert "credentials/index" in str(refusal.value)


def test_two_tables_for_one_place_are_refused(tmp_path: Path) -> None:
    second = WHOLE.replace("index]", "second]")
    with pytest.raises(Misconfigured, match=r"index and second are both for packages\.example\.org:443/simple"):
        loaded(tmp_path, WHOLE + second.replace("/simple/", "/simple"))
    assert len(loaded(tmp_path, WHOLE + second.replace("/simple", "/other")).credentials) == 2
