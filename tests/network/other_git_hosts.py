"""The APIs of GitLab and Gitea for pull requests, as far as deputize uses them, in the shapes of their documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.network.github_api import GithubApi

PROJECT = 278964


@dataclass
class GitlabApi(GithubApi):
    """The merge requests of one project, ``o/r``, at ``/projects/o%2Fr``."""

    accept: ClassVar[str] = ""

    def listed(self, pull: dict[str, Any]) -> dict[str, Any]:
        return pull | {"source_project_id": PROJECT, "target_project_id": PROJECT, "state": "opened"}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if self.status:
            return self.status, {"message": "no"}
        if self.garbage:
            return 200, ["surprise"]
        if path == "/projects/o%2Fr":
            return 200, {"id": PROJECT, "default_branch": "trunk", "path_with_namespace": "o/r"}
        if method == "PUT" and (found := re.fullmatch(r"/projects/o%2Fr/merge_requests/(\d+)", path)):
            self.pulls[int(found[1]) - 1] |= body
            return 200, self.listed(self.pulls[int(found[1]) - 1])
        if path != "/projects/o%2Fr/merge_requests":
            return 404, {"message": "404 Not Found"}
        if method == "GET":
            assert query["state"] == ["all"]
            there = [each for each in self.pulls if [each["source_branch"]] == query["source_branch"]]
            (branch,) = query["source_branch"]
            of_a_fork = {"source_branch": branch, "source_project_id": 7, "target_project_id": PROJECT}
            if self.hide and there:
                self.hide -= 1
                there = []
            return 200, [of_a_fork, *map(self.listed, there)]
        missing = [name for name in ("title", "source_branch", "target_branch") if name not in body]
        if missing or body.keys() - {"title", "source_branch", "target_branch", "description"}:
            return 400, {"error": f"{', '.join(missing)} is missing"}
        if any(each["source_branch"] == body["source_branch"] for each in self.pulls):
            return 409, {"message": ["Another open merge request already exists for this source branch: !1"]}
        number = len(self.pulls) + 1
        url = f"https://gitlab.example/o/r/-/merge_requests/{number}"
        self.pulls.append(body | {"id": 9000 + number, "iid": number, "web_url": url})
        return 201, self.listed(self.pulls[-1])


@dataclass
class GiteaApi(GithubApi):
    """The pull requests of one repository, ``o/r``; lists cannot be filtered by a branch."""

    accept: ClassVar[str] = ""
    scheme: ClassVar[str] = "token"

    def listed(self, pull: dict[str, Any]) -> dict[str, Any]:
        head = {"label": pull["head"], "ref": pull["head"], "repo_id": 12}
        return pull | {"head": head, "base": {"label": pull["base"], "ref": pull["base"], "repo_id": 12}}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if self.status:
            return self.status, {"message": "no"}
        if self.garbage:
            return 200, ["surprise"]
        if path == "/repos/o/r":
            return 200, {"default_branch": "trunk", "full_name": "o/r"}
        if method == "PATCH" and (found := re.fullmatch(r"/repos/o/r/pulls/(\d+)", path)):
            self.pulls[int(found[1]) - 1] |= body
            return 201, self.listed(self.pulls[int(found[1]) - 1])
        if path != "/repos/o/r/pulls":
            return 404, {"message": "not found"}
        if method == "GET":
            assert query == {"state": ["all"], "sort": ["recentupdate"], "limit": ["50"]}
            of_a_fork = [each | {"head": each["head"] | {"repo_id": 99}} for each in map(self.listed, self.pulls)]
            hidden = self.hide and self.pulls
            self.hide -= bool(hidden)
            return 200, [*of_a_fork, *([] if hidden else map(self.listed, self.pulls))]
        if body.keys() != {"title", "head", "base", "body"}:
            return 422, {"message": "[Title]: Required"}
        if any(each["head"] == body["head"] for each in self.pulls):
            return 409, {"message": "pull request already exists for these targets"}
        number = len(self.pulls) + 1
        self.pulls.append(body | {"number": number, "html_url": f"https://gitea.example/o/r/pulls/{number}"})
        return 201, self.listed(self.pulls[-1])
