"""A git server over HTTP: git's own `git http-backend`, with credentials, refusals and broken answers as tests ask."""

from __future__ import annotations

import os
import subprocess
import threading
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

BACKEND = "/usr/lib/git-core/git-http-backend"
USER, TOKEN = "robot", "tok-3n-of-the-git-host-0123456789"


def git(folder: Path, *arguments: str, input: bytes = b"") -> str:
    """Runs git as a developer would. Returns what it wrote."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    who = ("-c", "user.name=Dev", "-c", "user.email=dev@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=env, input=input, capture_output=True, check=True)
    return os.fsdecode(done.stdout).rstrip("\n")


PATCH = """\
diff --git a/app.txt b/app.txt
index 5626abf0f72e58d7a153368ba57db4c673c0e171..f719efd430d52bcfc8566a43b2eb655688d38871 100644
--- a/app.txt
+++ b/app.txt
@@ -1 +1 @@
-one
+two
"""
"""Of a repository whose file ``app.txt`` has the one line ``one``."""


def make_repository(folder: Path, files: dict[str, str], *, commits: int = 1) -> Path:
    """Makes a repository with these files, and as many commits on its branch main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for number in range(commits):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text if number == commits - 1 else f"{number}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number + 1}")
    return folder


@dataclass
class GitServer:
    """Serves the bare repositories below ``root``. What it does wrong can be set while it runs."""

    root: Path
    port: int = 0
    credentials: tuple[str, str] | None = None
    status: int | None = None
    """Answers everything with this status."""
    redirect: str | None = None
    most_lists: int | None = None
    """How many connections it answers, of which each begins with a list."""
    cut_after: int | None = None
    """Bytes of an answer of upload-pack after which the connection is closed."""
    hold: threading.Event | None = None
    """What upload-pack's answer waits for, after its first bytes."""
    hold_push: Literal["before", "after", ""] = ""
    """Whether a push waits for ``hold`` before it is carried out, or before it is answered."""
    lose_answers: bool = False
    """Carries out pushes, but closes the connection without an answer."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])
    held: threading.Event = field(default_factory=threading.Event)
    """Set once an answer is held."""

    def add(self, source: Path, name: str = "project.git") -> str:
        """Serves a copy of the repository. Returns its URL."""
        git(self.root, "clone", "-q", "--bare", str(source), name)
        git(self.root / name, "config", "http.receivepack", "true")
        return self.url(name)

    def url(self, name: str = "project.git") -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status_of(self, path: str) -> int | None:
        """Returns the status by which a request for the path is refused, if it is."""
        lists = sum(each.endswith("/info/refs") for _, each, _ in self.requests)
        is_late = self.most_lists is not None and lists > self.most_lists and path.endswith("/info/refs")
        return 503 if is_late else self.status

    @property
    def fetches(self) -> int:
        """How often objects were asked for: with protocol 2 each list of refs is a POST, too, and is not counted."""
        return sum(1 for method, path, _ in self.requests if method == "FETCH" and path.endswith("/git-upload-pack"))

    @property
    def pushes(self) -> int:
        return sum(1 for method, path, _ in self.requests if method == "POST" and path.endswith("/git-receive-pack"))


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self._body())

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _serve(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            server.requests.append((self.command, parts.path, dict(self.headers)))
            if b"command=fetch" in body:
                server.requests.append(("FETCH", parts.path, {}))
            if server.redirect:
                self._answer(302, {"Location": server.redirect + self.path}, b"")
            elif status := server.status_of(parts.path):
                self._answer(status, {}, b"no")
            elif server.credentials and self._given() != server.credentials:
                self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            else:
                self._forward(parts.path, parts.query, body)

        def _given(self) -> tuple[str, str] | None:
            sent = self.headers.get("Authorization", "")
            if server.credentials and sent == "Basic " + b64encode(":".join(server.credentials).encode()).decode():
                return server.credentials
            return None

        def _hold_push(self, path: str, when: str) -> None:
            if server.hold and server.hold_push == when and self.command == "POST" and path.endswith("receive-pack"):
                server.held.set()
                server.hold.wait(60)

        def _forward(self, path: str, query: str, body: bytes) -> None:
            self._hold_push(path, "before")
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_NOSYSTEM": "1",
                "HOME": "/nonexistent",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_USER": USER,
            }
            done = subprocess.run([BACKEND], input=body, env=env, capture_output=True)
            self._hold_push(path, "after")
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            status = int(fields.pop("Status", "200").split()[0])
            if server.lose_answers and path.endswith("/git-receive-pack") and self.command == "POST":
                self.close_connection = True
                return
            self._answer(status, fields, content, is_pack=b"packfile\n" in content[:200] or b"PACK" in content[:4000])

        def _answer(self, status: int, fields: dict[str, str], content: bytes, *, is_pack: bool = False) -> None:
            self.send_response(status)
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if is_pack and server.cut_after is not None:
                self.wfile.write(content[: server.cut_after])
                self.close_connection = True
                return
            if is_pack and server.hold and not server.hold_push:
                self.wfile.write(content[:10])
                self.wfile.flush()
                server.held.set()
                server.hold.wait(60)
                content = content[10:]
            try:
                self.wfile.write(content)
            except OSError:  # the client was ended
                self.close_connection = True

    return Handler


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is ended in the middle is what some tests are about."""


@contextmanager
def git_server(root: Path, address: tuple[str, int] = ("127.0.0.1", 0)) -> Generator[GitServer]:
    root.mkdir(parents=True, exist_ok=True)
    server = GitServer(root)
    with _Http(address, _handler(server)) as http:
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            if server.hold:
                server.hold.set()
            http.shutdown()
            thread.join()
