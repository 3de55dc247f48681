"""Permission requests on the web page: what is shown, and what an answer does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect
from pydantic import SecretStr

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import TerminationReason
from deputize.shared.events import Heartbeat, PermissionAnswered, TurnStarted
from deputize.shared.permission import EditDetails, ExecuteDetails, InfoDetails
from tests.orchestrator.access_tokens import entry, secret_of, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.orchestrator.web.browsing import Pages, ask, button, card, delegated, opened
from tests.runs.asking import WRITE, asking_bench, begun
from tests.runs.bench import say, script
from tests.waiting import until

WATCH_CLICKS = """
    const list = document.getElementById("requests");
    window.clicks = [];
    new MutationObserver(() => window.clicks.push(getComputedStyle(list).pointerEvents))
        .observe(list, {attributes: true, attributeFilter: ["class"]});
"""
"""Keeps whether the list takes clicks, at each change of that."""

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_an_answer_on_the_page_decides_about_the_call(redis_url: str, tmp_path: Path, pages: Pages) -> None:
    tokens = write(tmp_path / "tokens.toml", entry("ada", "read", "approve", "all"))
    using = settings(tokens_file=tokens, token=SecretStr("main"), no_token=False)
    model = script(tmp_path, [WRITE], [say("done")])
    async with (
        asking_bench(redis_url, tmp_path / "home") as bench,
        open_service(bench.settings, redis_url) as service,
        served(service, using) as url,
    ):
        page = await pages.open(f"{url}/#token={secret_of('ada')}")
        await expect(page.get_by_text("Nothing has been delegated yet.")).to_be_visible()
        await expect(page.locator("#waiting")).to_be_hidden()
        assert page.url == f"{url}/"

        id, run = await begun(bench, model)
        await button(page, "Approve once").click()
        await run
        assert (await bench.result(id)).files_modified == ["a.txt"]
        await expect(page.get_by_text("Approved by you: write a.txt")).to_be_visible()
        await expect(page.locator("#waiting")).to_be_hidden()

        id, run = await begun(bench, model)
        await page.get_by_label("Reason of a denial").fill("not in this folder")
        await button(page, "Deny").click()
        await run
        assert (await bench.result(id)).files_modified == []
        (report,) = [each.event for each in await bench.events(id) if isinstance(each.event, PermissionAnswered)]
        assert (report.outcome, report.reason, report.by) == ("cancel", "not in this folder", "ada")

        id, run = await begun(bench, model)
        await button(page, "Change…").click()
        field = page.get_by_label("Arguments of the call, as JSON")
        await expect(field).to_be_focused()
        assert '"path": "a.txt"' in await field.input_value()
        for wrong, mistake in (('{"path"', "not valid"), ('{"path": 7, "content": ""}', "/path 7 is not of type")):
            await field.fill(wrong)
            await button(page, "Execute with these").click()
            await expect(page.get_by_role("alert").filter(has_text=mistake)).to_be_visible()
            await expect(field).to_have_attribute("aria-invalid", "true")
        await field.fill('{"path": "b.txt", "content": "y"}')
        await button(page, "Execute with these").click()
        await run
        assert (await bench.result(id)).files_modified == ["b.txt"]


@pytest.mark.costly
async def test_of_two_answers_the_first_counts_and_the_other_page_shows_it(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    async with served(service) as url:
        one, other = await pages.open(url), await pages.open(url)
        request = ask(service, id, 1, "first")
        ask(service, id, 2, "second")
        for page in (one, other):
            await expect(card(page, "second")).to_be_visible()
        for page in (one, other):
            await opened(page, "first")
        await one.evaluate(WATCH_CLICKS)
        await button(card(one, "first"), "Approve once").click()
        await expect(card(one, "first")).not_to_be_visible()
        # The service announced nothing, so the other page does not know of it yet.
        await button(card(other, "first"), "Deny").click()
        await expect(other.get_by_text("Not sent, it was answered meanwhile: first")).to_be_visible()
        await expect(other.get_by_text("answered before: approved")).to_be_visible()
        await expect(card(other, "first")).not_to_be_visible()
        await expect(card(other, "second")).to_be_visible()
        assert service.given_answers[request.permission_id].outcome == "proceed_once"
        # The second one moved up to where the first one was: a click meant for that must not count for this.
        await until(lambda: one.evaluate("window.clicks.join() === 'none,auto'"))


async def test_several_are_compact_and_are_answered_at_once(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task")
    edit = EditDetails(paths=["a.py"], diff="--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-x\n+y\n+z\n")
    long = ExecuteDetails(command=f"echo {'x ' * 200}; rm -r docs")
    requests = [ask(service, id, number, f"number {number}", details=edit) for number in range(4)]
    ask(service, id, 4, "number 4 $ rm -rf docs && git push --force origin main && echo done", details=long)
    async with served(service) as url:
        page = await pages.open(url, viewport={"width": 390, "height": 800})
        await expect(page.get_by_role("article")).to_have_count(5)
        await expect(card(page, "number 0")).to_contain_text("the task")
        title = page.locator(".disclosure", has_text="git push")
        assert await title.evaluate("node => node.scrollWidth <= node.clientWidth && node.clientHeight > 30")
        await expect(card(page, "number 0")).to_contain_text(re.compile("a.py \\+2 .1"))
        await expect(button(page, "Approve once")).to_have_count(0)
        assert (await page.locator("#waiting").bounding_box() or {})["height"] < 800
        await expect(button(page, "Approve")).to_be_disabled()
        await page.get_by_label("Select all").check()
        await page.get_by_role("checkbox", name="number 1", exact=True).uncheck()
        await button(page, "Approve 4").click()
        await expect(page.get_by_role("article")).to_have_count(2)
        await expect(title).to_have_attribute("aria-expanded", "true")  # it was not shown whole
        assert {*service.given_answers} == {each.permission_id for each in requests} - {requests[1].permission_id}
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.costly
async def test_a_card_names_the_task_and_each_thing_once(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    address = "https://example.org/a"
    details = InfoDetails(urls=[address], arguments={"url": address, "prompt": "What is new?"})
    lasting = {"proceed_always": ["every call of f"], "proceed_always_tool": ["every call of f"]}
    ask(service, id, 1, f"fetch {address}", details=details, remembers=lasting)
    async with served(service) as url:
        page = await pages.open(url)
        shown = card(page, f"fetch {address}")
        task = shown.get_by_role("link", name=service.runs[id].request.task)
        await expect(task).to_have_attribute("href", f"#{id}")
        await expect(shown.get_by_label("Arguments", exact=True)).to_contain_text("What is new?")
        assert (await shown.inner_text()).count(address) == 1
        await expect(button(shown, "Always in this run")).to_be_visible()
        await expect(button(shown, "Always this tool")).to_have_count(0)
        # Above the page of another run it would hide what was opened.
        for run, expanded in ((await delegated(service, "another"), "false"), (id, "true")):
            await page.goto(f"{url}/#{run}")
            await page.reload()
            await expect(button(shown, f"fetch {address}")).to_have_attribute("aria-expanded", expanded)


async def test_a_result_has_its_verdict_with_the_checks_and_where_it_was_delivered(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    check = {"item": {"run": "make <b>test</b>"}, "outcome": "no_regression", "why": "it succeeds, as before"}
    git = {"base": "a" * 40, "branch": "fix", "commit": "c" * 40, "pull_request_url": "https://github.com/o/r/pull/1"}
    service.finish(id, verification={"verdict": "inconclusive", "why": "no proof", "checks": [check]}, git=git)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        await expect(page.get_by_role("heading", name="Verdict inconclusive")).to_be_visible()
        await expect(page.locator(".result")).to_contain_text("no proof")
        checks = page.get_by_role("list", name="Checks")
        for words in ("make <b>test</b>", "no regression", "it succeeds, as before"):
            await expect(checks).to_contain_text(words)
        await expect(page.locator(".delivered")).to_have_text("Delivered as fix, https://github.com/o/r/pull/1")


async def test_a_success_shows_no_error_of_a_step_and_every_answer_names_its_token(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    for number, (outcome, reason) in enumerate((("proceed_once", None), ("cancel", "do not push"))):
        asked = ask(service, id, number).permission_id
        service.happen(id, PermissionAnswered(permission_id=asked, outcome=outcome, by="default", reason=reason))
    errors = ["the tool x is missing", "$ make: exit code 2", "$ lint: exit code 1", "write a: denied"]
    service.finish(id, summary="Done.", errors=errors, failed_call_count=3, recovered_call_count=1, denied_call_count=1)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        await expect(page.locator(".result")).to_contain_text(
            "1 call denied, 1 step failed, then recovered, 1 step failed"
        )
        await expect(page.locator(".result .problem")).to_have_text("the tool x is missing")
        await expect(page.get_by_role("heading", name="The agent's summary")).to_be_visible()
        await expect(page.locator(".tree-rows")).to_contain_text('approved by token "default"')
        await expect(page.locator(".tree-rows")).to_contain_text('denied by token "default": do not push')

        broken = await delegated(service)
        service.finish(broken, TerminationReason.ERROR, summary="no model:\n* none", errors=["no model:\n* none"])
        await page.goto(f"{url}/#{broken}")
        await expect(page.locator(".result .problem")).to_have_text("no model:\n* none", use_inner_text=True)
        await expect(page.locator(".result")).not_to_contain_text("summary")

        stopped = await delegated(service)
        more = {"errors": ["glob: not executed"], "failed_call_count": 1}
        service.finish(stopped, TerminationReason.WRAPPED_UP, summary="Half of it.", **more)
        await page.goto(f"{url}/#{stopped}")
        await expect(page.locator(".summary")).to_have_text("Half of it.")
        await expect(page.locator(".result .problem")).to_have_count(0)
        await expect(page.get_by_role("tab")).to_have_count(4)
        await page.goto(f"{url}/#dlg_{'0' * 26}")
        await expect(page.get_by_role("heading", name="Not available")).to_be_visible()
        await expect(page.get_by_role("tab")).to_have_count(0)


async def test_at_most_five_are_shown_first_and_those_of_the_run_that_is_open_before_others(pages: Pages) -> None:
    service = FakeService()
    other, own = await delegated(service, "another task"), await delegated(service, "the task that is open")
    for number in range(6):
        ask(service, other, number, f"number {number}")
    ask(service, own, 6, "its own")
    async with served(service) as url:
        page = await pages.open(f"{url}/#{own}", viewport={"width": 390, "height": 900})
        shown = page.locator("#requests > li:visible")
        await expect(shown).to_have_count(5)
        await expect(shown.first).to_contain_text("its own")
        for at in range(5):
            name = "the task that is open" if at == 0 else "another task"
            await expect(shown.nth(at).get_by_text(name)).to_be_visible()
        assert (await page.locator("#waiting").bounding_box() or {})["height"] < 600
        await page.get_by_label("Select all").check()
        await expect(button(page, "Approve 5")).to_be_enabled()
        await button(page, "Show all 7").click()
        await expect(shown).to_have_count(7)
        await expect(button(page, "Approve 5")).to_be_enabled()
        await page.get_by_label("Select all").check()
        await button(page, "Show the first 5").click()
        await expect(button(page, "Approve 5")).to_be_enabled()
        await page.goto(f"{url}/#")
        await expect(shown).to_have_count(5)
        await expect(shown.first).to_contain_text("number 0")
        await page.goto(f"{url}/#new")
        await expect(shown).to_have_count(5)


async def test_a_text_that_is_selected_stays_while_events_come(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task\n\nwords to be copied")
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        words = page.get_by_text("words to be copied")
        await expect(words.first).to_be_visible()
        await expect(page.locator("#connection")).to_have_text("Live")
        await until(lambda: service.following)
        select = "node => { getSelection().selectAllChildren(node); return getSelection().toString(); }"
        await until(lambda: words.first.evaluate(select))
        service.happen(id, TurnStarted(turn=1))
        service.happen(id, Heartbeat(turn=1, tool_calls=0, elapsed_ms=1))
        service.finish(id, summary="It is done.")
        await expect(page.get_by_text("succeeded").first).to_be_visible()
        assert await page.evaluate("getSelection().toString()") == "words to be copied"
        await page.evaluate("getSelection().removeAllRanges()")
        await expect(page.get_by_text("It is done.").first).to_be_visible()
