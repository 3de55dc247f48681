"""What a request may ask of git is judged when it is accepted, each mistake with its pointer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deputize.orchestrator.request_checks import check_requests
from deputize.shared.errors import Invalid
from deputize.shared.request import DelegationRequest, GitWorkspace
from deputize.shared.settings import Settings
from tests.network.git_server import make_repository
from tests.shared.git.cloning import write_credentials

URL = "https://github.com/o/r.git"


def check(folder: Path, workspace: Any, deliver: Any = None, **more: Any) -> list[str]:
    """The pointers of what is refused."""
    own = {"git_hosts": ["github.com", "ghe.example"], "home": folder / "home"} | more
    request = DelegationRequest.model_validate({"task": "x", "workspace": workspace, "deliver": deliver})
    try:
        check_requests([request], [], Settings.load(environ={}, **own), batch=False)
    except Invalid as refused:
        return [each["pointer"] for each in refused.errors]
    return []


@pytest.mark.parametrize(
    ("workspace", "deliver", "pointers"),
    [
        ({"url": URL}, None, []),
        ({"url": URL, "ref": "v1", "depth": 5}, {}, []),
        ({"url": URL}, {"branch": "fix/{id}", "message": "m"}, []),
        ({"url": "https://evil.io/r"}, None, ["/workspace/url"]),
        ({"url": "ext::sh -c x"}, None, ["/workspace/url"]),
        ({"url": "--upload-pack=x"}, None, ["/workspace/url"]),
        ({"url": "git@github.com:o/r"}, None, ["/workspace/url"]),
        ({"url": "https://u:t@github.com/o/r"}, None, ["/workspace/url"]),
        ({"url": URL, "ref": "--upload-pack=x"}, None, ["/workspace/ref"]),
        ({"url": URL, "ref": "a..b"}, None, ["/workspace/ref"]),
        ({"url": URL}, {"branch": "-f"}, ["/deliver/branch"]),
        *(({"url": URL}, {"branch": name}, ["/deliver/branch"]) for name in ("x/{nope}", "{id}/{ID}", "x{}")),
        *(({"url": URL}, {"branch": name}, []) for name in ("x/{", "a}b{c", "{{id}}")),
        ({"url": URL}, {"branch": "a b"}, ["/deliver/branch"]),
        *(
            ({"url": URL}, {"branch": name}, ["/deliver/branch"])
            for name in (
                "HEAD",
                "head",
                "FETCH_HEAD",
                "refs/heads/main",
                "refs",
                "heads/x",
                "tags/v1",
                "a" * 40,
                "0" * 64,
            )
        ),
        *(({"url": URL}, {"branch": name}, []) for name in ("headers", "a" * 39, "references/x", "fix/HEAD")),
        ({"url": URL}, {"branch": "{id}.lock"}, ["/deliver/branch"]),
        ({"url": URL}, {"pullRequest": {}}, ["/deliver/pullRequest"]),
        ({"url": "/tmp"}, None, ["/workspace/url"]),
    ],
)
def test_mistakes_have_pointers(workspace: dict[str, Any], deliver: Any, pointers: list[str], tmp_path: Path) -> None:
    assert check(tmp_path, {"kind": "git"} | workspace, deliver) == pointers


def test_pull_requests_need_the_host_of_the_api_and_its_token(tmp_path: Path) -> None:
    credentials = {"git_credentials_file": write_credentials(tmp_path / "credentials", "a.io:80")}
    ghe = {"github_api_url": "https://ghe.example/api/v3"}
    for url, more, pointers in (
        (URL, credentials, []),
        ("https://ghe.example/o/r", credentials, ["/deliver/pullRequest"]),
        ("https://ghe.example/o/r", credentials | ghe, []),
        (URL, credentials | ghe, ["/deliver/pullRequest"]),
    ):
        assert check(tmp_path, {"kind": "git", "url": url}, {"pullRequest": {"title": "T"}}, **more) == pointers
    folder = make_repository(tmp_path / "r", {"a": "x"})
    local = {"kind": "git", "url": str(folder)}
    assert check(tmp_path, local, {"pullRequest": {}}, local=True, **credentials) == ["/deliver/pullRequest"]
    assert check(tmp_path, local, {}, local=True) == []


@pytest.mark.parametrize("workspace", [None, {"kind": "empty"}, "/tmp"])
def test_only_a_clone_can_be_delivered(workspace: Any, tmp_path: Path) -> None:
    assert check(tmp_path, workspace, {}, local=True) == ["/deliver"]


@pytest.mark.parametrize(
    "fields",
    [
        {"workspace": {"kind": "git", "url": URL, "depth": 0}},
        {"workspace": {"kind": "git", "url": ""}},
        {"workspace": {"kind": "git", "url": URL, "branch": "x"}},
        {"deliver": {"branch": ""}},
        {"deliver": {"force": True}},
        {"deliver": {"require": "verified"}},
        {"deliver": {"pullRequest": {"reviewers": ["x"]}}},
    ],
)
def test_unknown_fields_and_values_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DelegationRequest.model_validate({"task": "x"} | fields)


@pytest.mark.parametrize("author", ["nobody", "A <a", "A <a b>", "A\nB <a@b>", "<a@b>"])
def test_an_author_has_a_name_and_an_address(author: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="git_author"):
        Settings.load(environ={}, home=tmp_path, git_author=author)


def test_a_request_without_a_delivery_is_written_as_before() -> None:
    """Its idempotency key is known by what it was before the field was there."""
    for fields in ({}, {"deliver": None}):
        request = DelegationRequest.model_validate({"task": "x"} | fields)
        assert "deliver" not in request.to_dict()
        assert "deliver" not in request.given_json()
    asked = DelegationRequest.model_validate({"task": "x", "deliver": {"branch": "a"}})
    assert '"branch":"a"' in asked.given_json()


def test_what_several_requests_of_a_batch_have_in_common_is_stated_once() -> None:
    elsewhere = DelegationRequest(task="x", workspace=GitWorkspace(kind="git", url=URL))
    other = DelegationRequest(task="x", agent="nobody")
    with pytest.raises(Invalid) as refused:
        check_requests([elsewhere, other, *[elsewhere] * 4], [], Settings.load(environ={}), batch=True)
    first, second = refused.value.detail.split("; /requests/1/agent: ", 1)
    url = [f"/requests/{number}/workspace/url" for number in (0, 2, 3)]
    assert first.startswith(f"{', '.join(url)} and 2 more: the repository's url is on github.com, ")
    assert (first.count("github.com"), "nobody" in second, len(refused.value.errors)) == (1, True, 6)
