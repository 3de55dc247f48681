"""One browser for all tests of the page: to start it takes seconds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.architecture.sources import ROOT
from tests.orchestrator.web.browsing import Pages
from tests.processes.leaks import browsers, descendants, files, kept

INSTALLED = ROOT / ".venv" / ".browser-installed"
"""Where `.ci/setup browser` wrote down which program it found."""
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="package")
def chromium() -> Path:
    """The program; skips at home and fails in CI where there is none."""
    if not INSTALLED.exists():
        reason = "there is no chromium: run `make .venv/.browser-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return Path(INSTALLED.read_text("utf-8").strip())


@pytest.fixture(scope="package")
def browser_home() -> Iterator[Path]:
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser(chromium: Path, browser_home: Path) -> AsyncIterator[Browser]:
    before, files_before = descendants(), files() - {str(browser_home)}
    variables: dict[str, str | float | bool] = {**os.environ, "HOME": str(browser_home), "TMPDIR": str(browser_home)}
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, env=variables)
        browsers.update(descendants() - before)
        kept.update(browsers, files() - files_before)
        yield opened
        await opened.close()


@pytest_asyncio.fixture(loop_scope="package")
async def pages(browser: Browser) -> AsyncIterator[Pages]:
    """Fails the test in which a page threw an error, was refused something by its policy, or opened a dialog."""
    pages = Pages(browser)
    yield pages
    await pages.close()
    assert pages.troubles == []
