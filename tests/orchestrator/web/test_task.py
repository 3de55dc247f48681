"""The form for a new task: what it sends, and where the service's objections are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served
from tests.orchestrator.web.browsing import Pages, button
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_task_is_written_corrected_and_delegated(pages: Pages, tmp_path: Path) -> None:
    service = FakeService()
    service.workspaces = tmp_path / "workspaces"
    async with served(service) as url:
        page = await pages.open(url, viewport={"width": 390, "height": 800})
        await expect(page.get_by_text("Nothing has been delegated yet.")).to_be_visible()
        await page.keyboard.press("n")
        task = page.get_by_label("Task", exact=True)
        await expect(task).to_be_focused()
        await button(page, "Delegate").click()
        await expect(page.locator("#field-task-problem")).to_have_text("Write what is to be done.")
        await task.fill("Fix <b>the</b> test\n\nand say why")
        await page.get_by_label("Works on").select_option("git")
        await page.get_by_label("URL").fill("https://example.org/r.git")
        await page.locator("summary", has_text="Agent, model and tools").click()
        await page.get_by_label("Approval").select_option("ask")
        for summary in ("Limits", "Delivery"):
            await page.locator("summary", has_text=summary).click()
        turns = page.get_by_label("Turns")
        await turns.fill("0")
        await page.get_by_label("Checks").fill("make test\nmake lint\n")
        await page.get_by_label("Labels").fill("team")
        await button(page, "Delegate").click()
        await expect(page.locator("#field-labels-problem")).to_have_text("team is not key:value")
        await page.get_by_label("Labels").fill("team:docs, of:me")
        await expect(page.locator("#field-labels-problem")).to_be_empty()
        assert service.runs == {}
        await button(page, "Delegate").click()
        await expect(page.locator("#field-limits-maxTurns-problem")).not_to_be_empty()
        await expect(turns).to_have_attribute("aria-invalid", "true")
        await expect(turns).to_be_focused()
        await turns.fill("7")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        await turns.press("Control+Enter")
        await until(lambda: service.runs)
        ((id, run),) = service.runs.items()
        await expect(page).to_have_url(f"{url}/#{id}")
        wanted = {
            "task": "Fix <b>the</b> test\n\nand say why",
            "workspace": {"kind": "git", "url": "https://example.org/r.git"},
            "approvalMode": "ask",
            "limits": {"maxTurns": 7},
            "verify": [{"kind": "command", "run": "make test"}, {"kind": "command", "run": "make lint"}],
            "labels": {"team": "docs", "of": "me"},
            "idempotencyKey": run.request.idempotency_key,
        }
        assert run.request == DelegationRequest.model_validate(wanted)

        await page.go_back()
        await expect(page).to_have_url(f"{url}/")
        await page.keyboard.press("n")
        await expect(task).to_have_value("")
        archive = tmp_path / "files.zip"
        archive.write_bytes(b"PK\x05\x06" + bytes(18))
        await task.fill("second")
        await page.get_by_label("Works on").select_option("archive")
        await page.get_by_label("File").set_input_files(archive)
        await button(page, "Delegate").click()
        await until(lambda: len(service.runs) == 2)
        assert [*service.runs.values()][-1].request.workspace.kind == "archive"


async def test_the_form_offers_what_the_service_knows_and_folds_what_most_leave_empty(pages: Pages) -> None:
    service = FakeService()
    service.fleet = [worker_card()]
    await service.create(DelegationRequest(task="before", agent="reviewer", model="house"))
    async with served(service) as url:
        page = await pages.open(f"{url}/#new")
        for label in ("Agent", "Model", "Tools", "Turns", "Priority"):
            await expect(page.get_by_label(label, exact=True)).to_be_hidden()
        known = {"agents": {"reviewer"}, "models": {"house", worker_card().model}}
        known["tools"] = {each.name for each in await service.tools()}
        for what, names in known.items():
            await expect(page.locator(f"#known-{what} option")).to_have_count(len(names))
            offered = await page.locator(f"#known-{what} option").evaluate_all(
                "nodes => nodes.map((node) => node.value)"
            )
            assert offered == sorted(names), what
        await page.locator("summary", has_text="Agent, model and tools").click()
        field = page.get_by_label("Model", exact=True)
        assert await field.evaluate("node => node.list.id") == "known-models"
