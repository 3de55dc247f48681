"""The page of an evaluation in a real browser, opened as the file that `deputize eval --html` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from deputize.orchestrator.evaluation.evaluation import Comparison, Evaluation
from deputize.orchestrator.evaluation.page import page as text_of
from tests.orchestrator.evaluation.made_runs import task
from tests.orchestrator.web.browsing import Pages

pytestmark = pytest.mark.asyncio(loop_scope="package")
TITLE = "<img src=x onerror=alert(1)> mend the sum"


async def share(bar: Locator, part: str) -> tuple[float, float]:
    """Where a part of a bar begins, and how wide it is, as shares of the bar."""
    whole, box = await bar.bounding_box(), await bar.locator(part).bounding_box()
    assert whole
    assert box
    return (box["x"] - whole["x"]) / whole["width"], box["width"] / whole["width"]


async def test_the_figures_are_seen_with_their_intervals_and_no_title_is_markup(pages: Pages, tmp_path: Path) -> None:
    new = Evaluation.of([task(1, 3, 1, title=TITLE), task(2, 0, 4)])
    former = Evaluation.of([task(1, 4, 0, title=TITLE), task(2, 1, 3)])
    (tmp_path / "page.html").write_text(text_of(new, Comparison.of(new, former)), "utf-8")
    page = await pages.open(f"file://{tmp_path}/page.html", viewport={"width": 900, "height": 600})
    await expect(page.get_by_role("heading", level=1)).to_have_text("Evaluation of 2 tasks, k = 4")
    await expect(page.get_by_text("too few for a conclusion")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="mend the sum")
    await expect(row).to_contain_text(f"{TITLE}3 of 4")
    await expect(page.locator("img")).to_have_count(0)
    low, high = new.tasks[0].interval
    await expect(row).to_contain_text(f"{low:.0%} to {high:.0%}")
    assert await share(row.locator(".bar"), "i") == pytest.approx((low, high - low), abs=0.01)
    assert (await share(row.locator(".bar"), "b"))[0] == pytest.approx(0.75, abs=0.01)
    await expect(page.get_by_role("row").filter(has_text="pass@1")).to_contain_text("37.5%")
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
