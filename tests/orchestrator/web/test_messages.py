"""Messages from the page: sent to a delegation that runs, refused with the reason, and gone when it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from deputize.shared.message import MessageMode
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, button, delegated
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_message_is_sent_and_the_work_is_asked_to_wrap_up(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}", viewport={"width": 360, "height": 800})
        field, problem = page.get_by_label("Message"), page.locator("#message-problem")
        await button(page, "Send").click()
        await expect(problem).to_have_text("Write a message first.")
        await field.fill("go <left>")
        await field.press("Enter")
        await expect(field).to_have_value("")
        await expect(problem).to_be_empty()
        await expect(page.locator(".events")).to_contain_text("go <left>")
        await button(page, "Wrap up").click()
        await until(lambda: len(service.inboxes[id]) == 2)
        sent = [(each.text, each.mode) for each in service.inboxes[id]]
        assert sent == [("go <left>", MessageMode.STEER), ("", MessageMode.WRAP_UP)]
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        await field.fill("late")
        service.finish(id)
        await expect(field).to_be_hidden()


async def test_a_refusal_is_shown_and_the_text_stays(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        field = page.get_by_label("Message")
        await field.fill("x" * 20_000)
        await button(page, "Send").click()
        await expect(page.locator("#message-problem")).to_contain_text("20,000 bytes, over 16,384")
        await expect(field).to_have_value("x" * 20_000)


async def test_a_token_that_may_not_send_gets_no_form(pages: Pages, tmp_path: Path) -> None:
    service = FakeService()
    id = await delegated(service)
    tokens = write(tmp_path / "tokens.toml", entry("reader", "read"))
    async with serving(service, tokens) as http:
        page = await pages.open(f"{http.base_url}/#token={secret_of('reader')}")
        await page.goto(f"{http.base_url}/#{id}")
        await expect(page.get_by_role("heading", name="do it")).to_be_visible()
        await expect(page.get_by_label("Message")).to_be_hidden()
