"""GitHub's API for pull requests, as far as deputize uses it; bodies are held against the published schema."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

CREATE = {
    "title": str,
    "head": str,
    "head_repo": str,
    "base": str,
    "body": str,
    "maintainer_can_modify": bool,
    "draft": bool,
    "issue": int,
}
"""The fields of "Create a pull request"; head and base are required, and the title unless there is an issue."""


@dataclass
class GithubApi:
    """The pull requests of one repository, ``o/r``."""

    accept: ClassVar[str] = "application/vnd.github+json"
    scheme: ClassVar[str] = "Bearer"

    token: str
    host: str = "127.0.0.1"
    port: int = 0
    pulls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    status: int | None = None
    lose_answers: bool = False
    """Makes pull requests, but closes the connection without an answer."""
    ignores_filter: bool = False
    """Lists all pull requests, as services do that do not know the filter."""
    limits: list[tuple[int, dict[str, str], str]] = field(default_factory=list[tuple[int, dict[str, str], str]])
    """Answers that come first: status, headers and message."""
    moved: str = ""
    """Where the repository is now: its other address answers with a redirect, as GitHub does after a rename."""
    full_name: str = "o/r"
    """What the repository is called now, where it has moved."""
    hide: int = 0
    """How many lists lack what is there: it was made at the same moment."""
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    garbage: bool = False
    hold: threading.Event | None = None
    """What the answer to a pull request that was made waits for."""
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def listed(self, pull: dict[str, Any]) -> dict[str, Any]:
        """A pull request as GitHub shows it, without the fields that are not used."""
        head = {"label": f"o:{pull['head']}", "ref": pull["head"], "sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e"}
        return pull | {"head": head, "base": {"label": f"o:{pull['base']}", "ref": pull["base"]}}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if self.status:
            return self.status, {"message": "no"}
        if self.garbage:
            return 200, ["surprise"]
        for now in ("/repositories/1296269", f"/repos/{self.full_name}"):
            path = re.sub(rf"^{now}(?=/|$)", "/repos/o/r", path)
        if path == "/repos/o/r":
            return 200, {"default_branch": "trunk", "full_name": self.full_name}
        if method == "PATCH" and (found := re.fullmatch(r"/repos/o/r/pulls/(\d+)", path)):
            self.pulls[int(found[1]) - 1] |= body
            return 200, self.listed(self.pulls[int(found[1]) - 1])
        if path != "/repos/o/r/pulls":
            return 404, {"message": "Not Found"}
        if method == "GET":
            (head,) = query["head"]
            owner = self.full_name.split("/")[0]
            there = [each for each in self.pulls if f"{owner}:{each['head']}" == head]
            if self.hide and there:
                self.hide -= 1
                return 200, []
            return 200, [self.listed(each) for each in (self.pulls if self.ignores_filter else there)]
        assert isinstance(body, dict)
        wrong = [name for name, value in body.items() if name not in CREATE or not isinstance(value, CREATE[name])]
        missing = [name for name in ("title", "head", "base") if name not in body]
        if wrong or missing:
            return 422, {"message": "Validation Failed", "errors": [*wrong, *missing]}
        if body["base"] == "v1":
            return 422, {"message": "Validation Failed", "errors": [{"field": "base", "code": "invalid"}]}
        if any(each["head"] == body["head"] for each in self.pulls):
            return 422, {"message": "A pull request already exists"}
        number = len(self.pulls) + 1
        self.pulls.append(body | {"number": number, "html_url": f"https://github.example/o/r/pull/{number}"})
        return 201, self.listed(self.pulls[-1])


def _handler(api: GithubApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        do_PATCH = do_PUT = do_POST  # noqa: N815 - names of the base class

        def _serve(self, body: Any) -> None:
            parts = urlsplit(self.path)
            api.requests.append((self.command, parts.path))
            assert not api.accept or self.headers["Accept"] == api.accept
            more = dict[str, str]()
            if api.limits:
                status, more, message = api.limits.pop(0)
                found = {"message": message, "documentation_url": "https://docs.github.com/rest"}
            elif api.moved and parts.path.startswith("/repos/o/r"):
                more = {"Location": api.moved + self.path.removeprefix("/repos/o/r")}
                status, found = 301, {"message": "Moved Permanently", "url": more["Location"]}
            elif self.headers["Authorization"] != f"{api.scheme} {api.token}":
                status, found = 401, {"message": "Bad credentials"}
            else:
                status, found = api.answer(self.command, parts.path, parse_qs(parts.query), body)
            if api.hold and self.command == "POST":
                api.held.set()
                api.hold.wait(60)
            if api.lose_answers and self.command == "POST":
                return
            data = json.dumps(found).encode()
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):  # the client was ended
                self.wfile.write(data)

    return Handler


@contextmanager
def github_api(token: str, kind: type[GithubApi] = GithubApi, host: str = "127.0.0.1") -> Generator[GithubApi]:
    """Serves the API at an address of this machine; ``kind`` may be that of another git host."""
    api = kind(token, host)
    with ThreadingHTTPServer((host, 0), _handler(api)) as http:
        api.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield api
        finally:
            if api.hold:
                api.hold.set()
            http.shutdown()
            thread.join()
