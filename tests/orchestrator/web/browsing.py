"""The web page in a real browser, over a service that does what a test decides."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from deputize.shared.events import PermissionRequested
from deputize.shared.permission import PermissionRequest
from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_permissions import asked
from tests.orchestrator.fake_service import FakeService

PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)

Open = Callable[..., Coroutine[Any, Any, Page]]
"""Opens an address in a page of its own, with options of a browser's context."""
REFUSED = ("401", "403", "404", "409", "422", "503")


class Pages:
    """Pages in contexts of their own. What goes wrong in one of them is kept."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.troubles: list[str] = []

    async def open(self, url: str, **options: Any) -> Page:
        context = await self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on("console", self._hear)
        await page.goto(url)
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        """A refused request, or a connection that is gone, is a line of the browser's own; all else is trouble."""
        if not message.text.startswith("Failed to load resource"):
            self.troubles.append(f"console: {message.text}")

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()


async def delegated(service: FakeService, task: str = "do it", **fields: Any) -> str:
    """A delegation that runs."""
    id = (await service.create(DelegationRequest(task=task, **fields))).delegation.id
    service.begin(id)
    return id


def ask(service: FakeService, delegation: str, number: int = 0, title: str = "", **fields: Any) -> PermissionRequest:
    """Lets this delegation ask for permission, which is an event of it."""
    request = asked(delegation, number, **fields)
    if title:
        request = request.model_copy(update={"step": request.step.model_copy(update={"title": title})})
    service.requests[request.permission_id] = request
    event = {name: value for name, value in dict(request).items() if name != "delegation_id"}
    service.happen(delegation, PermissionRequested(**event))
    return request


def card(page: Page, title: str) -> Locator:
    """The permission request with this title."""
    return page.get_by_role("article", name=title, exact=True)


async def opened(page: Page, title: str) -> Locator:
    """The same, with all of it shown; those of several are closed at first."""
    found = card(page, title)
    disclosure = button(found, title)
    if await disclosure.get_attribute("aria-expanded") == "false":
        await disclosure.click()
    return found


def button(place: Page | Locator, name: str) -> Locator:
    return place.get_by_role("button", name=name, exact=True)
