"""The examples for GitHub, GitLab and Slack: their own scripts, against doubles of these APIs and a real stack."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import socket
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from deputize.orchestrator.examples import slack_approvals
from tests.architecture.sources import ROOT
from tests.network.git_server import TOKEN, git, git_server, make_repository
from tests.network.github_api import GithubApi, github_api
from tests.network.other_git_hosts import GitlabApi
from tests.orchestrator.command_line import deputize, environment, started
from tests.runs.bench import call, say
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

EXAMPLES = ROOT / "orchestrator/examples"
FILES = {
    "shop.py": "def right():\n    return False\n",
    "test_shop.py": "import unittest, shop\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertTrue(shop.right())\n",
}
REPAIR = call("write_file", path="shop.py", content="def right():\n    return True\n")
RULES = [{"turns": [[REPAIR], [say("It is repaired.")]]}]
HOSTILE = "$(touch planted) `touch planted` '; touch planted; '\n\"; touch planted\n::error::x"
CHECK = "python3 -m unittest -q"


@dataclass
class IssuesApi(GithubApi):
    """Also permissions of users, and comments on issues."""

    may: dict[str, str] = field(default_factory=dict[str, str])
    comments: list[str] = field(default_factory=list[str])

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if found := re.fullmatch(r"/repos/o/r/collaborators/(\w+)/permission", path):
            return 200, {"permission": self.may.get(found[1], "read"), "role_name": "x", "user": {"login": found[1]}}
        if method == "POST" and path == "/repos/o/r/issues/7/comments":
            self.comments.append(body["body"])
            return 201, {"id": 1, "body": body["body"]}
        return super().answer(method, path, query, body)


async def script(lines: str, folder: Path, env: dict[str, str]) -> int:
    """Executes it as the runners of both hosts do; returns the exit code. A scripted model has no price."""
    lines = lines.replace("--max-cost 5", "--max-tokens 1000000")
    process = await asyncio.create_subprocess_exec("bash", "-e", "-c", lines, cwd=folder, env=env)
    return await process.wait()


def environ(tmp_path: Path, **variables: str) -> dict[str, str]:
    (tmp_path / "script.json").write_text(json.dumps({"rules": RULES}))
    (tmp_path / "checkout").mkdir()
    return environment(
        DEPUTIZE_HOME=str(tmp_path / "home"),
        DEPUTIZE_MODEL=f"scripted:{tmp_path / 'script.json'}",
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **variables,
    )


async def job(env: dict[str, str], folder: Path, filled: dict[str, str]) -> tuple[str, int]:
    """Executes the steps of the workflow as GitHub's runner does; returns the last step, and its exit code."""
    steps = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text("utf-8"))["jobs"]["run"]
    name, failed, code = "", "", 0
    for step in steps["steps"]:
        if "run" not in step or step["name"] == "Install deputize":
            continue
        if failed and not ("always()" in step.get("if", "") and (folder / "result.json").exists()):
            continue
        given = {**steps["env"], **step.get("env", {})}
        name = step["name"]
        values = {key: filled[re.sub(r"[${} ]", "", value)] for key, value in given.items()}
        if (ended := await script(step["run"], folder, env | values)) and not failed:
            failed, code = name, ended
    return failed or name, code


@pytest.mark.costly
async def test_an_issue_becomes_a_pull_request_only_by_somebody_who_may_write(tmp_path: Path) -> None:
    with git_server(tmp_path / "served") as server, github_api(TOKEN, IssuesApi) as api:
        assert isinstance(api, IssuesApi)
        api.may = {"writer": "write"}
        server.credentials = ("x-access-token", TOKEN)
        (server.root / "o").mkdir()
        server.add(make_repository(tmp_path / "source", FILES), "o/r.git")
        git(server.root / "o/r.git", "symbolic-ref", "HEAD", "refs/heads/main")
        (server.root / "o/r").symlink_to("r.git")
        issue = {"number": 7, "title": "It is wrong", "body": HOSTILE, "labels": []}
        event = tmp_path / "event.json"
        event.write_text(json.dumps({"issue": issue, "comment": {"body": f"/deputize {HOSTILE}"}}))
        env = environ(
            tmp_path,
            GITHUB_API_URL=api.url,
            GITHUB_SERVER_URL=f"http://{server.host}",
            GITHUB_REPOSITORY="o/r",
            GITHUB_EVENT_PATH=str(event),
            RUNNER_TEMP=str(tmp_path),
        )
        filled = {"github.token": TOKEN, "github.event.issue.number": "7", "vars.CHECK_COMMAND": CHECK}
        filled |= {"secrets.ANTHROPIC_API_KEY": "", "github.event.sender.login": "mallory"}
        folder = tmp_path / "checkout"
        assert await job(env, folder, filled) == ("Stop unless the author may write", 1)
        assert (api.pulls, [*folder.iterdir()]) == ([], [])
        assert await job(env, folder, filled | {"github.event.sender.login": "writer"}) == ("Answer on the issue", 0)
        (pull,) = api.pulls
        assert (pull["title"], pull["draft"]) == ("Fix #7", False)
        assert "**Verdict: verified**" in pull["body"]
        assert pull["body"].endswith("Closes #7\n") or "Closes #7" in pull["body"]
        assert git(server.root / "o/r.git", "diff", "--name-only", "main", pull["head"]) == "shop.py"
        assert [comment.partition(": ")[2] for comment in api.comments] == [f"verified. {pull['html_url']}"]
        assert [each.name for each in folder.iterdir()] == ["result.json"]
        context = json.loads((tmp_path / "request.json").read_text())["context"]
        assert context.split("\n\n") == ["It is wrong", HOSTILE, HOSTILE]


@pytest.mark.costly
async def test_a_pipeline_with_a_task_becomes_a_merge_request(tmp_path: Path) -> None:
    with git_server(tmp_path / "served") as server, github_api(TOKEN, GitlabApi) as api:
        server.credentials = ("deputize", TOKEN)
        (server.root / "o").mkdir()
        server.add(make_repository(tmp_path / "source", FILES), "o/r.git")
        env = environ(
            tmp_path,
            CI_API_V4_URL=api.url,
            CI_SERVER_URL=f"http://{server.host}",
            CI_PROJECT_URL=f"http://{server.host}/o/r",
            CI_COMMIT_REF_NAME="main",
            CI_BUILDS_DIR=str(tmp_path),
            PUSH_TOKEN=TOKEN,
            CHECK_COMMAND=CHECK,
            TASK=f"Repair the shop\n{HOSTILE}",
        )
        lines = yaml.safe_load((EXAMPLES / "gitlab-job.yml").read_text("utf-8"))["deputize"]["script"]
        assert await script("\n".join(lines), tmp_path / "checkout", env) == 0
        (merge,) = api.pulls
        assert (merge["title"], merge["target_branch"]) == ("Repair the shop", "main")
        assert "**Verdict: verified**" in merge["description"]
        assert [each.name for each in (tmp_path / "checkout").iterdir()] == ["result.json"]


@dataclass
class SlackApi:
    """What an app posts in a channel, and what it answers to clicks; and the app itself, at one address."""

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def post_message(self, request: Request) -> JSONResponse:
        if request.headers["authorization"] != "Bearer xoxb-1":
            return JSONResponse({"ok": False, "error": "invalid_auth"})
        self.messages.append(await request.json())
        return JSONResponse({"ok": True, "ts": "1503435956.000247"})

    async def respond(self, request: Request) -> JSONResponse:
        self.answers.append(await request.json())
        return JSONResponse({"ok": True})

    async def click(self, value: str, user: str, action: str = "approve", age: int = 0, key: str = "signing") -> int:
        """Sends a click as Slack does; returns the status of the answer."""
        actions = [{"action_id": action, "value": value, "type": "button"}]
        payload = {"type": "block_actions", "user": {"id": user}, "actions": actions, "response_url": f"{self.url}/re"}
        body, stamp = f"payload={quote(json.dumps(payload))}".encode(), str(int(time.time()) - age)
        signed = hmac.new(key.encode(), f"v0:{stamp}:".encode() + body, sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={signed}"}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        async with httpx2.AsyncClient() as client:
            return (await client.post(f"{self.url}/app/slack", content=body, headers=headers)).status_code


@asynccontextmanager
async def served(listening: socket.socket, api: SlackApi, environ: dict[str, str]) -> AsyncIterator[None]:
    """Serves the double and the app, which is below /app."""
    routes = [Route("/chat.postMessage", api.post_message, methods=["POST"])]
    routes += [Route("/re", api.respond, methods=["POST"])]
    app = Starlette(routes=[*routes, Mount("/app", slack_approvals.app(environ))])
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@pytest.mark.costly
async def test_a_call_is_answered_in_slack_only_by_those_who_may(tmp_path: Path) -> None:
    work = call("bash", command="rm -rf build && echo '<!channel> done'")
    (tmp_path / "script.json").write_text(json.dumps({"rules": [{"turns": [[work], [say("It is done.")]]}]}))
    token, secret = "t" * 40, f"whsec_{b64encode(b'k' * 32).decode()}"
    row = {"name": "slack", "sha256": sha256(token.encode()).hexdigest(), "scopes": ["read", "approve", "all"]}
    (tmp_path / "tokens.toml").write_text("[[token]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items()))
    (tmp_path / "tokens.toml").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        api = SlackApi(f"http://127.0.0.1:{listening.getsockname()[1]}")
        here: dict[str, Any] = {
            "DEPUTIZE_HOME": str(tmp_path / "home"),
            "DEPUTIZE_MODEL": f"scripted:{tmp_path / 'script.json'}",
            "DEPUTIZE_TOKENS_FILE": str(tmp_path / "tokens.toml"),
            "DEPUTIZE_WEBHOOK_SECRETS": secret,
            "DEPUTIZE_WEBHOOK_HOSTS": api.url.removeprefix("http://"),
            "DEPUTIZE_WEBHOOK_URL": f"{api.url}/app/deputize",
        }
        async with started("up", "--port", "0", **here) as stack:
            await until(lambda: b"Stop" in stack.out, 60)
            found = re.search(rb"http://127.0.0.1:\d+", stack.out)
            assert found, stack.out
            environ = {
                "DEPUTIZE_URL": found[0].decode(),
                "DEPUTIZE_TOKEN": token,
                "DEPUTIZE_WEBHOOK_SECRETS": secret,
                "SLACK_API_URL": api.url,
                "SLACK_BOT_TOKEN": "xoxb-1",
                "SLACK_SIGNING_SECRET": "signing",
                "SLACK_CHANNEL": "C1",
                "SLACK_APPROVERS": "U1,U2",
            }
            async with served(listening, api, environ):
                await _answered(api, here)
            stack.interrupt()
            await stack.done()


async def _answered(api: SlackApi, here: dict[str, Any]) -> None:
    async with started("run", "Clean up", "--no-workspace", "--approval", "ask", **here) as running:
        await until(lambda: api.messages, 60)
        (message,) = api.messages
        shown, buttons = message["blocks"]
        assert (message["channel"], shown["text"]["type"]) == ("C1", "plain_text")
        assert "rm -rf build" in shown["text"]["text"]
        (id,) = {each["value"] for each in buttons["elements"]}
        refused = [await api.click(id, "U1", key="other"), await api.click(id, "U1", age=301)]
        assert (refused, await api.click(id, "U9")) == ([401, 401], 200)
        await until(lambda: api.answers, 20)
        assert (await deputize("permissions", "--json", **here)).out.count(id) == 1
        assert await api.click(id, "U2") == 200
        await until(lambda: len(api.answers) == 2, 20)
        ended = await running.done()
    assert (ended.code, ended.out.partition("\n")[0]) == (0, "It is done.")
    assert [each["text"] for each in api.answers] == ["You may not answer this.", "`approve` by <@U2>"]
    assert [each["replace_original"] for each in api.answers] == [False, True]
    assert await api.click(id, "U1", "deny") == 200
    await until(lambda: len(api.answers) == 3, 20)
    assert api.answers[2]["text"].startswith("`deny` by <@U1>, but: ")
