"""What axe finds on each view, in both colour schemes, and whether it fits the narrowest screens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from deputize.shared.permission import EditDetails
from tests.architecture.sources import ROOT
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.web.browsing import Pages, ask, button, card, delegated
from tests.orchestrator.web.eventful import at_work, ended, family

pytestmark = pytest.mark.asyncio(loop_scope="package")

AXE = ROOT / ".venv/npm/node_modules/axe-core/axe.min.js"
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new\n"


@pytest.fixture(scope="module")
def axe() -> str:
    """Its program; skips at home and fails in CI where there is none."""
    if not AXE.exists():
        reason = f"axe-core is missing ({AXE}): run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return AXE.read_text("utf-8")


async def findings(page: Page, axe: str, view: str) -> list[str]:
    """What is wrong with the page as it is shown, in both schemes and at two widths."""
    found: list[str] = []
    seen: list[tuple[Literal["light", "dark"], int]] = [("light", 1200), ("dark", 360)]
    if await page.evaluate("typeof axe") == "undefined":  # half a megabyte, which stays until the page is loaded anew
        await page.evaluate(axe)
    for scheme, width in seen:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.set_viewport_size({"width": width, "height": 800})
        report = await page.evaluate("axe.run({resultTypes: ['violations']})")
        for each in report["violations"]:
            found += [
                f"{view}, {scheme}: {each['id']}: {node['target']} {node['html'][:200]}" for node in each["nodes"]
            ]
        if not await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"):
            found.append(f"{view} is wider than {width} px")
    return found


@pytest.mark.costly
async def test_axe_finds_nothing_on_any_view(pages: Pages, axe: str, tmp_path: Path) -> None:
    service = FakeService()
    parent, child = await family(service)
    done = await delegated(service, "done")
    service.finish(done, summary="# Done\n\n- *all* of it", errors=["one"])
    path = write(tmp_path / "tokens.toml", entry("all", "read", "submit", "approve", "all"))
    async with serving(service, path) as http:
        page = await pages.open(str(http.base_url))
        await expect(page.get_by_label("Token")).to_be_focused()
        found = await findings(page, axe, "signing in")
        await page.goto(f"{http.base_url}/#token={secret_of('all')}")
        await expect(page.get_by_role("link", name="review it all")).to_be_visible()
        await page.locator("#workers summary").click()
        found += await findings(page, axe, "the fleet")
        ask(service, child, 1, "write a.py", details=EditDetails(paths=["a.py"], diff=DIFF))
        await button(card(page, "write a.py"), "Change…").click()
        found += await findings(page, axe, "one request")
        ask(service, parent, 2, "second")
        await expect(card(page, "second")).to_be_visible()
        found += await findings(page, axe, "several requests")
        works, its_child = await at_work(service)
        for id in (child, done, works):
            await page.goto(f"{http.base_url}/#{id}")
            await expect(page.locator(".tree-row").first).to_be_visible()
            found += await findings(page, axe, f"delegation {service.runs[id].request.task}")
        ended(service, works, its_child)
        await expect(page.locator(".result")).to_be_visible()
        found += await findings(page, axe, "a result")
        await page.get_by_role("treeitem", name="edit pricing.py").click()
        found += await findings(page, axe, "a step")
        await page.get_by_role("button", name="Close the details").click()
        for tab in ("Transcript", "Usage", "Request"):
            await page.get_by_role("tab", name=tab).click()
            found += await findings(page, axe, tab)
        await page.goto(f"{http.base_url}/#new")
        for summary in await page.locator("#task summary").all():
            await summary.click()
        await button(page, "Delegate").click()
        found += await findings(page, axe, "new task")
        await page.keyboard.press("Escape")
        await page.evaluate("document.getElementById('help').showModal()")
        found += await findings(page, axe, "keyboard")
    assert found == [], "\n".join(found)
