"""One delegation on the page: its tree while it runs and afterwards, why, replay, its parts, and the file of it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from deputize.shared.delegation import StepStatus
from deputize.shared.events import StepCompleted, StepStarted
from deputize.shared.facts import TournamentFacts
from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, button, delegated
from tests.orchestrator.web.eventful import HOSTILE, at_work, ended, step, turn

pytestmark = pytest.mark.asyncio(loop_scope="package")


def row(page: Page, title: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("treeitem", name=title)


async def test_a_run_is_watched_understood_replayed_and_kept(pages: Pages, tmp_path: Path) -> None:
    service = FakeService()
    id, child = await at_work(service)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}", viewport={"width": 1200, "height": 900})
        details = page.get_by_role("complementary", name="Details")
        await expect(page.locator("#run h2")).to_be_focused()
        await expect(page.locator(".tree-row.wait")).to_contain_text(["Queued", "Waits for the model's endpoint"])
        await expect(row(page, re.compile("running Ask a helper"))).to_be_visible()  # from here on no row moves
        await expect(page.locator(".bar.open")).to_have_count(3)  # the turn, its call and the child
        await row(page, re.compile("^succeeded edit pricing.py")).click()
        await expect(details.get_by_label("Output")).to_have_text(f"Changed 1 place. {HOSTILE}")
        await expect(details.locator(".diff .added")).to_have_text("+a >= b\n")
        await expect(details.get_by_label("Arguments")).to_contain_text("onerror")
        for key in ("Home", "j", "j", "k"):
            await page.keyboard.press(key)
        await expect(details.get_by_role("heading").first).to_have_text("Turn 1")
        await expect(details.locator(".prose strong")).to_have_text("look")
        await page.keyboard.press("Escape")
        await expect(details).to_be_hidden()
        await row(page, re.compile(" help ")).locator(".caret").click()
        await expect(row(page, re.compile(r"\$ look"))).to_be_visible()
        service.happen(id, StepStarted(step=step("test", 2)))
        await expect(row(page, re.compile(r"running \$ test"))).to_be_visible()

        ended(service, id, child)
        result = page.locator(".result")
        await expect(result.locator(".summary h4")).to_have_text("Mended")
        await expect(result.locator(".summary li")).to_have_count(2)
        await expect(page.locator(".bar.open")).to_have_count(0)
        await result.get_by_role("button", name="Why? pricing.py").click()
        await expect(details.locator(".causes li")).to_contain_text(["Last changed by edit pricing.py", "Turn 1"])
        await details.locator(".causes button").first.click()
        await expect(row(page, re.compile("edit pricing.py"))).to_have_attribute("aria-selected", "true")
        await button(page, "Close the details").click()
        for name, cause in (
            ("Why? check 1", "pricing.py: Last changed"),
            ("Why? it ended, max turns", "maxTurns of 3"),
        ):
            await result.get_by_role("button", name=name).click()
            await expect(details).to_contain_text(cause)
            await button(page, "Close the details").click()
        await result.locator(".files summary").click()
        await expect(result.locator(".diff .removed")).to_have_text("-a > b\n")
        async with page.expect_download() as downloading:
            await button(result, "Download report.md").click()
        assert Path(await (await downloading.value).path()).read_text("utf-8") == "# Report"
        await expect(result.get_by_role("list", name="Instructions")).to_contain_text("SHA-256 abababababab")
        await result.get_by_role("button", name="its step").click()
        await expect(row(page, re.compile(r"failed \$ test"))).to_have_attribute("aria-selected", "true")
        await button(page, "Close the details").click()

        replay = page.get_by_role("slider", name="Replay")
        await replay.press("Home")
        await expect(row(page, re.compile("edit pricing.py"))).to_have_count(0)
        await button(page, "Play").click()
        await expect(result).to_be_visible()
        await replay.press("Home")
        await button(page, "To the end").click()
        await expect(row(page, re.compile("Check 1"))).to_be_visible()

        await page.get_by_role("tab", name="Timeline").press("ArrowRight")
        await expect(page.locator(".transcript .call")).to_have_count(3)
        await expect(page.locator(".transcript")).to_contain_text(HOSTILE)
        await page.get_by_role("tab", name="Usage").click()
        await expect(page.get_by_role("table")).to_contain_text("Total")
        await expect(page.locator(".usage .notice")).to_have_text(re.compile(r"saved \$0\.02.*: .* \$0\.03"))
        assert page.url == f"{url}/#{id}?tab=usage"
        await page.reload()
        await page.get_by_role("button", name="Turn 2").click()
        await expect(row(page, re.compile("Turn 2"))).to_have_attribute("aria-selected", "true")

        async with page.expect_download() as downloading:
            await button(page, "Download").click()
        file = tmp_path / "kept.html"
        await (await downloading.value).save_as(file)
    kept = await pages.open(file.as_uri(), viewport={"width": 390, "height": 800})
    await expect(kept.locator(".summary h4")).to_have_text("Mended")
    await kept.locator("details", has_text="edit pricing.py").last.locator("summary").first.click()
    await expect(kept.get_by_label("Output", exact=True).first).to_have_text(f"Changed 1 place. {HOSTILE}")
    await expect(kept.locator("details", has_text="$ look").last).to_be_attached()
    assert await kept.locator("script, img, iframe, form, link, button, textarea").count() == 0
    assert "default-src 'none'" in file.read_text("utf-8")
    assert await kept.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


async def test_a_child_moves_below_its_call_as_soon_as_that_is_known(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "ask a helper")
    turn(service, id, 1, "I ask.", "helper")
    request = DelegationRequest(task="help me", parent_id=id, idempotency_key=f"{id}:1:helper")
    await service.create(request)
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        child = row(page, re.compile("help me"))
        await expect(child).to_have_attribute("aria-level", "1")
        await page.route("**/v1/delegations?parent=*", lambda route: route.abort())
        call = step("helper", 1, type="delegate", tool_name="call_subagent", title="Ask a helper")
        service.happen(id, StepStarted(step=call))
        await expect(child).to_have_attribute("aria-level", "3")


async def test_the_usage_has_the_children_however_late_their_list_comes(pages: Pages) -> None:
    service, listed = FakeService(), asyncio.Event()
    id, child = await at_work(service)
    ended(service, id, child)

    async def hold(route: Route) -> None:
        await listed.wait()
        await route.continue_()

    async with served(service) as url:
        page = await pages.open(url)
        await page.route("**/v1/delegations?parent=*", hold)
        await page.goto(f"{url}/#{id}?tab=usage")
        await expect(page.get_by_role("table")).to_contain_text("Total")
        listed.set()
        await expect(page.get_by_role("rowheader", name="Child: help")).to_be_visible()


@pytest.mark.costly
async def test_of_five_thousand_steps_those_that_are_seen_are_elements(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "very long")
    for number in range(1, 201):
        turn(service, id, number, f"turn {number}", "x")
        for call in range(25):
            done = step(f"{number}-{call}", number, StepStatus.COMPLETED, result="x" * 200)
            service.happen(id, StepCompleted(step=done))
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        await expect(row(page, re.compile(r"\$ 200-24"))).to_be_visible()  # it follows what happens
        await page.get_by_role("tree").focus()
        await expect(page.get_by_role("slider", name="Replay")).to_have_attribute("max", "5401")
        await page.keyboard.press("Home")
        await expect(row(page, re.compile("Turn 1 "))).to_be_visible()
        await page.keyboard.press("End")
        await expect(row(page, re.compile(r"\$ 200-24"))).to_be_visible()
        assert await page.get_by_role("treeitem").count() < 60
        await button(page, "Fold turns").click()
        await expect(row(page, re.compile("Turn 200 "))).to_be_visible()
        service.finish(id, summary="All done.")
        await expect(page.locator(".summary")).to_have_text("All done.")


async def test_a_verified_result_has_buttons_for_its_proof(pages: Pages) -> None:
    service = FakeService()
    id = await delegated(service, "mend it")
    service.patches[id] = "+b\n"
    service.finish(id, verification={"verdict": "verified", "require": "passed"})
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        await button(page, "Copy the proof").click()
        noted = page.locator(".result [role=status]")
        await expect(noted).to_contain_text("no key signed it when it ended")
        service.proofs[id] = '{"payload": "e30="}'
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await button(page, "Copy the proof").click()
        await expect(noted).to_have_text("copied")
        assert '"payload":"e30="' in await page.evaluate("navigator.clipboard.readText()")


async def test_the_attempts_at_a_task_are_side_by_side_with_their_changes(pages: Pages) -> None:
    service = FakeService()
    id, first, second = [await delegated(service, f"mend it {number}") for number in range(3)]
    service.patches[second] = "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+mended\n"
    same = {"patch": "0", "protected": 0, "addedLines": 1, "removedLines": 1, "costUsd": 0.5}
    attempts = [
        {"id": first, "verdict": "refuted", "ending": "refuted (completed)", **same},
        {"id": second, "verdict": "verified", "ending": "verified (completed)", **same},
    ]
    facts = {"attempts": attempts, "taken": second, "winner": second, "passed": 1, "of": 2}
    service.finish(id, tournament=TournamentFacts.model_validate(facts))
    async with served(service) as url:
        page = await pages.open(f"{url}/#{id}")
        listed = page.get_by_role("list", name="Attempts")
        await expect(listed).to_contain_text("refuted attempt 1")
        await expect(page.get_by_text("1 of 2 passed")).to_be_visible()
        await listed.get_by_text("attempt 2 wins").click()
        await expect(listed.locator(".diff")).to_contain_text("+mended")
        await expect(listed.get_by_role("link")).to_have_count(2)
