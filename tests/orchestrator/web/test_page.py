"""The web page itself: foreign text, tokens, keyboard, narrow screens, and streams that go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from deputize.shared.delegation import Usage
from deputize.shared.events import ProgressMade, Replied, TurnStarted
from deputize.shared.permission import (
    CommandDetails,
    EditDetails,
    ExecuteDetails,
    InfoDetails,
    McpDetails,
    PermissionAnswer,
    PermissionOutcome,
)
from deputize.shared.wire import now
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_permissions import STEP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.orchestrator.web.browsing import Pages, ask, button, card, delegated, opened
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>"
HIDDEN = "rm \u202e/ fr- x\u200b"
DIFF = f"--- a/{HOSTILE}\n+++ b/x\n@@ -1 +1 @@\n-old\n+{HOSTILE}\n"


async def everywhere(service: FakeService) -> str:
    """A delegation all of whose texts are hostile, with a request of each kind."""
    id = await delegated(service, HOSTILE, labels={HOSTILE: HOSTILE}, context=HOSTILE)
    step = STEP.model_copy(update={"arguments": {HOSTILE: HOSTILE}, "thinking": HOSTILE, "tool_name": HOSTILE})
    commands = [CommandDetails(command=HOSTILE, decision="ask", reason=HOSTILE)]
    details = (
        ExecuteDetails(command=f"{HIDDEN}\n{HOSTILE}", commands=commands, effects=[HOSTILE]),
        EditDetails(paths=[HOSTILE], diff=DIFF),
        McpDetails(server=HOSTILE, tool=HOSTILE, arguments={HOSTILE: 12345678901234567890}),
        InfoDetails(urls=[HOSTILE, "javascript:alert(4)"], arguments={HOSTILE: HOSTILE}),
    )
    remembers = {f"proceed_always{end}": [f"{HOSTILE}{end}"] for end in ("", "_tool", "_server")}
    more = {"step": step, "reason": HOSTILE, "rule": HOSTILE, "remembers": remembers}
    for number, each in enumerate(details):
        ask(service, id, number, f"{number} {HOSTILE}", details=each, path=[HOSTILE, id], **more)
    service.happen(id, Replied(turn=1, text=HOSTILE, stop_reason=HOSTILE, usage=Usage()))
    service.happen(id, ProgressMade(message=HOSTILE))
    service.finish(id, summary=HOSTILE, details=HOSTILE, errors=[f"{HOSTILE}!"], output={HOSTILE: HOSTILE})
    return id


async def is_as_wide_as_its_screen(page: Page) -> bool:
    return await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.costly
async def test_foreign_text_is_text_wherever_it_stands(pages: Pages) -> None:
    service = FakeService()
    id = await everywhere(service)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}", viewport={"width": 360, "height": 800})
        await expect(page.get_by_role("article")).to_have_count(4)
        for number in range(4):
            await expect(await opened(page, f"{number} {HOSTILE}")).to_be_visible()
        await expect(page.locator(".summary")).to_have_text(HOSTILE)
        await expect(page.locator(".tree-rows")).to_contain_text(HOSTILE)
        assert await page.locator("img, script:not([src]), iframe, style, a[href^='javascript']").count() == 0
        # What is not seen, or seen in another order, would be executed all the same.
        await expect(page.get_by_label("Command", exact=True)).to_have_text(f"rm \\u202e/ fr- x\\u200b\n{HOSTILE}")
        await expect(card(page, f"2 {HOSTILE}")).to_contain_text("12345678901234567890")
        await expect(page.locator(".diff .added")).to_have_text(f"+{HOSTILE}\n")
        for name in ("Always in this run", "Always this tool", "Always this server", "Change…", "Deny"):
            await expect(button(page.locator("#requests"), name)).to_have_count(4)
        await button(page, "Change…").first.click()
        assert await is_as_wide_as_its_screen(page)
        await page.set_viewport_size({"width": 1200, "height": 800})
        assert await is_as_wide_as_its_screen(page)

        terrible = await delegated(service, f"\x1b[31mred\x1b[0m {HIDDEN}{'x' * 10**6}")
        service.finish(terrible, summary=f"{HIDDEN}\x1b]0;title\x07{'y' * 10**6}")
        await page.goto(f"{url}/#")
        row = page.locator(".row-link", has_text="red")
        await expect(row).to_contain_text(r"\x1b[31mred\x1b[0m rm \u202e/ fr- x\u200bxxx")
        await expect(row).to_contain_text(r"rm \u202e/ fr- x\u200b\x1b]0;title\x07yyy")
        await expect(page.locator(".row-link", has_text=HOSTILE)).to_be_visible()
        assert await page.locator("img, script:not([src]), iframe, style, a[href^='javascript']").count() == 0
        for width in (1200, 360):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await is_as_wide_as_its_screen(page)


@pytest.mark.costly
async def test_a_token_is_asked_for_and_what_it_may_not_do_is_explained(pages: Pages, tmp_path: Path) -> None:
    service = FakeService()
    id = await delegated(service)
    ask(service, id, 1, "first")
    both, only = entry("both", "read", "approve", "all"), [entry(name, name, "all") for name in ("read", "submit")]
    path = write(tmp_path / "tokens.toml", both, *only)
    async with serving(service, path) as http:
        page = await pages.open(str(http.base_url))
        field, problem = page.get_by_label("Token"), page.locator("#token-problem")
        await expect(field).to_be_focused()
        await expect(problem).to_be_empty()
        for wrong, why in (("wrong", "this is not a token of the service"), ("ключ", "this is not a token")):
            await field.fill(wrong)
            await field.press("Enter")
            await expect(problem).to_contain_text(why)
        await field.fill(secret_of("submit"))
        await button(page, "Continue").click()
        await expect(problem).to_contain_text("lacks the scope read")
        await field.fill(secret_of("read"))
        await button(page, "Continue").click()
        await expect(card(page, "first")).to_be_visible()
        await expect(page.locator("#scopes")).to_contain_text("lacks the scope approve")
        for name in ("Approve once", "Always in this run", "Change…", "Deny"):
            await expect(button(page, name)).to_be_disabled()
        await page.reload()
        await expect(card(page, "first")).to_be_visible()

        await page.goto(f"{http.base_url}#token={secret_of('both')}")
        await expect(button(page, "Approve once")).to_be_enabled()
        assert "token" not in page.url
        write(path, *only)  # the operator withdraws it
        service.happen(id, ProgressMade(message="x"))
        await expect(problem).to_contain_text("this is not a token of the service")
        await expect(field).to_be_focused()
        await expect(button(page, "Approve once")).not_to_be_visible()


async def tab_to(page: Page, wanted: Locator) -> None:
    for _ in range(40):
        if await wanted.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached")


async def test_the_keyboard_is_enough_and_keeps_its_place(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task")
    async with served(service) as url:
        page = await pages.open(url)
        await expect(page.locator("#groups").get_by_role("link", name="the task")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to what needs an answer")).to_be_focused()
        first, second = (ask(service, id, number, f"number {number}") for number in (1, 2))
        await expect(page.locator("#announcements")).to_contain_text("permission")
        await expect(page).to_have_title("(2) deputize")
        await page.keyboard.press("Enter")
        await tab_to(page, button(card(page, "number 2"), "number 2"))
        await page.keyboard.press("Enter")
        approve = button(card(page, "number 2"), "Approve once")
        await tab_to(page, approve)
        service.given_answers[first.permission_id] = PermissionAnswer(outcome=PermissionOutcome.CANCEL, at=now())
        ask(service, id, 3, "number 3")
        await expect(card(page, "number 3")).to_be_visible()
        await expect(card(page, "number 1")).not_to_be_visible()
        await expect(approve).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(card(page, "number 2")).not_to_be_visible()
        await expect(card(page, "number 3")).to_be_focused()
        await page.keyboard.press("Enter")  # once too often
        assert {*service.given_answers} == {first.permission_id, second.permission_id}
        link = page.locator("#groups").get_by_role("link", name="the task")
        await link.press("Enter")
        await expect(page.get_by_role("heading", name="the task")).to_be_focused()


async def set_hidden(page: Page, hidden: bool) -> None:
    """Lets the page believe that its tab is in the background."""
    state = "hidden" if hidden else "visible"
    await page.evaluate(
        f"""Object.defineProperty(document, "visibilityState", {{value: "{state}", configurable: true}});
        document.dispatchEvent(new Event("visibilitychange"))"""
    )


@pytest.mark.costly
async def test_a_page_without_a_stream_polls_and_a_hidden_one_has_none(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task")
    async with served(service, settings(max_streams=1)) as url:
        one = await pages.open(url)
        await expect(one.locator("#connection")).to_have_text("Live")
        other = await pages.open(url)
        await expect(other.locator("#connection")).to_have_text("Connected")
        ask(service, id, 1, "first")
        for page in (one, other):
            await expect(card(page, "first")).to_be_visible()
        await button(card(one, "first"), "Approve once").click()
        await expect(other.get_by_text("Waits no more: first")).to_be_visible()
        await expect(card(other, "first")).not_to_be_visible()
        for page in (one, other):
            await set_hidden(page, True)
        await until(lambda: service.following == 0)
        ask(service, id, 2, "second")
        await set_hidden(one, False)
        await expect(card(one, "second")).to_be_visible()
        await expect(one.locator("#connection")).to_have_text("Live")


async def test_events_go_on_after_the_service_was_restarted(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task")
    lines = [f"number {number}." for number in range(4)]
    async with served(service) as url:
        page = await pages.open(url)
        await page.locator("#groups").get_by_role("link", name="the task").click()
        service.happen(id, ProgressMade(message=lines[0]))
        await expect(page.locator(".tree-row.note .title")).to_contain_text([lines[0]])
    await expect(page.locator("#connection")).to_contain_text("Not connected")
    service.happen(id, ProgressMade(message=lines[1]))
    ask(service, id, 1, "meanwhile")
    async with served(service, port=int(url.rpartition(":")[2])):
        await expect(card(page, "meanwhile")).to_be_visible()
        service.happen(id, ProgressMade(message=lines[2]))
        await expect(page.locator(".tree-row.note .title")).to_contain_text(lines[:3])
        await expect(page.locator(".tree-row.note .title")).to_have_count(3)
        await expect(page.locator("#connection")).to_have_text("Live")
        service.happen(id, TurnStarted(turn=7))
        await expect(page.locator(".numbers")).to_contain_text("Turns7")
        service.finish(id, summary="All is done.")
        await expect(page.locator(".summary")).to_have_text("All is done.")
        await expect(page.locator("#run .badge").first).to_have_text("✓ succeeded")
