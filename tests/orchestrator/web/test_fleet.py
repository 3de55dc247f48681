"""The fleet on the page: its tree, its filters, what moves by events, and what is cancelled there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import expect

from deputize.shared.delegation import Status, Usage
from deputize.shared.errors import Unavailable
from deputize.shared.events import Replied, StepStarted, TurnStarted
from deputize.shared.fleet import PreparedEnvironment
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.capacity import EndpointCapacity
from deputize.shared.schedule import Schedule
from deputize.shared.wire import now
from tests.orchestrator.fake_permissions import STEP
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, ask, button, delegated
from tests.orchestrator.web.eventful import family
from tests.waiting import until

PLACES = EndpointCapacity(endpoint="workers", model="", waiting=1005, owners={"ann": 1000, "<b>o": 5})
LIMITED = EndpointCapacity(
    endpoint="3fa2", model="<b>m", rate=4.1, served=1700, refused=24, waiting=41, until=now() + timedelta(hours=1)
)
SPENT = EndpointCapacity(endpoint="91de", model="m", key=2, spent=True, until=now() + timedelta(hours=1))
PREPARED = PreparedEnvironment(
    environment="<b>shop",
    key="<b>shop-0a1b2c3d4e5f67890123",
    bytes=1_499_000_001,
    seconds=41.2,
    prepared_at=now() - timedelta(days=3),
    used_at=now() - timedelta(hours=2),
    workers=["old@two", "w@one"],
)

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.costly
async def test_the_fleet_is_a_tree_which_is_live_filtered_and_walked_through(pages: Pages) -> None:
    service = FakeService()
    parent, child = await family(service)
    async with served(service) as url:
        page = await pages.open(url, locale="de-DE", viewport={"width": 1200, "height": 900})
        rows = page.locator(".row-link:visible .task")
        await expect(rows).to_have_text(["review it all", "review b", "review a", "later", "an old one"])
        await expect(page.locator(".below:visible")).to_contain_text(
            re.compile(r"2 children · 1 not finished · 1.*0,50")
        )
        heads = page.locator("#groups header:visible")
        await expect(heads).to_have_text([re.compile("^In progress1 and 1 child"), "Queued1", "Finished1"])
        await expect(page.locator("#load")).to_contain_text("In the queue1")
        await expect(page.locator("#load")).to_contain_text("Places taken2 of 8")
        filters = page.locator("#filters")
        await expect(filters.get_by_role("link", name="All 5")).to_have_attribute("aria-current", "true")

        service.happen(child, TurnStarted(turn=3))
        service.happen(
            child, Replied(turn=3, text="Now the tests.", stop_reason="tool_use", usage=Usage(cost_usd=0.25))
        )
        service.happen(child, StepStarted(step=STEP))
        inner = page.locator(".row-link", has_text="review a")
        await expect(inner).to_contain_text("$ rm -r build — Now the tests.")
        await expect(inner).to_contain_text("3 turns")
        ask(service, child, 1, "write a.py")
        await expect(inner).to_contain_text(re.compile("^. asks you.*asks: write a.py"))
        await filters.get_by_role("link", name="asks you 1").click()
        await expect(rows).to_have_text(["review a"])  # its parent waits, too, but not for a person
        await filters.get_by_role("link", name="All 5").click()
        await button(page, "Children of review it all").click()
        await expect(rows).to_have_text(["review it all", "later", "an old one"])
        service.requests.clear()
        service.finish(child, summary="Reviewed <b>all</b>.")
        await expect(filters.get_by_role("link", name="succeeded 2")).to_be_visible()
        service.fleet.append(worker_card(name="old@two", draining=True))
        service.endpoints += [PLACES, LIMITED, SPENT]
        night = Schedule(name="nightly", cron="0 3 * * *", zone="UTC", last=now(), last_delegation_id=child)
        service.planned = {"nightly": night, "hourly": night.model_copy(update={"name": "hourly", "paused": "by hand"})}
        half = PREPARED.model_copy(update={"state": "preparing", "bytes": 0})
        service.prepared = [PREPARED, half, half.model_copy(update={"state": "failed", "seconds": 0})]
        new = await service.create(DelegationRequest(task="a new one"))
        await expect(rows).to_have_text(["review it all", "a new one", "later", "an old one"])
        await expect(page.locator("#workers")).to_contain_text("old@two takes no more")
        await expect(page.locator("#load")).to_contain_text("1 draining")
        shown = re.compile(r"^<b>m · 4,1 requests/s · 1.700 served · 24 refused · 41 waiting · no capacity until \d+:")
        places = "Places in workers · 1.005 waiting (ann 1.000, <b>o 5)"
        spent = re.compile(r"^m, key 2 · spend limit reached until \d+[./]\d+[./]\d+")
        await expect(page.locator("#capacity li")).to_have_text([places, shown, spent])
        await expect(page.locator("#schedules summary")).to_have_text("2 schedules")
        await expect(page.locator("#schedules")).to_contain_text("paused: by hand")
        await expect(page.locator("#schedules a").first).to_have_attribute("href", re.compile(child))
        await expect(page.locator("#environments summary")).to_have_text(
            "1 prepared environment, 1 preparing, 1 failed"
        )
        await page.locator("#environments summary").click()
        shop, took, used = ["<b>shop", "0a1b2c3d4e5f"], re.compile("^41"), [re.compile("^vor 2"), "old@two, w@one"]
        cells = [*shop, "ready", "1.500 MB", took, *used, *shop, "preparing", "", took, *used]
        cells += [*shop, "failed", "", "", *used]
        await expect(page.locator("#environments tbody").locator("th, td")).to_have_text(cells)
        await expect(page.locator("#load")).to_contain_text("of 8")

        await filters.get_by_role("link", name="failed 1").click()
        await expect(rows).to_have_text(["an old one"])
        await expect(page.locator(".row-link")).to_contain_text("refuted 1 call denied — It is broken.")
        await page.reload()
        await expect(rows).to_have_text(["an old one"])
        assert page.url == f"{url}/#?status=failed"
        await page.go_back()
        await expect(rows).to_have_count(4)
        await page.get_by_role("link", name="team:docs").click()
        await expect(rows).to_have_text(["review it all"])
        await page.get_by_role("link", name="Remove the filter label team:docs").click()
        await page.get_by_role("link", name="session s-1").click()
        await expect(rows).to_have_text(["review it all"])
        assert page.url == f"{url}/#?session=s-1"
        await page.get_by_role("link", name="Remove the filter session s-1").click()
        await expect(rows).to_have_count(4)
        await page.keyboard.press("/")
        await page.keyboard.type("BROKEN")
        await expect(rows).to_have_text(["an old one"])
        assert page.url == f"{url}/#?text=BROKEN"
        await page.get_by_label("Filter by text").fill("")

        await page.locator("#fleet-title").focus()
        for key in "jjk":
            await page.keyboard.press(key)
        await expect(page.locator(":focus .task")).to_have_text("review it all")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="review it all")).to_be_visible()
        assert page.url == f"{url}/#{parent}"
        await page.keyboard.press("Escape")
        await expect(page.locator(":focus .task")).to_have_text("review it all")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="review it all")).to_be_visible()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Filter by text")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        await button(page, "Close").click()
        assert new.delegation.id in service.runs


async def test_one_or_all_that_are_shown_are_cancelled_after_a_second_click(pages: Pages) -> None:
    service = FakeService()
    ids = [await delegated(service, f"number {number}", labels={"of": str(number % 2)}) for number in range(6)]

    def cancelled() -> list[int]:
        return [number for number, id in enumerate(ids) if service.runs[id].status is Status.CANCELLED]

    async with served(service) as url:
        page = await pages.open(f"{url}/#?label=of:1")
        await expect(page.locator(".row-link")).to_have_count(3)
        line = page.locator(".row-line", has_text="number 5")
        await line.hover()
        await button(line, "Cancel number 5").dblclick()
        await expect(line.locator(".cancel")).to_have_text("Cancel it?")
        await expect(line.locator(".cancel")).to_be_enabled()
        assert cancelled() == []
        await line.locator(".cancel").click()
        await until(lambda: cancelled() == [5])
        await expect(page.locator("#announcements")).to_have_text("Cancelled: number 5")
        await expect(page.locator("#groups")).to_contain_text("Finished")
        line = page.locator(".row-line", has_text="number 3")
        service.away = Unavailable("Redis is away")
        await line.hover()
        await button(line, "Cancel number 3").click()
        await expect(line.locator(".cancel")).to_have_text("Cancel it?")
        await expect(line.locator(".cancel")).to_be_enabled()
        await line.locator(".cancel").click()
        await expect(page.locator("#announcements")).to_have_text("Not cancelled: Redis is away")
        service.away = None
        service.happen(ids[3], StepStarted(step=STEP))
        await expect(line).to_contain_text("$ rm -r build")
        await button(page, "Cancel all…").click()
        await button(page, "Cancel 2 delegations?").click()
        await until(lambda: cancelled() == [1, 3, 5])


@pytest.mark.costly
async def test_results_for_a_review_are_in_the_services_order_with_their_reasons(pages: Pages) -> None:
    service = FakeService()

    async def ended(title: str, lines: int, **fields: Any) -> str:
        id = await delegated(service, title, labels={"team": title.partition(" ")[0]})
        change = {"path": "a.py", "change": "modified", "addedLines": lines}
        service.finish(id, file_changes=[change] if lines else [], summary="Words.", **fields)
        return id

    small = await ended("docs small", 1)
    await ended("code large", 90)
    await ended("code denied", 1, denied_call_count=2)
    await ended("code nothing", 0)
    running = await delegated(service, "docs runs", labels={"team": "docs"})
    async with served(service) as url:
        page = await pages.open(url)
        rows = page.locator(".row-link:visible .task")
        await expect(rows).to_have_count(5)
        await page.locator("#filters").get_by_role("link", name="For review").click()
        await expect(rows).to_have_text(["docs small", "code large", "code denied"])
        assert page.url == f"{url}/#?review=true"
        now = page.locator(".row-link:visible .now")
        await expect(now).to_have_text(
            [
                "+1 -0 in 1 file — Words.",
                "+90 -0 in 1 file — Words.",
                "+1 -0 in 1 file, 2 calls denied — Words.",
            ]
        )
        await expect(page.get_by_role("link", name="For review")).to_have_attribute("aria-current", "true")
        await expect(page.locator("#filters").get_by_role("link", name="All 5")).not_to_have_attribute(
            "aria-current", "true"
        )
        service.finish(running, file_changes=[{"path": "b.py", "change": "created", "addedLines": 30}])
        await expect(rows).to_have_text(["docs small", "docs runs", "code large", "code denied"])
        await page.get_by_role("link", name="team:docs").first.click()
        await expect(rows).to_have_text(["docs runs", "docs small"])  # the chip of a row filters the fleet
        await page.go_back()
        await page.reload()
        await expect(rows).to_have_text(["docs small", "docs runs", "code large", "code denied"])
        await page.get_by_label("Filter by text").fill("code")
        await expect(rows).to_have_text(["code large", "code denied"])
        await page.locator(".row-link", has_text="code large").click()
        await expect(page.get_by_role("heading", name="code large")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(rows.first).to_be_visible()
        await page.locator("#filters").get_by_role("link", name="All 5").click()
        await page.get_by_label("Filter by text").fill("")
        await expect(rows).to_have_text(["docs runs", "code nothing", "code denied", "code large", "docs small"])
        await expect(page.locator(".row-link", has_text="docs small").locator(".now")).to_have_text("Words.")
        assert small in service.runs


async def test_five_hundred_rows_are_drawn_only_where_they_are_seen(pages: Pages) -> None:
    service = FakeService()
    await service.create_many([DelegationRequest(task=f"number {number}") for number in range(500)])
    async with served(service) as url:
        page = await pages.open(url, viewport={"width": 1200, "height": 800})
        await expect(page.locator(".row-link")).to_have_count(500)
        drawn = "node => node.checkVisibility({contentVisibilityAuto: true})"
        seen = await page.evaluate(f"[...document.querySelectorAll('.row-link .task')].filter({drawn}).length")
        assert 5 < seen < 150
        await page.locator("#fleet-title").focus()
        await page.keyboard.press("k")
        await expect(page.locator(":focus .task")).to_have_text("number 0")
        await expect(page.locator(":focus")).to_be_in_viewport()
