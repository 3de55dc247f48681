"""What the page shows to a token of one owner while another one works: it is a client of the service like others."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from deputize.shared.request import DelegationRequest
from tests.fake_model import Turn, text
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.web.browsing import Pages
from tests.orchestrator.whole import open_whole

pytestmark = pytest.mark.asyncio(loop_scope="package")

OF_ANN = "the secret of Ann"


async def test_an_owner_sees_nothing_of_another_one(pages: Pages, redis_url: str, tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens.toml", *(entry(name, "submit", "read", "approve") for name in ("ann", "bob")))
    async with open_whole(redis_url, tmp_path / "home") as whole, serving(whole.service, tokens) as http:
        ann, bob = (whole.service.of(name, is_confined=True) for name in ("ann", "bob"))

        async def works(task: str) -> str:
            whole.model.script(task, [Turn([text(task)])])
            made = (await (ann if task == OF_ANN else bob).create(DelegationRequest(task=task))).delegation
            await whole.finished(made)
            return made.id

        hidden = await works(OF_ANN)
        await works("first of Bob")
        page = await pages.open(f"{http.base_url}/#token={secret_of('bob')}")
        rows = page.locator(".row-link:visible .task")
        await expect(rows).to_have_text(["first of Bob"])
        await expect(page.locator("#connection")).to_have_text("Live")
        await works(OF_ANN)
        await works("second of Bob")  # its row comes by an event, and those of Ann's were before it
        await expect(rows).to_have_text(["second of Bob", "first of Bob"])
        await page.goto(f"{http.base_url}/#{hidden}")
        await expect(page.get_by_text("there is no delegation").first).to_be_visible()
        assert OF_ANN not in await page.content()
        await page.goto(f"{http.base_url}/#token={secret_of('ann')}")
        await expect(rows).to_have_text([OF_ANN, OF_ANN])
