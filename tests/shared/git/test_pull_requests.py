"""Pull requests at each kind of git host: one for a branch, and how they fail, the same over three APIs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import RepositoryFailed
from deputize.shared.facts import Verdict
from deputize.shared.git.delivery import Delivery
from deputize.shared.git.own import Patience
from deputize.shared.git.pull_requests import api_hosts
from deputize.shared.settings import Settings
from tests.network.git_server import TOKEN, USER, GitServer, git, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.network.other_git_hosts import GiteaApi, GitlabApi
from tests.shared.git.cloning import settings, write_credentials
from tests.shared.git.delivering import FILES, added, changed, deliver, delivery


@dataclass(frozen=True)
class Kind:
    """A git host, and the names in its API of what is compared."""

    api: type[GithubApi]
    setting: str
    url: str
    source: str = "head"
    target: str = "base"
    text: str = "body"
    draft: str = ""
    """What a title begins with; "" where a draft is a field."""


KINDS = {
    "github": Kind(GithubApi, "github_api_url", "https://github.example/o/r/pull/1"),
    "gitlab": Kind(
        *(GitlabApi, "gitlab_api_url", "https://gitlab.example/o/r/-/merge_requests/1"),
        *("source_branch", "target_branch", "description", "Draft: "),
    ),
    "gitea": Kind(GiteaApi, "gitea_api_url", "https://gitea.example/o/r/pulls/1", draft="WIP: "),
}


@dataclass
class Hub:
    """A git server beside the API of its kind, and one change to deliver."""

    kind: Kind
    api: GithubApi
    settings: Settings
    url: str
    base: str
    patch: str
    source: Path

    def asked(self, verdict: Verdict = "unverified", ref: str | None = None, **pull: Any) -> Delivery:
        asked = delivery(self.url, self.base, self.patch, pullRequest=pull)
        workspace = asked.request.workspace.model_copy(update={"ref": ref})
        return replace(asked, request=asked.request.model_copy(update={"workspace": workspace}), verdict=verdict)

    def made(self) -> list[Any]:
        kind = self.kind
        names = ("title", kind.source, kind.target, kind.text, *(() if kind.draft else ("draft",)))
        return [[pull[name] for name in names] for pull in self.api.pulls]

    def expected(self, title: str, branch: str, base: str, body: str, *, draft: bool) -> list[Any]:
        if self.kind.draft:
            return [f"{self.kind.draft if draft else ''}{title}", branch, base, body]
        return [title, branch, base, body, draft]


@pytest.fixture(params=KINDS)
def hub(request: pytest.FixtureRequest, server: GitServer, tmp_path: Path) -> Iterator[Hub]:
    kind = KINDS[request.param]
    source = make_repository(tmp_path / "source", FILES, commits=3)
    server.credentials = (USER, TOKEN)
    (server.root / "o").mkdir()
    server.add(source, "o/r.git")
    credentials = write_credentials(tmp_path / "credentials", server.host)
    with github_api(TOKEN, kind.api) as api:
        own = {kind.setting: api.url, "git_credentials_file": credentials}
        chosen = settings(tmp_path, server, **own)
        yield Hub(kind, api, chosen, server.url("o/r.git"), git(source, "rev-parse", "HEAD"), changed(source), source)


ON_GITHUB = pytest.mark.parametrize("hub", ["github"], indirect=True)
"""What another host does not have, or what is the same in front of every host."""


def test_it_is_made_once(hub: Hub) -> None:
    asked = hub.asked(ref="main", title="Two", body="More", draft=False)
    first = deliver(hub.settings, asked)
    assert first.pull_request_url == hub.kind.url
    assert deliver(hub.settings, asked) == first
    assert hub.made() == [hub.expected("Two", asked.branch, "main", "More", draft=False)]


def test_it_has_defaults(hub: Hub) -> None:
    asked = hub.asked()
    deliver(hub.settings, asked)
    assert hub.made() == [hub.expected("Say two", asked.branch, "trunk", "", draft=True)]


@pytest.mark.parametrize(
    ("verdict", "given", "draft"),
    [
        ("verified", {}, False),
        ("passed", {}, True),
        ("unverified", {}, True),
        ("verified", {"draft": True}, True),
        ("inconclusive", {"draft": False}, False),
    ],
)
def test_it_is_a_draft_unless_the_result_is_verified_or_the_request_decides(
    hub: Hub, verdict: Verdict, given: dict[str, Any], draft: bool
) -> None:
    asked = hub.asked(verdict, **given)
    deliver(hub.settings, asked)
    assert hub.made() == [hub.expected("Say two", asked.branch, "trunk", "", draft=draft)]


def test_a_title_is_as_long_as_every_host_takes(hub: Hub) -> None:
    deliver(hub.settings, hub.asked(title="x" * 256))
    assert len(hub.api.pulls[0]["title"]) <= 255


def test_one_of_the_same_moment_is_found(hub: Hub) -> None:
    asked = hub.asked()
    first = deliver(hub.settings, asked)
    hub.api.hide = 1
    assert deliver(hub.settings, asked) == first
    assert len(hub.api.pulls) == 1


def test_another_delivery_brings_the_body_up_to_date_and_leaves_the_rest(hub: Hub) -> None:
    asked = hub.asked(body="One.")
    first = deliver(hub.settings, asked)
    calls = len(hub.api.requests)
    assert deliver(hub.settings, asked) == first
    assert len(hub.api.requests) == calls + 1, "an equal body is not written"
    pull = asked.wanted.pull_request
    assert pull
    more = pull.model_copy(update={"body": "Two.", "title": "Other"})
    again = replace(asked, wanted=asked.wanted.model_copy(update={"pull_request": more}))
    assert deliver(hub.settings, again) == first
    assert hub.made() == [hub.expected("Say two", asked.branch, "trunk", "Two.", draft=True)]


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
def test_refusals_have_kinds(hub: Hub, status: int, kind: str) -> None:
    hub.api.status = status
    with pytest.raises(RepositoryFailed) as failed:
        deliver(hub.settings, hub.asked())
    assert (failed.value.kind, TOKEN in str(failed.value)) == (kind, False)


def test_an_answer_of_another_service_is_an_error(hub: Hub) -> None:
    hub.api.garbage = True
    with pytest.raises(RepositoryFailed, match="did not answer as expected"):
        deliver(hub.settings, hub.asked())


def test_limits_are_waited_out_unless_they_have_no_end(hub: Hub) -> None:
    hub.api.limits = [(429, {"Retry-After": "0"}, "Too many requests")]
    assert deliver(hub.settings, hub.asked()).pull_request_url == hub.kind.url
    hub.api.limits = [(429, {"Retry-After": "0"}, SECONDARY)] * 9
    with pytest.raises(RepositoryFailed, match="limits or redirects requests 5 times"):
        deliver(hub.settings, hub.asked())


def test_where_the_api_of_a_host_is_not_configured_that_is_the_reason(hub: Hub) -> None:
    """The service that accepted the request may have other settings."""
    elsewhere = hub.settings.model_copy(update={hub.kind.setting: "https://elsewhere.example"})
    why = "pull requests can be made at .*elsewhere.example.* only; see "
    with pytest.raises(RepositoryFailed, match=why) as failed:
        deliver(elsewhere, hub.asked())
    assert (failed.value.kind, hub.api.requests) == ("delivery_pull_request", [])


def test_what_it_is_merged_into(hub: Hub) -> None:
    refs = {"refs/heads/main": "main", "a" * 40: "trunk", "refs/tags/v1": "trunk", "HEAD": "trunk"}
    for ref in refs:
        deliver(hub.settings, hub.asked(ref=ref))
    assert [pull[hub.kind.target] for pull in hub.api.pulls] == [*refs.values()]


def test_an_answer_that_is_lost_makes_no_second_one(hub: Hub) -> None:
    asked = hub.asked(ref="main")
    hub.api.lose_answers = True
    with pytest.raises(RepositoryFailed, match="did not answer as expected") as failed:
        deliver(hub.settings, asked)
    assert failed.value.kind == "delivery_pull_request"
    hub.api.lose_answers = False
    assert deliver(hub.settings, asked).pull_request_url == hub.kind.url
    assert len(hub.api.pulls) == 1


def test_without_a_token_the_api_is_not_asked(hub: Hub, server: GitServer, tmp_path: Path) -> None:
    server.credentials = None
    other = {"git_credentials_file": write_credentials(tmp_path / "other", "elsewhere.io:80")}
    with pytest.raises(RepositoryFailed, match="no token") as failed:
        deliver(hub.settings.model_copy(update=other), hub.asked(ref="main"))
    assert (failed.value.kind, hub.api.requests) == ("repository_authentication", [])


def test_it_lists_what_a_git_host_executes(hub: Hub) -> None:
    asked = replace(hub.asked(title="Two", body="Mine."), patch=added(hub.source, ".gitlab-ci.yml", "a.py"))
    deliver(hub.settings, replace(asked, wanted=asked.wanted.model_copy(update={"workflows": True})))
    warning = "**A git host may execute these changed files:**\n\n- <code>.gitlab-ci.yml</code>"
    assert [pull[hub.kind.text] for pull in hub.api.pulls] == [f"{warning}\n\nMine."]


def test_tokens_of_a_host_go_to_its_own_api_alone(tmp_path: Path) -> None:
    assert api_hosts(settings(tmp_path)) == ["github.com", "gitlab.com"]
    own = settings(
        tmp_path,
        github_api_url="https://ghe.example/api/v3",
        gitlab_api_url="https://gl.example/api/v4",
        gitea_api_url="http://gitea.example:3000/api/v1",
    )
    assert api_hosts(own) == ["ghe.example", "gl.example", "gitea.example"]


@ON_GITHUB
@pytest.mark.parametrize("given", ["", "Mine.", "x" * 60_000, "a\n```\nopen", "<!-- open", "<details><pre>", "[x]: y"])
def test_evidence_precedes_the_callers_body_so_that_nothing_there_can_hide_it(given: str, hub: Hub) -> None:
    evidence = "## Evidence\n" + "y" * 30_000
    deliver(hub.settings, replace(hub.asked(body=given), evidence=evidence))
    body = hub.api.pulls[0]["body"]
    assert (body.startswith(evidence), len(body) <= 65_000) == (True, True)
    rest = body.removeprefix(evidence)
    assert rest == (f"\n\n---\n\n{given}" if given else "") or (len(given) > 40_000 and len(rest) > 30_000)


@ON_GITHUB
def test_a_base_that_is_no_branch_is_the_apis_word(hub: Hub) -> None:
    with pytest.raises(RepositoryFailed, match=r"refused with 422: .*invalid"):
        deliver(hub.settings, hub.asked(ref="v1"))
    assert hub.api.pulls == []


@ON_GITHUB
def test_another_pull_request_is_not_taken_for_that_of_the_branch(hub: Hub) -> None:
    """Services that do not know the filter list all. The lists of the other hosts always have others."""
    first = deliver(hub.settings, hub.asked(ref="main"))
    hub.api.ignores_filter = True
    second = hub.asked(ref="main")
    done = deliver(hub.settings, second)
    assert done.pull_request_url == "https://github.example/o/r/pull/2" != first.pull_request_url
    assert deliver(hub.settings, second) == done
    assert len(hub.api.pulls) == 2


SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
PRIMARY = "API rate limit exceeded for user ID 1."
Limit = tuple[int, dict[str, str], str]


@ON_GITHUB
@pytest.mark.parametrize(
    "limit",
    [
        (403, {"Retry-After": "0"}, SECONDARY),
        (429, {"Retry-After": "1"}, SECONDARY),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, PRIMARY),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1372700873"}, PRIMARY),
    ],
)
@pytest.mark.parametrize("before", [1, 2])
def test_every_kind_of_limit_is_waited_out(before: int, limit: Limit, hub: Hub) -> None:
    hub.api.limits = [limit] * before
    assert deliver(hub.settings, hub.asked(ref="main")).pull_request_url == hub.kind.url
    assert len(hub.api.pulls) == 1


@ON_GITHUB
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
def test_a_limit_for_longer_than_there_is_time_may_pass(limit: Limit, hub: Hub) -> None:
    hub.api.limits = [limit]
    with pytest.raises(RepositoryFailed, match=r"the API limits requests for \d+ more seconds") as failed:
        hub.asked(ref="main").run(hub.settings, Patience(seconds=50))
    assert (failed.value.kind, hub.api.pulls) == ("repository_unreachable", [])


@ON_GITHUB
def test_a_renamed_repository_is_followed_on_the_same_host(hub: Hub) -> None:
    hub.api.moved = f"{hub.api.url}/repositories/1296269"
    asked = hub.asked()
    done = deliver(hub.settings, asked)
    assert (done.pull_request_url, hub.api.pulls[0]["base"]) == (hub.kind.url, "trunk")
    assert deliver(hub.settings, asked) == done
    assert len(hub.api.pulls) == 1


@ON_GITHUB
@pytest.mark.parametrize("full_name", ["new/r", "o/shop", "new/shop"])
def test_a_transferred_repository_has_its_pull_request_already(full_name: str, hub: Hub) -> None:
    asked = hub.asked()
    first = deliver(hub.settings, asked)
    hub.api.moved, hub.api.full_name = f"{hub.api.url}/repositories/1296269", full_name
    assert deliver(hub.settings, asked) == first
    assert deliver(hub.settings, hub.asked()).pull_request_url == "https://github.example/o/r/pull/2"


@ON_GITHUB
@pytest.mark.parametrize("where", ["http://localhost:1/x", "https://127.0.0.1/x", "//elsewhere.io/x"])
def test_a_repository_that_moved_elsewhere_is_named(where: str, hub: Hub) -> None:
    hub.api.moved = where
    with pytest.raises(RepositoryFailed, match=r"has moved to .*/x/pulls.*; give its new address") as failed:
        deliver(hub.settings, hub.asked(ref="main"))
    assert (failed.value.kind, hub.api.pulls) == ("repository_never", [])
