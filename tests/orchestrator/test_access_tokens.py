"""The tokens file: what it must look like, and that its changes count at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from deputize.orchestrator.access_tokens import (
    TokenFile,
    Tokens,
    append_entry,
    digest_of,
    parse_tokens,
    written_entry,
)
from deputize.orchestrator.app import create_app
from deputize.shared.errors import Invalid, Misconfigured
from tests.orchestrator.access_tokens import MAIN, bearer, entry, secret_of, serving, statuses, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, settings

GOOD = entry("good", "read")
SHA = f'sha256 = "{"a" * 64}"\n'


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('[[token]]\nname = "a"\nsha256 = x\n', 3, "not TOML"),
        ('[[token]]\nname = "a', 2, "not TOML"),
        (f'[[token]]\nname = "a"\n{SHA}scopes = ["read", "write"]\n', 4, "scopes: "),
        (f'[[token]]\nname = "a"\n{SHA}scopes = []\n', 4, "scopes: "),
        (f'[[token]]\nname = "a"\n{SHA}', 1, "scopes: "),
        ('[[token]]\nname = "a"\nsha256 = "the token itself"\nscopes = ["read"]\n', 3, "sha256: "),
        (f'{GOOD}\n[[token]]\nname = "a b"\n{SHA}scopes = ["read"]\n', 7, "name: "),
        (f'{GOOD}\n[[token]]\n{SHA}scopes = ["read"]\nname = "good"\n', 9, "name: that of the token 'good', too"),
        (f"{GOOD}\n{GOOD.replace('good', 'other')}", 8, "sha256: that of the token 'good', too"),
        (f'[[token]]\nname = "default"\n{SHA}scopes = ["read"]\n', 2, "DEPUTIZE_TOKEN"),
        (f'[[token]]\nname = "a"\n{SHA}scopes = ["read"]\nexpires = "soon"\n', 5, "expires: "),
        (f'[[token]]\nname = "a"\n{SHA}scope = ["read"]\nscopes = ["read"]\n', 4, "did you mean 'scopes'?"),
        (f"{GOOD}\n[tokens]\n", 6, "'tokens' is unknown"),
        ("token = 3\n", 1, "'token' is unknown"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        parse_tokens(text.encode(), Path("/etc/tokens.toml"))
    message = str(refused.value)
    assert message.startswith(f"the tokens file /etc/tokens.toml, line {line}: ")
    assert what in message
    assert "the token itself" not in message


def test_a_file_in_another_encoding_is_refused_with_its_line() -> None:
    with pytest.raises(Misconfigured, match=r"line 3: it is not UTF-8"):
        parse_tokens(b"# one\n# two\n# \xe9\n", Path("t"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o611])
def test_a_file_that_others_can_open_is_refused_before_the_service_starts(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "tokens.toml", GOOD)
    path.chmod(mode)
    with pytest.raises(Misconfigured, match=rf"{path}.*\({mode:04o}|mode {mode:04o}.*chmod 600"):
        create_app(opening(FakeService()), settings(tokens_file=path))


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "large"])
def test_what_is_not_a_file_of_tokens_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tokens.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "large":
        write(path, "#" * (1024 * 1024 + 1))
    with pytest.raises(Misconfigured, match=str(path)):
        TokenFile(path).entries()


def test_the_token_of_the_variable_cannot_be_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", GOOD)
    with pytest.raises(Misconfigured, match="'good' of the tokens file is that of DEPUTIZE_TOKEN"):
        Tokens(settings(tokens_file=path, token=SecretStr(secret_of("good"))))


def test_a_file_alone_is_enough_for_an_address_that_others_reach(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", GOOD)
    create_app(opening(FakeService()), settings(tokens_file=path, host="192.0.2.7", no_token=False))


async def test_with_a_file_alone_a_token_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", GOOD)
    tokens = Tokens(settings(tokens_file=path))
    found = tokens.find(secret_of("good").encode())
    assert (tokens.asked_for, found and found.name, tokens.find(b"")) == (True, "good", None)


@pytest.mark.parametrize("place", [0, 31, 63])
def test_a_digest_that_differs_in_one_digit_is_that_of_another_token(tmp_path: Path, place: int) -> None:
    digest = digest_of(b"mine")
    near = digest[:place] + ("0" if digest[place] != "0" else "1") + digest[place + 1 :]
    path = write(tmp_path / "tokens.toml", written_entry("near", near, ["read"], None))
    tokens = Tokens(settings(tokens_file=path))
    assert tokens.find(b"mine") is None
    append_entry(path, written_entry("mine", digest, ["read"], None))
    assert (found := tokens.find(b"mine")) is not None
    assert found.name == "mine"


async def test_a_change_of_the_file_counts_with_the_next_request(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", entry("old", "read"))
    async with serving(FakeService(), path) as http:
        assert await statuses(http, ["old", "new"]) == [200, 401]
        write(path, entry("new", "read"))
        assert await statuses(http, ["old", "new"]) == [401, 200]
        write(path, entry("new", "submit"))
        assert await statuses(http, ["old", "new"]) == [401, 403]


def test_a_change_that_keeps_size_and_time_counts_too(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", entry("t0", "read"))
    file, before = TokenFile(path), path.stat()
    for number in range(20):
        write(path, entry(f"t{number % 10}", "read"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert [each.name for each in file.entries()] == [f"t{number % 10}"]


@pytest.mark.parametrize("how", ["wrong", "open", "gone"])
async def test_tokens_of_a_file_that_became_unusable_are_refused_until_it_is_mended(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "tokens.toml", entry("a", "read"))
    async with serving(FakeService(), path) as http:
        assert await statuses(http, ["a"]) == [200]
        if how == "wrong":
            write(path, "[[token]]\nname = ")
        elif how == "open":
            path.chmod(0o644)
        else:
            path.unlink()
        refused = await http.get("/v1/workers", headers=bearer("a"))
        assert (refused.status_code, str(tmp_path) in refused.text) == (503, False)
        main = await http.get("/v1/workers", headers={"Authorization": f"Bearer {MAIN}"})
        assert main.status_code == 200
        write(path, entry("a", "read"))
        assert await statuses(http, ["a"]) == [200]


@pytest.mark.parametrize(
    ("expires", "status"),
    [
        ("2001-01-01T00:00:00Z", 401),
        ("2001-01-01T00:00:00", 401),
        ("2001-01-01", 401),
        ("2999-01-01T00:00:00+02:00", 200),
        ("2999-01-01", 200),
    ],
)
async def test_a_token_is_refused_once_it_has_expired(tmp_path: Path, expires: str, status: int) -> None:
    service = FakeService()
    path = write(tmp_path / "tokens.toml", entry("late", "read", more=f"expires = {expires}\n"))
    async with serving(service, path) as http:
        answer = await http.get("/v1/workers", headers=bearer("late"))
    assert answer.status_code == status
    assert status == 200 or "'late' has expired" in answer.json()["detail"]
    assert [each.token for each in service.log] == ([] if status == 200 else ["late"])


def test_an_entry_is_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    append_entry(path, entry("a", "read"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text().rstrip() + " # no end of line")
    append_entry(path, entry("b", "read", "submit"))
    assert [(each.name, sorted(each.scopes)) for each in TokenFile(path).entries()] == [
        ("a", ["read"]),
        ("b", ["read", "submit"]),
    ]
    for wrong in (entry("a", "admin"), entry("a", "read").replace('"a"', '"c"')):
        kept = path.read_bytes()
        with pytest.raises(Misconfigured, match="that of the token 'a', too"):
            append_entry(path, wrong)
        assert path.read_bytes() == kept
    with pytest.raises(Misconfigured, match="cannot be written"):
        append_entry(tmp_path / "none" / "tokens.toml", entry("a", "read"))


@pytest.mark.parametrize("name", ["default", "", "a b", "a\n", 'a"', "-a", "a" * 65])
def test_an_entry_needs_a_plain_name(name: str) -> None:
    with pytest.raises(Invalid, match="NAME"):
        entry(name, "read")
