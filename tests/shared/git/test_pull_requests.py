"""Pull requests by GitHub's API: one for a branch, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import RepositoryFailed
from deputize.shared.git.delivery import Delivery
from deputize.shared.git.hosts import api_hosts
from deputize.shared.git.own import Patience
from deputize.shared.settings import Settings
from tests.network.git_server import TOKEN, USER, GitServer, git, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.shared.git.cloning import settings, write_credentials
from tests.shared.git.delivering import FILES, added, changed, deliver, delivery


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES, commits=3)


@pytest.fixture
def api() -> Iterator[GithubApi]:
    with github_api(TOKEN) as api:
        yield api


@pytest.fixture
def hub(server: GitServer, api: GithubApi, tmp_path: Path) -> Settings:
    server.credentials = (USER, TOKEN)
    (server.root / "o").mkdir()
    credentials = write_credentials(tmp_path / "credentials", server.host)
    return settings(tmp_path, server, git_credentials_file=credentials, github_api_url=api.url)


def asked_of(server: GitServer, source: Path, ref: str | None = None, **pull: Any) -> Delivery:
    if not (server.root / "o/r.git").exists():
        server.add(source, "o/r.git")
    asked = delivery(server.url("o/r.git"), git(source, "rev-parse", "HEAD"), changed(source), pullRequest=pull)
    workspace = asked.request.workspace.model_copy(update={"ref": ref})
    request = asked.request.model_copy(update={"workspace": workspace})
    return Delivery(asked.id, request, asked.wanted, asked.base, asked.patch, [])


def test_a_pull_request_is_made_once(server: GitServer, source: Path, hub: Settings, api: GithubApi) -> None:
    asked = asked_of(server, source, "main", title="Two", body="More", draft=False)
    first = deliver(hub, asked)
    assert first.pull_request_url == "https://github.example/o/r/pull/1"
    assert deliver(hub, asked) == first
    made = {"title": "Two", "head": asked.branch, "base": "main", "body": "More", "draft": False}
    assert [{name: each[name] for name in made} for each in api.pulls] == [made]


def test_a_pull_request_has_defaults(server: GitServer, source: Path, hub: Settings, api: GithubApi) -> None:
    deliver(hub, asked_of(server, source))
    (made,) = api.pulls
    assert (made["title"], made["base"], made["draft"], made["body"]) == ("Say two", "trunk", True, "")


@pytest.mark.parametrize(
    ("ref", "base"), [("refs/heads/main", "main"), ("a" * 40, "trunk"), ("refs/tags/v1", "trunk"), ("HEAD", "trunk")]
)
def test_what_it_is_merged_into(
    ref: str, base: str, server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    deliver(hub, asked_of(server, source, ref))
    assert api.pulls[0]["base"] == base


def test_a_pull_request_of_the_same_moment_is_found(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    asked = asked_of(server, source, "main")
    first = deliver(hub, asked)
    api.hide = 1
    assert deliver(hub, asked) == first
    assert len(api.pulls) == 1


def test_an_answer_that_is_lost_makes_no_second_one(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    asked = asked_of(server, source, "main")
    api.lose_answers = True
    with pytest.raises(RepositoryFailed, match="did not answer as expected") as failed:
        deliver(hub, asked)
    assert failed.value.kind == "delivery_pull_request"
    api.lose_answers = False
    assert deliver(hub, asked).pull_request_url == "https://github.example/o/r/pull/1"
    assert len(api.pulls) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "repository_authentication"),
        (403, "repository_forbidden"),
        (404, "repository_not_found"),
        (500, "delivery_pull_request"),
        (302, "delivery_pull_request"),
    ],
)
def test_refusals_of_the_api_have_kinds(
    status: int, kind: str, server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    api.status = status
    with pytest.raises(RepositoryFailed) as failed:
        deliver(hub, asked_of(server, source, "main"))
    assert (failed.value.kind, TOKEN in str(failed.value)) == (kind, False)


def test_a_base_that_is_no_branch_is_the_apis_word(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    with pytest.raises(RepositoryFailed, match=r"refused with 422: .*invalid"):
        deliver(hub, asked_of(server, source, "v1"))
    assert api.pulls == []


def test_an_answer_of_another_service_is_an_error(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    api.garbage = True
    with pytest.raises(RepositoryFailed, match="did not answer as expected"):
        deliver(hub, asked_of(server, source, "main"))


def test_without_a_token_the_api_is_not_asked(
    server: GitServer, source: Path, hub: Settings, api: GithubApi, tmp_path: Path
) -> None:
    server.credentials = None
    other = hub.model_copy(update={"git_credentials_file": write_credentials(tmp_path / "other", "elsewhere.io:80")})
    with pytest.raises(RepositoryFailed, match="no token") as failed:
        deliver(other, asked_of(server, source, "main"))
    assert (failed.value.kind, api.requests) == ("repository_authentication", [])


def test_tokens_of_a_host_go_to_its_own_api_alone(tmp_path: Path) -> None:
    assert api_hosts(settings(tmp_path)) == ["github.com", "gitlab.com"]
    own = settings(
        tmp_path,
        github_api_url="https://ghe.example/api/v3",
        gitlab_api_url="https://gl.example/api/v4",
        gitea_api_url="http://gitea.example:3000/api/v1",
    )
    assert api_hosts(own) == ["ghe.example", "gl.example", "gitea.example"]


def test_a_pull_request_lists_what_a_git_host_executes(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    patch = added(source, ".gitlab-ci.yml", "a.py")
    asked = asked_of(server, source, "main", title="Two", body="Mine.")
    deliver(hub, replace(asked, patch=patch, wanted=asked.wanted.model_copy(update={"workflows": True})))
    (made,) = api.pulls
    assert made["body"] == "**A git host may execute these changed files:**\n\n- <code>.gitlab-ci.yml</code>\n\nMine."


@pytest.mark.parametrize("given", ["", "Mine.", "x" * 60_000, "a\n```\nopen", "<!-- open", "<details><pre>", "[x]: y"])
def test_evidence_precedes_the_callers_body_so_that_nothing_there_can_hide_it(
    given: str, server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    evidence = "## Evidence\n" + "y" * 30_000
    deliver(hub, replace(asked_of(server, source, "main", body=given), evidence=evidence))
    body = api.pulls[0]["body"]
    assert (body.startswith(evidence), len(body) <= 65_000) == (True, True)
    rest = body.removeprefix(evidence)
    assert rest == (f"\n\n---\n\n{given}" if given else "") or (len(given) > 40_000 and len(rest) > 30_000)


def test_another_pull_request_is_not_taken_for_that_of_the_branch(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    """Services that do not know the filter list all."""
    first = deliver(hub, asked_of(server, source, "main"))
    api.ignores_filter = True
    second = asked_of(server, source, "main")
    done = deliver(hub, second)
    assert done.pull_request_url == "https://github.example/o/r/pull/2" != first.pull_request_url
    assert deliver(hub, second) == done
    assert len(api.pulls) == 2


SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
PRIMARY = "API rate limit exceeded for user ID 1."


@pytest.mark.parametrize(
    "limit",
    [
        (403, {"Retry-After": "0"}, SECONDARY),
        (429, {"Retry-After": "1"}, SECONDARY),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, PRIMARY),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1372700873"}, PRIMARY),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_limits_of_the_api_are_waited_out(
    before: int, limit: tuple[int, dict[str, str], str], server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    asked = asked_of(server, source, "main")
    api.limits = [limit] * before
    assert deliver(hub, asked).pull_request_url == "https://github.example/o/r/pull/1"
    assert len(api.pulls) == 1


@pytest.mark.parametrize(
    "limit",
    [
        (403, {"Retry-After": "900"}, SECONDARY),
        (403, {}, SECONDARY),
        (429, {}, "Too Many Requests"),
        (403, {}, "You have triggered an abuse detection mechanism."),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}, PRIMARY),
    ],
)
def test_a_limit_for_longer_than_there_is_time_may_pass(
    limit: tuple[int, dict[str, str], str], server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    asked = asked_of(server, source, "main")
    api.limits = [limit]
    with pytest.raises(RepositoryFailed, match=r"the API limits requests for \d+ more seconds") as failed:
        asked.run(hub, Patience(seconds=50))
    assert (failed.value.kind, api.pulls) == ("repository_unreachable", [])


def test_a_limit_without_an_end_is_an_error(server: GitServer, source: Path, hub: Settings, api: GithubApi) -> None:
    asked = asked_of(server, source, "main")
    api.limits = [(429, {"Retry-After": "0"}, SECONDARY)] * 9
    with pytest.raises(RepositoryFailed, match="limits or redirects requests 5 times"):
        deliver(hub, asked)


def test_a_renamed_repository_is_followed_on_the_same_host(
    server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    api.moved = f"{api.url}/repositories/1296269"
    asked = asked_of(server, source)
    done = deliver(hub, asked)
    assert (done.pull_request_url, api.pulls[0]["base"]) == ("https://github.example/o/r/pull/1", "trunk")
    assert deliver(hub, asked) == done
    assert len(api.pulls) == 1


@pytest.mark.parametrize("full_name", ["new/r", "o/shop", "new/shop"])
def test_a_transferred_repository_has_its_pull_request_already(
    full_name: str, server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    asked = asked_of(server, source)
    first = deliver(hub, asked)
    api.moved, api.full_name = f"{api.url}/repositories/1296269", full_name
    assert deliver(hub, asked) == first
    assert deliver(hub, asked_of(server, source)).pull_request_url == "https://github.example/o/r/pull/2"


@pytest.mark.parametrize("where", ["http://localhost:1/x", "https://127.0.0.1/x", "//elsewhere.io/x"])
def test_a_repository_that_moved_elsewhere_is_named(
    where: str, server: GitServer, source: Path, hub: Settings, api: GithubApi
) -> None:
    api.moved = where
    with pytest.raises(RepositoryFailed, match=r"has moved to .*/x/pulls.*; give its new address") as failed:
        deliver(hub, asked_of(server, source, "main"))
    assert (failed.value.kind, api.pulls) == ("repository_never", [])
