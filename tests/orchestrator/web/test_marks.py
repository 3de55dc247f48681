"""The mark of a result on the page: in its row, above it, and where it is a child."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.marked import MARKED
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, button, delegated

pytestmark = pytest.mark.asyncio(loop_scope="package")

CLASSES = {"✓": "succeeded", "?": "waiting", "✗": "failed", "–": "cancelled"}
COLOURS = {"✓": "good", "?": "warn", "✗": "bad", "–": "idle"}


@pytest.mark.costly
async def test_a_result_has_its_mark_in_the_fleet_above_the_run_and_below_its_parent(pages: Pages) -> None:
    service = FakeService()
    parent = await delegated(service, "all of them")
    ids = [await delegated(service, f"task {number:02}", parent_id=parent) for number in range(len(MARKED))]
    for id, row in zip(ids[::2], MARKED[::2], strict=True):
        service.finish(id, row.reason, **row.fields)
    async with served(service) as url:
        page = await pages.open(url, viewport={"width": 1200, "height": 900})
        await expect(page.locator(".row-link")).to_have_count(len(MARKED) + 1)
        for id, row in zip(ids[1::2], MARKED[1::2], strict=True):  # by their events
            service.finish(id, row.reason, **row.fields)
        await expect(page.locator(".row-link:visible")).to_have_count(1)  # they closed with the last end
        await button(page, "Children of all of them").click()
        for number, row in enumerate(MARKED):
            state = page.locator(".row-link", has_text=f"task {number:02}").locator(".state")
            await expect(state).to_have_text(f"{row.sign} {row.headline}")
            await expect(state).to_have_class(f"state {CLASSES[row.sign]}")
            assert await state.evaluate("each => getComputedStyle(each).color") == await page.evaluate(
                """name => {
                  const probe = document.body.appendChild(document.createElement("i"));
                  probe.style.color = `var(--color-${name})`;
                  try { return getComputedStyle(probe).color; } finally { probe.remove(); }
                }""",
                COLOURS[row.sign],
            )
            assert await state.evaluate("each => each.scrollWidth <= each.clientWidth"), row
        await page.goto(f"{url}/#{parent}")
        for number, row in enumerate(MARKED):
            child = page.locator(".tree-row.child", has_text=f"task {number:02}")
            await expect(child.locator(".detail")).to_have_text(f"{row.sign} {row.headline}")
        for id, row in zip(ids, MARKED, strict=True):
            await page.goto(f"{url}/#{id}")
            badge = page.locator("#run .badge").first
            await expect(badge).to_have_text(f"{row.sign} {row.headline}")
            await expect(badge).to_have_class(f"badge {CLASSES[row.sign]}")
            if (verdict := row.result.verification.verdict) != "unverified":
                shown = page.get_by_role("heading", name=f"Verdict {verdict}").locator(".badge")
                await expect(shown).to_have_class(f"badge {VERDICTS[verdict]}")


VERDICTS = {
    "verified": "succeeded",
    "passed": "succeeded",
    "improved": "waiting",
    "inconclusive": "waiting",
    "refuted": "failed",
}
