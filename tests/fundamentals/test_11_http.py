"""11. HTTP: the same verbs for every other language, with a token, problem documents and resumable streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.shared.fleet import own_version
from tests.runs.bench import call, say, script

WRITE = call("write_file", path="a.txt", content="a\n")


async def finished(http: httpx2.AsyncClient, **request: Any) -> str:
    """The address of a delegation that has ended."""
    created = await http.post("/v1/delegations", json={"task": "Write a file.", **request})
    address = created.headers["location"]
    await http.get(address, params={"wait": 60})
    return address


async def test_without_the_token_nothing_is_answered(http: httpx2.AsyncClient) -> None:
    del http.headers["Authorization"]
    answer = await http.get("/v1/delegations")
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.json() == {
        "status": 401,
        "type": "urn:deputize:unauthorized",
        "title": "Unauthorized",
        "detail": "no token; send `Authorization: Bearer …` with the service's DEPUTIZE_TOKEN; "
        "`deputize token` prints that of a stack on its machine, unless DEPUTIZE_TOKEN is set",
        "errors": [],
    }


@pytest.mark.requirement("P-01")
async def test_a_request_is_accepted_at_once_and_its_end_is_waited_for_at_its_address(
    http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    slowly = script(tmp_path, {"blocks": [say("Hello.")], "delay": 0.5})
    request = {"task": "Say hello.", "model": slowly, "limits": {"maxTurns": 3}}
    created = await http.post("/v1/delegations", json=request)
    assert (created.status_code, created.json()["result"]) == (202, None)
    found = await http.get(created.headers["location"], params={"wait": 60})
    assert found.json()["status"] == "succeeded"
    assert found.json()["result"]["summary"] == "Hello."


async def test_the_same_request_with_the_same_key_is_one_delegation(http: httpx2.AsyncClient, tmp_path: Path) -> None:
    request = {"task": "Say hello.", "model": script(tmp_path, [say("Hello.")])}
    first, again = [
        await http.post("/v1/delegations", json=request, headers={"Idempotency-Key": "greeting"}) for _ in range(2)
    ]
    assert (first.status_code, again.status_code) == (202, 200)
    assert (again.headers["idempotent-replayed"], again.json()["id"]) == ("true", first.json()["id"])
    await http.get(first.headers["location"], params={"wait": 60})


async def test_a_wrong_request_is_answered_with_a_pointer_to_each_mistake(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v1/delegations", json={"task": "Say hello.", "limits": {"maxTurn": 3}, "priority": 11})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "status": 422,
        "type": "urn:deputize:invalid",
        "title": "Invalid request",
        "detail": "2 mistakes, the first is /limits/maxTurn: unknown key 'maxTurn'; did you mean 'maxTurns'?",
        "errors": [
            {"pointer": "/limits/maxTurn", "detail": "unknown key 'maxTurn'; did you mean 'maxTurns'?"},
            {"pointer": "/priority", "detail": "Input should be less than or equal to 9"},
        ],
    }


async def test_events_are_a_stream_that_goes_on_behind_the_last_one_seen(
    http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    address = await finished(http, model=script(tmp_path, [say("Hello.")]))
    stream = await http.get(f"{address}/events", headers={"Last-Event-ID": "3"})
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [line for line in stream.text.splitlines() if not line.startswith("data: ")] == [
        "id: 4",
        "event: replied",
        "",
        "id: 5",
        "event: run_finished",
        "",
    ]


async def test_the_patch_and_the_steps_have_addresses_of_their_own(http: httpx2.AsyncClient, tmp_path: Path) -> None:
    address = await finished(http, model=script(tmp_path, [WRITE], [say("Done.")]))
    patch = await http.get(f"{address}/patch")
    assert patch.headers["content-type"] == "text/x-diff; charset=utf-8"
    assert patch.text.splitlines()[3:] == ["--- /dev/null", "+++ b/a.txt", "@@ -0,0 +1 @@", "+a"]
    (step,) = (await http.get(f"{address}/steps")).json()
    assert (step["toolName"], step["status"], step["arguments"]) == ("write_file", "success", WRITE["arguments"])


async def test_cancelling_is_a_request_that_may_be_repeated(http: httpx2.AsyncClient, tmp_path: Path) -> None:
    slow = script(tmp_path, {"blocks": [say("never")], "delay": 1000})
    address = (await http.post("/v1/delegations", json={"task": "Think.", "model": slow})).headers["location"]
    answers = [await http.post(f"{address}/cancel") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert (await http.get(address, params={"wait": 60})).json()["status"] == "cancelled"


async def test_it_reports_whether_work_would_be_done(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/readyz")).json() == {"status": "ready", "workers": 1, "version": own_version()}
    (worker,) = (await http.get("/v1/workers")).json()
    assert (worker["model"], worker["sandbox"]) == ("scripted", None)
