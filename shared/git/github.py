"""Pull requests by GitHub's API: at most one for a branch, however often it is asked for."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
_MOST_ASKED = 5
_MOVED = (301, 302, 307, 308)
_PAUSE_SECONDS = 60.0
"""What GitHub asks for where a limit names no time."""
_KINDS: dict[int, RepositoryKind] = {
    401: "repository_authentication",
    403: "repository_forbidden",
    404: "repository_not_found",
}


def api_host(settings: Settings) -> str:
    """Returns the git host that the configured API is about: its tokens go nowhere else."""
    name = urlsplit(settings.github_api_url).hostname or ""
    return "github.com" if name == "api.github.com" else name


def pull_request(
    settings: Settings,
    remote: Remote,
    branch: str,
    ref: str | None,
    asked: PullRequest,
    title: str,
    patience: Patience,
) -> str:
    """Returns the URL of the pull request for a branch; creates it if there is none.

    Raises RepositoryFailed, and what ends the ``patience``, with which limits of the API are waited out.
    """
    import httpx2

    path = urlsplit(remote.url).path.strip("/").removesuffix(".git")
    found = credential_of(remote.url, settings)
    if found is None:
        raise RepositoryFailed("repository_authentication", f"there is no token of {remote.host} for a pull request")
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {found.token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    try:
        with httpx2.Client(headers=headers, timeout=_SECONDS, follow_redirects=False) as http:
            api = _Api(http, f"{settings.github_api_url.rstrip('/')}/repos", path, branch, patience)
            return api.existing() or api.create(asked, title, ref)
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        why = f"the API of {api_host(settings)} did not answer as expected: {type(error).__name__}"
        raise RepositoryFailed("delivery_pull_request", why) from None


class _Api:
    def __init__(self, http: httpx2.Client, repositories: str, path: str, branch: str, patience: Patience) -> None:
        self._http = http
        self._repositories = repositories
        self._path = path
        self._branch = branch
        self._patience = patience
        self._has_moved = False

    @property
    def _url(self) -> str:
        return f"{self._repositories}/{self._path}"

    def existing(self) -> str | None:
        """Returns the URL of the pull request for the branch, whatever became of it, and of its repository."""
        found = self._listed()
        if found is None and self._has_moved:  # the list was of the earlier owner's branches
            self._path = str(self._checked(self._asked("GET", self._url))["full_name"])
            self._has_moved = False
            found = self._listed()
        return found

    def _listed(self) -> str | None:
        """Returns the URL of the pull request for the owner's branch.

        A service that does not know the filter answers with others.
        """
        head = {"head": f"{self._path.split('/')[0]}:{self._branch}", "state": "all", "per_page": 100}
        found = self._checked(self._asked("GET", f"{self._url}/pulls", params=head))
        return next((str(each["html_url"]) for each in found if each["head"]["ref"] == self._branch), None)

    def create(self, asked: PullRequest, title: str, ref: str | None) -> str:
        body = {
            "title": asked.title or title,
            "head": self._branch,
            "base": self._base(ref),
            "body": asked.body,
            "draft": asked.draft,
        }
        answer = self._asked("POST", f"{self._url}/pulls", json=body)
        if answer.status_code == 422 and (there := self.existing()):  # made at the same moment
            return there
        return str(self._checked(answer)["html_url"])

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
