"""`deputize deliver`, and the options of `run` that ask for it."""

from __future__ import annotations

import json

import httpx2
import pytest

from deputize.orchestrator.cli.apply import take_over_or_hint
from deputize.orchestrator.client import Client
from deputize.orchestrator.orchestrator import Orchestrator
from deputize.shared.errors import Invalid
from deputize.shared.facts import FileChange, GitFacts
from deputize.shared.request import DelegationRequest, Deliver
from deputize.shared.settings import Settings
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served

BASE = GitFacts(base="a" * 40)
CHANGED = [FileChange(path="a.txt", change="created")]


async def finished(service: FakeService, git: GitFacts | None = BASE) -> str:
    id = (await service.create(DelegationRequest(task="t"))).delegation.id
    service.finish(id, git=git, file_changes=CHANGED)
    return id


async def test_it_pushes_and_prints_the_branch(url: str, service: FakeService) -> None:
    id = await finished(service)
    done = await deputize("deliver", "@last", "--branch", "fix/{id}", DEPUTIZE_URL=url)
    assert (done.code, done.out) == (0, f"fix/{id} is {'c' * 40}\n")
    done = await deputize("deliver", id, "--json", DEPUTIZE_URL=url)
    assert json.loads(done.out)["result"]["git"]["branch"] == f"deputize/{id}"


async def test_a_pull_request_is_printed_too(url: str, service: FakeService) -> None:
    made = BASE.model_copy(update={"pull_request_url": "https://github.com/o/r/pull/1"})
    id = await finished(service, made)
    done = await deputize("deliver", id, "--pull-request", "T", DEPUTIZE_URL=url)
    assert done.out.splitlines()[1] == "https://github.com/o/r/pull/1"


async def test_what_is_no_clone_cannot_be(url: str, service: FakeService) -> None:
    id = await finished(service, None)
    done = await deputize("deliver", id, DEPUTIZE_URL=url)
    assert (done.code, "did not work on a git repository" in done.err) == (2, True)


async def test_the_options_of_run_make_the_request(url: str, service: FakeService) -> None:
    given = ["--git", "https://x.io/r", "--deliver", "fix", "--deliver-message", "m"]
    given += ["--pull-request", "T", "--pull-request-body", "B", "--pull-request-draft", "no"]
    done = await deputize("run", "t", *given, "--detach", DEPUTIZE_URL=url)
    assert done.code == 0
    ((_, run),) = service.runs.items()
    assert run.request.deliver is not None
    assert run.request.deliver.to_dict() == {
        "branch": "fix",
        "message": "m",
        "pullRequest": {"title": "T", "body": "B", "draft": False},
    }


@pytest.mark.parametrize(
    ("git", "hint"),
    [
        (BASE, "to push its changes as a branch: deputize deliver"),
        (BASE.model_copy(update={"commit": "c" * 40, "branch": "fix"}), "delivered as fix"),
    ],
)
async def test_the_end_of_a_run_names_what_is_next(
    git: GitFacts, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = FakeService()
    id = await finished(service, git)
    result = service.runs[id].result
    assert result is not None
    async with served(service) as url, Client(url, "t") as client:
        await take_over_or_hint(Settings.load(environ={}), client, result)
    assert hint in capsys.readouterr().err


async def test_show_has_the_branch_and_its_pull_request(url: str, service: FakeService) -> None:
    done = {"branch": "fix", "commit": "c" * 40, "pull_request_url": "https://github.com/o/r/pull/1"}
    await finished(service, BASE.model_copy(update=done))
    shown = await deputize("show", DEPUTIZE_URL=url)
    assert f"\ndelivered  as fix, https://github.com/o/r/pull/1, commit {'c' * 40}\n" in shown.out


async def test_over_http_the_body_may_be_left_out(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = await finished(service)
    path = f"/v1/delegations/{id}/deliver"
    answer = await http.post(path)
    assert (answer.status_code, answer.json()["result"]["git"]["branch"]) == (200, f"deputize/{id}")
    assert (await http.post(path, json={"force": True})).status_code == 422


async def test_python_delivers_too() -> None:
    service = FakeService()
    id = await finished(service)
    async with served(service) as url, Orchestrator(url=url, token="t") as orchestrator:
        for wanted in (Deliver(branch="fix"), {"branch": "fix"}):
            done = await orchestrator.deliver(id, wanted)
            assert done.result is not None
            assert done.result.git is not None
            assert done.result.git.branch == "fix"
        with pytest.raises(Invalid, match="did you mean 'branch'"):
            await orchestrator.deliver(id, {"brunch": "fix"})


async def test_what_is_left_out_is_named(url: str, service: FakeService) -> None:
    id = await finished(service, BASE.model_copy(update={"left_out": ["tests/a.py"]}))
    done = await deputize("deliver", id, DEPUTIZE_URL=url)
    hint = "  left out: tests/a.py, which the checks put back; `deputize apply --with-protected` takes them over"
    assert (done.code, hint in done.err.splitlines()) == (0, True)


async def test_what_the_checks_put_back_is_asked_for(url: str, service: FakeService) -> None:
    id = await finished(service)
    assert (await deputize("deliver", id, DEPUTIZE_URL=url)).code == 0
    assert service.asked_to_deliver == [None]
    assert (await deputize("deliver", id, "--with-protected", DEPUTIZE_URL=url)).code == 0
    assert service.asked_to_deliver[1:] == [Deliver(with_protected=True)]
