"""Which repositories may be used, and with which credentials."""

from __future__ import annotations

import os
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Invalid, Misconfigured, RepositoryFailed
from deputize.shared.git.remote import check_ref, check_url, is_commit, remote_of
from deputize.shared.settings import Settings
from deputize.shared.settings.git_credentials import Credential, read_credentials
from tests.network.git_server import TOKEN, USER, git, make_repository
from tests.shared.git.cloning import settings, write_credentials

HOSTS: dict[str, Any] = {
    "git_hosts": [
        *("github.com", "git.example:8443", "127.0.0.1:8080", "localhost:8080", "[::1]:8080", "plain.io:80"),
        *("http://Git:3000", "http://10.0.0.7:8080", "http://[fd00::7]:80", "http://forge"),
    ]
}


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/o/r.git",
        "https://GitHub.com/o/r",
        "https://github.com:443/o/r",
        "https://git.example:8443/r",
        "http://127.0.0.1:8080/r",
        "http://localhost:8080/r",
        "http://[::1]:8080/r",
        "http://git:3000/o/r",
        "http://GIT:3000/o/r",
        "http://10.0.0.7:8080/r",
        "http://[fd00::7]/r",
        "http://forge:80/r",
    ],
)
def test_a_url_of_a_named_host_is_taken(url: str, tmp_path: Path) -> None:
    assert remote_of(url, settings(tmp_path, **HOSTS)).url == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ext::sh -c touch% x", "characters"),
        ("ext::touch", "name a program"),
        ("::x", "name a program"),
        ("fd::7", "name a program"),
        ("--upload-pack=touch", "would be an option"),
        ("-oProxyCommand=x", "would be an option"),
        ("ssh://git@github.com/o/r", "uses ssh"),
        ("git@github.com:o/r.git", "ssh is not supported"),
        ("github.com:o/r.git", "ssh is not supported"),
        ("./shop", r'nor an absolute path; in a shell "\$PWD" is that of its directory'),
        ("../shop", r'in a shell "\$PWD" is'),
        ("shop", r'in a shell "\$PWD" is'),
        ("git://github.com/o/r", "uses git"),
        ("ftp://github.com/o/r", "uses ftp"),
        ("https://user:hunter2@github.com/o/r", "may hold credentials"),
        ("https://hunter2@github.com/o/r", "may hold credentials"),
        ("https://github.com/o/r?token=hunter2", "may hold credentials"),
        ("https://github.com/o/r#hunter2", "may hold credentials"),
        ("https://github.com.evil.io/o/r", "not an allowed host"),
        ("https://evil.io/o/r", "not an allowed host"),
        ("https://github.com:8443/o/r", "not an allowed host"),
        ("https://github.com:x/o/r", "not a valid URL"),
        ("https://[::1/o/r", "not a valid URL"),
        ("https://git_hub.com/o/r", "is not https://HOST/PATH"),
        ("https:///o/r", "is not https://HOST/PATH"),
        ("https://github.com/", "is not https://HOST/PATH"),
        ("http://github.com/o/r", "not an allowed host|without TLS"),
        ("http://git.example:8443/r", "without TLS"),
        ("http://plain.io:80/r", "without TLS|not an allowed host"),
        ("https://git:3000/o/r", "not an allowed host"),
        ("http://git/o/r", "not an allowed host"),
        ("http://git:3001/o/r", "not an allowed host"),
        ("https://forge/r", "not an allowed host"),
        ("https://github.com/a b", "characters"),
        ("https://github.com/a\nb", "characters"),
        ("https://github.com/a\x00b", "characters"),
        ("https://github.com/ä", "characters"),
        ('https://github.com/a"b', "characters"),
        ("https://github.com\\@evil.io/r", "characters"),
        ("file://elsewhere/r", "names another machine"),
        ("relative/path", "absolute path"),
        ("", "absolute path"),
    ],
)
def test_every_other_url_is_refused_without_repeating_it(url: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        check_url(url, settings(tmp_path, **HOSTS))
    assert "hunter2" not in str(refused.value)
    assert [each["pointer"] for each in refused.value.errors] == ["/workspace/url"]


def test_without_settings_no_host_may_be_cloned_from(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"not an allowed host \(none\)"):
        check_url("https://github.com/o/r", settings(tmp_path))


def test_folders_need_a_root_unless_the_service_is_local(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "allowed/r", {"a": "x"})
    (tmp_path / "link").symlink_to(folder)
    root: dict[str, Any] = {"workspace_sources": [tmp_path / "allowed"]}
    for url in (str(folder), f"file://{folder}", f"file://localhost{folder}", str(tmp_path / "link")):
        assert remote_of(url, settings(tmp_path, **root)).url == str(folder)
        assert remote_of(url, settings(tmp_path)).scheme == "file"
        with pytest.raises(Invalid, match="none may be cloned from here"):
            check_url(url, settings(tmp_path, local=False))
    outside = make_repository(tmp_path / "outside", {"a": "x"})
    (tmp_path / "allowed/way-out").symlink_to(outside)
    for path in (outside, tmp_path / "allowed/../outside", tmp_path / "allowed/way-out", "/"):
        with pytest.raises(Invalid, match="not below an allowed root"):
            check_url(str(path), settings(tmp_path, **root))


def test_the_state_of_a_folder_is_below_a_root_too(tmp_path: Path) -> None:
    root: dict[str, Any] = {"workspace_sources": [tmp_path / "allowed"]}
    outside = make_repository(tmp_path / "outside", {"a": "x"})
    (tmp_path / "allowed/linked").mkdir(parents=True)
    (tmp_path / "allowed/linked/.git").write_text(f"gitdir: {outside}/.git\n")
    borrowing = make_repository(tmp_path / "allowed/borrowing", {"b": "x"})
    git(tmp_path / "allowed", "clone", "-q", "--bare", "borrowing", "bare")
    (borrowing / ".git/objects/info/alternates").write_text(f"{outside}/.git/objects\n")
    (tmp_path / "allowed/symlink").mkdir()
    (tmp_path / "allowed/symlink/.git").symlink_to(outside / ".git")
    for name in ("linked", "borrowing", "symlink"):
        with pytest.raises(Invalid, match="not below an allowed root"):
            remote_of(str(tmp_path / "allowed" / name), settings(tmp_path, **root))
    assert remote_of(str(tmp_path / "allowed/bare"), settings(tmp_path, **root)).scheme == "file"


def test_a_folder_without_a_repository_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RepositoryFailed) as failed:
            remote_of(str(path), settings(tmp_path))
        assert failed.value.kind == "repository_not_found"


@pytest.mark.parametrize("ref", ["main", "v1.0", "feature/a-b", "refs/pull/12/head", "0" * 40, "ä"])
def test_names_of_refs_are_those_that_git_allows(ref: str) -> None:
    check_ref(ref, "/workspace/ref")


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "-x",
        "--upload-pack=x",
        "a b",
        "a..b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "a@{0}",
        "@",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.",
        "a.lock",
        "a.lock/b",
        "a\x00",
        "a\nb",
        "a\x7f",
        "\u202ea",
        "x" * 256,
    ],
)
def test_other_names_are_refused(ref: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_ref(ref, "/workspace/ref")
    assert refused.value.errors[0]["pointer"] == "/workspace/ref"


def test_a_whole_commit_id_is_one() -> None:
    assert [is_commit(each) for each in ("a" * 40, "a" * 39, "g" * 40, "A" * 40)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("url", "scheme"), [("https://forge/r", "https"), ("http://forge/r", "http"), ("http://forge:80/r", "http")]
)
def test_a_token_for_tls_is_not_sent_without_it(url: str, scheme: str, tmp_path: Path) -> None:
    (path := tmp_path / "credentials").write_text("https://me:for-https@forge\nhttp://me:for-http@forge\n")
    path.chmod(0o600)
    both: dict[str, Any] = {"git_hosts": ["forge", "http://forge"], "git_credentials_file": path}
    sent = remote_of(url, settings(tmp_path, **both)).variables["GIT_CONFIG_VALUE_0"]
    assert b64decode(sent.rpartition(" ")[2]) == f"me:for-{scheme}".encode()


@pytest.mark.parametrize(
    "entry",
    [
        "https://github.com",
        "ssh://x",
        "http://u:t@git:3000",
        "http://git:3000/o",
        "git:",
        "git:70000",
        "a b",
        "",
        "http:x",
    ],
)
def test_what_is_not_a_host_is_refused_without_repeating_it(entry: str, tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match=r"git_hosts: entry 2 is not a host: give NAME, NAME:PORT, or http://"
    ) as why:
        settings(tmp_path, git_hosts=["github.com", entry])
    assert "u:t" not in str(why.value)


def test_credentials_are_for_their_host_alone(tmp_path: Path) -> None:
    path = write_credentials(tmp_path / "credentials", "127.0.0.1:8080")
    path.write_text(f"# ours\n\n{path.read_text()}https://me:a%3Ab@GitHub.com\n")
    chosen = settings(tmp_path, git_credentials_file=path, **HOSTS)
    sent = remote_of("http://127.0.0.1:8080/r", chosen).variables
    assert sent["GIT_CONFIG_KEY_0"] == "http.http://127.0.0.1:8080/.extraHeader"
    assert (
        remote_of("https://github.com/r", chosen).variables["GIT_CONFIG_KEY_0"]
        == "http.https://github.com/.extraHeader"
    )
    assert "GIT_CONFIG_COUNT" not in remote_of("http://localhost:8080/r", chosen).variables
    assert read_credentials(path)[1] == Credential("github.com", "me", "a:b")
    assert TOKEN not in repr(remote_of("http://127.0.0.1:8080/r", chosen))


def test_credentials_are_secrets_in_every_form(tmp_path: Path) -> None:
    path = write_credentials(tmp_path / "credentials", "127.0.0.1:8080")
    (found,) = read_credentials(path)
    assert (found.host, found.user, found.token) == ("127.0.0.1:8080", USER, TOKEN)
    secrets = settings(tmp_path, git_credentials_file=path).secrets
    assert {TOKEN, found.header.removeprefix("Basic ")} <= {*secrets}
    path.chmod(0o644)
    assert TOKEN not in settings(tmp_path, git_credentials_file=path).secrets  # nothing can use it either
    assert read_credentials(None) == ()


@pytest.mark.parametrize(
    "line",
    [
        "https://github.com",
        "https://t@github.com",
        "ssh://a:hunter2@x",
        "hunter2",
        "https://[a:hunter2@x",
        "https://me:hunter2%0a@github.com",
        "https://me:hunter2%00@github.com",
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, tmp_path: Path) -> None:
    path = write_credentials(tmp_path / "credentials", "a.io")
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(Misconfigured, match="line 2 of") as refused:
        read_credentials(path)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = write_credentials(tmp_path / "credentials", "127.0.0.1:8080", mode=0o640)
    with pytest.raises(RepositoryFailed, match="other users may read") as failed:
        remote_of("http://127.0.0.1:8080/r", settings(tmp_path, git_credentials_file=path, **HOSTS))
    assert failed.value.kind == "repository_authentication"
    with pytest.raises(Misconfigured, match="does not exist"):
        read_credentials(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Misconfigured, match="does not exist"):
        read_credentials(tmp_path / "pipe")


LIMITED = (
    ("acme/shop", "acme/shop"),
    ("acme/shop", "acme/shop.git"),
    ("acme/shop.git", "acme/shop/"),
    ("acme", "acme/other"),
    ("acme/group", "acme/group/sub/r.git"),
    ("acme/sh%6Fp", "acme/shop"),
    ("", "any/thing"),
    ("/", "any/thing"),
)
REFUSED = (
    ("acme/shop", "acme/other"),
    ("acme/shop", "acme/shops"),
    ("acme/shop", "acme"),
    ("acme/shop", "Acme/shop"),
    ("acme", "other/shop"),
    ("acme", "acme/../other/shop"),
    ("acme", "acme/%2e%2e/other/shop"),
    ("acme", "acme/.%2E/other"),
    ("acme", "acme//../other"),
    ("acme", "./acme/shop"),
    ("acme", "acme%2f..%2fother/shop"),
    ("acme", "acme/..%5c..%5cother/shop"),
    ("acme", "acme/%5C../other/shop"),
    ("acme", "acme/..%252f..%252fother/shop"),
    ("acme", "acme/%252e%252e/other/shop"),
    ("acme", "acme/..;/other/shop"),
    ("acme", "acme/..%3bx/other/shop"),
    ("acme", "acme/..%00/other/shop"),
)


def limited_to(tmp_path: Path, *paths: str) -> Settings:
    path = tmp_path / "credentials"
    path.write_text("".join(f"https://me:token-{number}@github.com/{each}\n" for number, each in enumerate(paths)))
    path.chmod(0o600)
    return settings(tmp_path, git_hosts=["github.com", "elsewhere.io"], git_credentials_file=path)


@pytest.mark.parametrize(("limit", "repository"), LIMITED)
def test_a_token_of_some_repositories_is_for_these(limit: str, repository: str, tmp_path: Path) -> None:
    remote = remote_of(f"https://github.com/{repository}", limited_to(tmp_path, limit))
    assert b64decode(remote.variables["GIT_CONFIG_VALUE_0"].rpartition(" ")[2]) == b"me:token-0"


@pytest.mark.parametrize(("limit", "repository"), REFUSED)
def test_and_refuses_all_others_of_its_host(limit: str, repository: str, tmp_path: Path) -> None:
    chosen = limited_to(tmp_path, limit)
    for use in (check_url, remote_of):
        why = "none of the repositories that the tokens of github.com are for; see DEPUTIZE_GIT_CREDENTIALS_FILE"
        with pytest.raises(Invalid, match=f"is {why}$"):  # without the names of the others
            use(f"https://github.com/{repository}", chosen)
    assert remote_of("https://elsewhere.io/o/r", chosen).variables == {"GIT_ALLOW_PROTOCOL": "https"}


def test_of_several_tokens_of_a_host_the_closest_one_is_used(tmp_path: Path) -> None:
    chosen = limited_to(tmp_path, "acme", "acme/shop", "")
    for number, repository in enumerate(("acme/other", "acme/shop", "other/shop")):
        found = remote_of(f"https://github.com/{repository}", chosen).variables["GIT_CONFIG_VALUE_0"]
        assert b64decode(found.rpartition(" ")[2]) == f"me:token-{number}".encode()


@pytest.mark.parametrize("wrong", ["acme/../other", "a//b", "a%2fb", ".", "a%5cb", "a%253b", "a;b"])
def test_a_limit_that_leads_elsewhere_is_a_mistake_in_the_file(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"line 1 of .* is not https://USER:TOKEN@HOST"):
        read_credentials(limited_to(tmp_path, wrong).git_credentials_file)
