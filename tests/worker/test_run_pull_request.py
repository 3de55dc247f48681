"""The pull request of a run, made by the worker at its end or by the service afterwards, with evidence of the run."""

from __future__ import annotations

import html
import threading
from pathlib import Path
from typing import Any

from deputize.orchestrator.delegations import open_service
from deputize.shared.request import DelegationRequest, Deliver, PullRequest
from deputize.worker.task import carry_out
from tests.network.git_server import TOKEN, git, git_server, make_repository
from tests.network.github_api import github_api
from tests.runs.bench import call, open_bench, say, script
from tests.shared.git.cloning import write_credentials

APPEND = call("bash", command="echo two >> app.py")
FETCH = (
    call("bash", command="for i in 1 2; do curl -s http://elsewhere.example/; done; true"),
    call("web_fetch", url="https://pages.example/x"),
)


def asked(folder: Path, url: str, **deliver: Any) -> dict[str, Any]:
    model = script(folder, [APPEND], [*FETCH], [say("done")])
    return {"model": model, "workspace": {"kind": "git", "url": url}, "deliver": deliver}


async def test_a_branch_without_its_pull_request_is_a_fact_and_gets_it_afterwards(
    redis_url: str, tmp_path: Path
) -> None:
    source = make_repository(tmp_path / "source", {"app.py": "one\n"})
    with git_server(tmp_path / "served") as server, github_api(TOKEN) as api:
        (server.root / "o").mkdir()
        url = server.add(source, "o/r.git")
        credentials = write_credentials(tmp_path / "credentials", server.host)
        own: dict[str, Any] = {"git_hosts": [server.host], "git_credentials_file": credentials}
        own |= {"github_api_url": api.url, "sandbox": {"allowed_hosts": ["localhost"]}, "url": "https://fleet.example"}
        own |= {"permission_timeout_seconds": 0}
        api.status = 403
        async with open_bench(redis_url, tmp_path / "home", **own) as bench:
            wanted = {"branch": "one", "message": "My words", "pullRequest": {"title": "T"}}
            result = await bench.run(**asked(tmp_path, url, **wanted))
            api.status = None
            async with open_service(bench.settings, redis_url) as service:
                done = await service.deliver(result.delegation_id, Deliver(pull_request=PullRequest(title="U")))
                again = await service.deliver(result.delegation_id, Deliver(pull_request=PullRequest(title="V")))
            server.hold, server.hold_push = threading.Event(), "before"
            fields = asked(tmp_path, url, branch="two", pullRequest={"body": "Mine."})
            id = await bench.accept(DelegationRequest.model_validate({"task": "do it", **fields}))
            await bench.interrupt(id, server.held.is_set)  # the next attempt calls no tool
            server.hold.set()
            await carry_out(bench.services, id)
        assert result.git is not None
        assert result.git.commit == git(server.root / "o/r.git", "rev-parse", "one")
    assert (result.git.branch, result.git.pull_request_url) == ("one", None)
    assert result.errors[0].startswith("repository_forbidden: ")
    made = result.git.model_copy(update={"pull_request_url": "https://github.example/o/r/pull/1"})
    assert done.result is not None
    assert (done.result.git, again) == (made, done)
    assert [(each["head"], each["title"]) for each in api.pulls[:1]] == [("one", "U")]
    by_service, by_worker = (html.unescape(each["body"]) for each in api.pulls)
    assert (by_worker[:11], by_worker[-10:], by_service[:11]) == ("## Evidence", "---\n\nMine.", "## Evidence")
    for body in (by_service, by_worker):
        assert "- <code>pages.example: a call of web_fetch was denied</code>\n" in body
        assert body.count("- <code>elsewhere.example is not in sandbox.allowed_hosts</code>\n") == 1
        assert "model <code>scripted" in body
        assert "](https://fleet.example/#dlg_" in body
