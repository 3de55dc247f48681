"""Pull requests at each kind of git host: the same promises over three APIs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import RepositoryFailed
from deputize.shared.facts import Verdict
from deputize.shared.git.delivery import Delivery
from deputize.shared.settings import Settings
from tests.network.git_server import TOKEN, USER, GitServer, git, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.network.other_git_hosts import GiteaApi, GitlabApi
from tests.shared.git.cloning import settings, write_credentials
from tests.shared.git.delivering import FILES, changed, deliver, delivery


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
        yield Hub(kind, api, chosen, server.url("o/r.git"), git(source, "rev-parse", "HEAD"), changed(source))


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
    [(401, "repository_authentication"), (403, "repository_forbidden"), (404, "repository_not_found"), (500, None)],
)
def test_refusals_have_kinds(hub: Hub, status: int, kind: str | None) -> None:
    hub.api.status = status
    with pytest.raises(RepositoryFailed) as failed:
        deliver(hub.settings, hub.asked())
    assert (failed.value.kind, TOKEN in str(failed.value)) == (kind or "delivery_pull_request", False)


def test_an_answer_of_another_service_is_an_error(hub: Hub) -> None:
    hub.api.garbage = True
    with pytest.raises(RepositoryFailed, match="did not answer as expected"):
        deliver(hub.settings, hub.asked())


def test_limits_are_waited_out(hub: Hub) -> None:
    hub.api.limits = [(429, {"Retry-After": "0"}, "Too many requests")]
    assert deliver(hub.settings, hub.asked()).pull_request_url == hub.kind.url


def test_where_the_api_of_a_host_is_not_configured_that_is_the_reason(hub: Hub) -> None:
    """The service that accepted the request may have other settings."""
    elsewhere = hub.settings.model_copy(update={hub.kind.setting: "https://elsewhere.example"})
    why = "pull requests can be made at .*elsewhere.example.* only; see "
    with pytest.raises(RepositoryFailed, match=why) as failed:
        deliver(elsewhere, hub.asked())
    assert (failed.value.kind, hub.api.requests) == ("delivery_pull_request", [])
