"""Pull requests by the APIs of GitHub, GitLab and Gitea: at most one for a branch, however often it is asked for."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

from ..errors import RepositoryFailed, RepositoryKind
from ..request import PullRequest
from ..settings import Settings
from ..text import clip, visible
from .own import Patience
from .remote import Remote, credential_of, is_commit

if TYPE_CHECKING:  # it takes a tenth of a second, and few deliveries need it
    import httpx2

_SECONDS = 30.0
_MAX_SHOWN = 300
_MAX_TITLE = 255
_MOST_ASKED = 5
_MOVED = (301, 302, 307, 308)
_PAUSE_SECONDS = 60.0
"""What GitHub asks for where a limit names no time."""
_KINDS: dict[int, RepositoryKind] = {
    401: "repository_authentication",
    403: "repository_forbidden",
    404: "repository_not_found",
}


def api_hosts(settings: Settings) -> list[str]:
    """Returns the git hosts whose APIs are configured: the tokens of a host go to its own API alone."""
    return [host for host, _, _ in _apis(settings)]


def no_api(settings: Settings) -> str:
    """Returns why no pull request can be made at a host outside of ``api_hosts``, and the remedy."""
    hosts = ", ".join(api_hosts(settings))
    named = "DEPUTIZE_GITHUB_API_URL, DEPUTIZE_GITLAB_API_URL and DEPUTIZE_GITEA_API_URL"
    return f"pull requests can be made at {hosts} only; see {named}"


def pull_request(
    settings: Settings,
    remote: Remote,
    branch: str,
    ref: str | None,
    asked: PullRequest,
    title: str,
    patience: Patience,
) -> str:
    """Returns the URL of the pull request for a branch; creates it if there is none, else brings its body up to date.

    Raises RepositoryFailed, and what ends the ``patience``, with which limits of the API are waited out.
    """
    import httpx2

    url = urlsplit(remote.url)
    known = next((each for each in _apis(settings) if each[0] == url.hostname), None)
    if known is None:  # the service that accepted the request has other settings
        raise RepositoryFailed("delivery_pull_request", no_api(settings))
    host, api_url, kind = known
    found = credential_of(remote.url, settings)
    if found is None:
        raise RepositoryFailed(
            "repository_authentication", f"no token of {remote.host} is configured for a pull request"
        )
    headers = kind.headers | {"Authorization": f"{kind.scheme} {found.token}"}
    try:
        with httpx2.Client(headers=headers, timeout=_SECONDS, follow_redirects=False) as http:
            api = kind(http, api_url.rstrip("/"), url.path.strip("/").removesuffix(".git"), branch, patience)
            return api.updated(asked) or api.create(asked, title, ref)
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        why = f"the API of {host} did not answer as expected: {type(error).__name__}"
        raise RepositoryFailed("delivery_pull_request", why) from None


class _Api(ABC):
    """The pull requests for one branch of a repository."""

    scheme: ClassVar[str] = "Bearer"
    headers: ClassVar[dict[str, str]] = {}
    pulls: ClassVar[str] = "pulls"
    link: ClassVar[str] = "html_url"
    number: ClassVar[str] = "number"
    text: ClassVar[str] = "body"
    update: ClassVar[str] = "PATCH"
    full_name: ClassVar[str] = "full_name"
    there_already: ClassVar[int] = 409
    """The status of a second pull request for a branch."""

    def __init__(self, http: httpx2.Client, api_url: str, path: str, branch: str, patience: Patience) -> None:
        self._http = http
        self._api_url = api_url
        self._path = path
        self._branch = branch
        self._patience = patience
        self._has_moved = False

    def repository(self, path: str) -> str:
        """Returns the address of a repository below that of the API."""
        return f"repos/{path}"

    @abstractmethod
    def filter(self) -> dict[str, Any]:
        """Returns the parameters of a list with the pull requests for the branch."""

    def is_for_branch(self, pull: Any) -> bool:
        """Whether a listed pull request is for the branch of the repository itself."""
        return pull["head"]["ref"] == self._branch

    @abstractmethod
    def body(self, asked: PullRequest, title: str, base: str) -> dict[str, Any]:
        """Returns what creates the pull request."""

    @property
    def _url(self) -> str:
        return f"{self._api_url}/{self.repository(self._path)}"

    def updated(self, asked: PullRequest) -> str | None:
        """Returns the URL of the pull request for the branch, with this body, whatever became of it."""
        found = self._existing()
        if found is None:
            return None
        if asked.body and found.get(self.text) != asked.body:
            url = f"{self._url}/{self.pulls}/{found[self.number]}"
            self._checked(self._asked(self.update, url, json={self.text: asked.body}))
        return str(found[self.link])

    def create(self, asked: PullRequest, title: str, ref: str | None) -> str:
        body = self.body(asked, clip(asked.title or title, _MAX_TITLE), self._base(ref))
        answer = self._asked("POST", f"{self._url}/{self.pulls}", json=body)
        if answer.status_code == self.there_already and (there := self._existing()):  # made at the same moment
            return str(there[self.link])
        return str(self._checked(answer)[self.link])

    def _existing(self) -> Any | None:
        """Returns the pull request for the branch, whatever became of it, and of its repository."""
        found = self._listed()
        if found is None and self._has_moved:  # the list was of the earlier owner's branches
            self._path = str(self._checked(self._asked("GET", self._url))[self.full_name])
            self._has_moved = False
            found = self._listed()
        return found

    def _listed(self) -> Any | None:
        """Returns the pull request for the branch. A service that does not know the filter answers with others."""
        found = self._checked(self._asked("GET", f"{self._url}/{self.pulls}", params=self.filter()))
        return next((each for each in found if self.is_for_branch(each)), None)

    def _base(self, ref: str | None) -> str:
        """Returns the branch to merge into: the one that was cloned, else the repository's default one."""
        if ref and ref != "HEAD" and not is_commit(ref) and not ref.startswith("refs/tags/"):
            return ref.removeprefix("refs/heads/")
        return str(self._checked(self._asked("GET", self._url))["default_branch"])

    def _asked(self, method: str, url: str, **fields: Any) -> httpx2.Response:
        """Returns the answer to a request, after limits are over, and from where a renamed repository is now."""
        for _ in range(_MOST_ASKED):
            answer = self._http.request(method, url, **fields)
            if (seconds := _limited_for(answer)) is not None:
                why = (
                    f"the API limits requests for {seconds:.0f} more seconds: {clip(visible(answer.text), _MAX_SHOWN)}"
                )
                self._patience.wait(seconds, why)
            elif answer.status_code in _MOVED and (named := answer.headers.get("Location")):
                there = answer.url.join(named)
                if (there.scheme, there.host, there.port) != (answer.url.scheme, answer.url.host, answer.url.port):
                    why = f"the repository has moved to {visible(str(there))}; give its new address"
                    raise RepositoryFailed("repository_never", why)
                self._has_moved = True
                url, fields = str(there), {name: value for name, value in fields.items() if name != "params"}
            else:
                return answer
        raise RepositoryFailed("repository_unreachable", f"the API limits or redirects requests {_MOST_ASKED} times")

    def _checked(self, answer: httpx2.Response) -> Any:
        if answer.is_success:
            return answer.json()
        words = clip(visible(answer.text), _MAX_SHOWN)
        kind = _KINDS.get(answer.status_code, "delivery_pull_request")
        raise RepositoryFailed(kind, f"the pull request was refused with {answer.status_code}: {words}")


class _GitHub(_Api):
    headers: ClassVar[dict[str, str]] = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    there_already: ClassVar[int] = 422

    def filter(self) -> dict[str, Any]:
        return {"head": f"{self._path.split('/')[0]}:{self._branch}", "state": "all", "per_page": 100}

    def body(self, asked: PullRequest, title: str, base: str) -> dict[str, Any]:
        return {"title": title, "head": self._branch, "base": base, "body": asked.body, "draft": asked.draft}


class _GitLab(_Api):
    """Merge requests. One whose title begins with ``Draft:`` is a draft."""

    pulls: ClassVar[str] = "merge_requests"
    link: ClassVar[str] = "web_url"
    number: ClassVar[str] = "iid"
    text: ClassVar[str] = "description"
    update: ClassVar[str] = "PUT"
    full_name: ClassVar[str] = "path_with_namespace"

    def repository(self, path: str) -> str:
        return f"projects/{quote(path, safe='')}"

    def filter(self) -> dict[str, Any]:
        return {"source_branch": self._branch, "state": "all", "per_page": 100}

    def is_for_branch(self, pull: Any) -> bool:
        is_own = pull["source_project_id"] == pull["target_project_id"]  # forks have branches of that name, too
        return is_own and pull["source_branch"] == self._branch

    def body(self, asked: PullRequest, title: str, base: str) -> dict[str, Any]:
        named = clip(f"Draft: {title}", _MAX_TITLE) if asked.draft else title
        return {"title": named, "source_branch": self._branch, "target_branch": base, "description": asked.body}


class _Gitea(_Api):
    """Pull requests of Gitea and Forgejo. One whose title begins with ``WIP:`` is a draft."""

    scheme: ClassVar[str] = "token"

    def filter(self) -> dict[str, Any]:
        return {"state": "all", "sort": "recentupdate", "limit": 50}  # there is none by branch

    def is_for_branch(self, pull: Any) -> bool:
        is_own = pull["head"]["repo_id"] == pull["base"]["repo_id"]
        return is_own and pull["head"]["ref"] == self._branch

    def body(self, asked: PullRequest, title: str, base: str) -> dict[str, Any]:
        named = clip(f"WIP: {title}", _MAX_TITLE) if asked.draft else title
        return {"title": named, "head": self._branch, "base": base, "body": asked.body}


def _apis(settings: Settings) -> Iterator[tuple[str, str, type[_Api]]]:
    """Yields the git host, the address and the kind of each API that is configured."""
    urls = settings.github_api_url, settings.gitlab_api_url, settings.gitea_api_url
    for url, kind in zip(urls, (_GitHub, _GitLab, _Gitea), strict=True):
        name = urlsplit(url).hostname if url else None
        if url and name:
            yield "github.com" if name == "api.github.com" else name, url, kind


def _limited_for(answer: httpx2.Response) -> float | None:
    """Returns for how many seconds the API answers no such request; None where it does not limit them."""
    if answer.status_code not in (403, 429):
        return None
    after, left = answer.headers.get("Retry-After", ""), answer.headers.get("X-RateLimit-Remaining")
    if after.isdecimal():
        return float(after)
    if left == "0" and (reset := answer.headers.get("X-RateLimit-Reset", "")).isdecimal():
        return max(1.0, int(reset) - time.time())
    is_limit = answer.status_code == 429 or re.search("secondary rate limit|abuse detection", answer.text)
    return _PAUSE_SECONDS if is_limit else None
