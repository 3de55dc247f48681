"""What is done about a delegation from the page: message, wrap up, cancel, continue, retry, resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from deputize.shared.delegation import Status
from deputize.shared.message import MessageMode
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, button, delegated
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.costly
async def test_a_run_is_sent_a_message_wrapped_up_cancelled_continued_and_retried(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "the task")
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}", viewport={"width": 360, "height": 800})
        field, problem = page.get_by_label("Message"), page.locator(".actions .problem")
        await button(page, "Send").click()
        await expect(problem).to_have_text("Write a message first.")
        await field.fill("x" * 20_000)
        await field.press("Enter")
        await expect(problem).to_contain_text("20,000 bytes, over 16,384")
        await expect(field).to_have_value("x" * 20_000)
        await field.fill("go <left>")
        await field.press("Enter")
        await expect(page.locator(".actions [role=status]")).to_contain_text("Sent.")
        await expect(field).to_have_value("")
        await expect(problem).to_be_hidden()
        await button(page, "Wrap up").click()
        await until(lambda: len(service.inboxes[id]) == 2)
        sent = [(each.text, each.mode) for each in service.inboxes[id]]
        assert sent == [("go <left>", MessageMode.STEER), ("", MessageMode.WRAP_UP)]
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

        await button(page, "Cancel").click()
        await button(page, "Cancel it for good?").click()
        await until(lambda: service.runs[id].status is Status.CANCELLED)
        follow_up = page.get_by_label("Continue with")
        await expect(button(page, "Cancel")).to_be_hidden()
        await button(page, "Continue").click()
        await expect(problem).to_have_text("Write what is to be done now.")
        await follow_up.fill("and the changelog")
        await button(page, "Continue").click()
        await expect(page.get_by_label("Message")).to_be_visible()
        (continued,) = [each for each in service.runs.values() if each.request.continues == id]
        assert (continued.request.task, page.url) == ("and the changelog", f"{url}/#{continued.id}")

        await page.get_by_role("link", name=f"continues …{id[-6:]}").click()
        await button(page, "Retry").click()
        await expect(page.get_by_label("Message")).to_be_visible()
        (retried,) = [each for each in service.runs.values() if each.request.retry_of == id]
        assert (retried.request.task, page.url) == ("the task", f"{url}/#{retried.id}")


async def test_a_paused_one_is_resumed(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service)
    service.runs[id] = service.runs[id].model_copy(update={"paused": True})
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        await button(page, "Resume").click()
        await until(lambda: not service.runs[id].paused)


async def test_a_token_that_may_not_submit_gets_no_actions(pages: Pages, tmp_path: Path) -> None:
    service = FakeService()
    id = await delegated(service)
    tokens = write(tmp_path / "tokens.toml", entry("reader", "read", "all"))
    async with serving(service, tokens) as http:
        page = await pages.open(f"{http.base_url}/#token={secret_of('reader')}")
        link = page.locator("#groups").get_by_role("link", name="do it")
        await expect(link).to_be_visible()
        await expect(page.locator(".cancel:visible")).to_have_count(0)
        await link.click()
        await expect(page.get_by_role("heading", name="do it")).to_be_visible()
        await expect(page.get_by_label("Message")).to_be_hidden()
        assert page.url.endswith(id)
