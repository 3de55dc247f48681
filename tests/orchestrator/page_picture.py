"""`python -m tests.orchestrator.page_picture`: a fleet at work, and the page that shows it as ``.github/page.png``.

Given a directory it draws nothing: the stack stays, with that home, until Ctrl-C, for a trial of the page.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.web.conftest import ARGUMENTS, INSTALLED
from tests.runs.bench import call, say
from tests.waiting import until

PICTURE = ROOT / ".github" / "page.png"
HEIGHT = 1065
CHECK = "python3 -B -m unittest -q"
FILES = {
    "README.md": "# Shop\n\nPrices and discounts.\n",
    "pricing.py": "def price(total):\n    return total * 0.9 if total > 100 else total\n",
    "test_pricing.py": "import unittest\n\nfrom pricing import price\n\n\nclass Prices(unittest.TestCase):\n"
    "    def test_discount_begins_at_100(self):\n        self.assertEqual(price(100), 90)\n",
    "docs/usage.md": "Call `price(total)`.\n",
}
FIXED = FILES["pricing.py"].replace("> 100", ">= 100")
BROKEN = FILES["pricing.py"].replace("return total", "return round(total 2)", 1)
READ = call("read_file", path="pricing.py")
MINUTES = {"blocks": [say("Done.")], "delay": 1800}
RULES: list[dict[str, Any]] = [
    {"match": {"contains": "Which modules"}, "turns": [{"blocks": [READ], "delay": 3}, MINUTES]},
    {
        "match": {"contains": "Which documents"},
        "turns": [[call("list_directory", path="docs")], [say("One document: `docs/usage.md`.")]],
    },
    {
        "match": {"contains": "Survey"},
        "turns": [
            [
                say("Two subagents look at once."),
                call("call_subagent", task="Which modules are there?", name="code", workspace="copy"),
                call("call_subagent", task="Which documents are there?", name="docs", workspace="copy"),
            ],
            [say("A survey of both.")],
        ],
    },
    {
        "match": {"contains": "Describe the function"},
        "turns": [
            [READ],
            [
                say("I add two lines to the usage."),
                call(
                    "write_file",
                    path="docs/usage.md",
                    content="Call `price(total)`.\n\nFrom 100 on, a tenth is taken off.\n",
                ),
            ],
            [say("`docs/usage.md` describes the discount.")],
        ],
    },
    {
        "match": {"contains": "Clean the repository"},
        "turns": [
            [call("bash", command="ls -la")],
            [
                say("The history is large. I rewrite it, and push it."),
                call("bash", command="rm -rf docs && git push --force origin main"),
            ],
            [say("The repository is small now.")],
        ],
    },
    {
        "match": {"contains": "Fix the failing test"},
        "turns": [
            [call("bash", command=CHECK)],
            [READ],
            [say("The comparison is off by one."), call("write_file", path="pricing.py", content=FIXED)],
            [call("bash", command=CHECK)],
            [say("The tests pass now.\n\n- `pricing.py`: **at** 100, not above it")],
        ],
    },
    {
        "match": {"contains": "Round the prices"},
        "turns": [
            [READ],
            [say("A line at the end."), call("write_file", path="pricing.py", content=BROKEN)],
            [say("Prices are rounded; all tests pass. No other file of '**/*' is changed.")],
        ],
    },
    {
        "match": {"contains": "Upgrade the library"},
        "turns": [[READ], {"blocks": [], "faults": [{"kind": "unavailable", "message": "credit balance is too low"}]}],
    },
    {
        "match": {"contains": "Review pricing.py"},
        "turns": [[READ], {"blocks": [call("bash", command="sleep 900")], "delay": 2}, MINUTES],
    },
    {
        "match": {"contains": "Count the lines"},
        "turns": [[call("bash", command="wc -l *.py")], [say("`pricing.py` has 2 lines, its test has 8.")]],
    },
    {"turns": [[say("There is nothing more to do.")]]},
]
"""What each task does. The harmless call and the harmful one wait for a person."""
ONCE = ("--max-verify-rounds", "0")
FLEET = [
    ("Upgrade the library of decimals", "auto", "job:upgrade"),
    ("Count the lines of the Python files", "auto", "job:survey"),
    ("Fix the failing test of the discount", "auto", "job:repair", "--verify", CHECK),
    (
        "Round the prices to cents",
        "auto",
        "job:repair",
        "--verify",
        "python3 -B pricing.py",
        "--max-verify-rounds",
        "0",
    ),
    ("Survey the code and the documents", "auto", "job:survey", "--tools", "*,call_subagent"),
    ("Review pricing.py for defects", "auto", "job:review"),
    ("Describe the function in docs/usage.md", "ask", "job:docs"),
    ("Clean the repository", "ask", "job:clean"),
]


def project(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


async def draw(address: str) -> None:
    async with async_playwright() as playwright:
        program = INSTALLED.read_text("utf-8").strip()
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": 1200, "height": HEIGHT}, reduced_motion="reduce")
        await page.goto(address)
        await page.get_by_text("Clean the repository").first.wait_for()
        await page.screenshot(path=PICTURE)
        await browser.close()


async def main(stay: str = "") -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kept:
        folder = Path(kept) / "shop"
        project(folder)
        script = Path(kept) / "script.json"
        price = {"input": 3.0, "output": 15.0}
        script.write_text(json.dumps({"rules": RULES, "label": "", "price": price}), "utf-8")
        here: dict[str, Any] = {"DEPUTIZE_HOME": stay or f"{kept}/home", "DEPUTIZE_MODEL": f"scripted:{script}"}
        async with started("up", "--port", "0", **here) as stack:
            await until(lambda: b"Stop" in stack.out, 60)
            for task, mode, label, *more in FLEET:
                options = ("--approval", mode, "--label", label, "--detach", *more)
                done = await deputize("run", task, "--workspace", str(folder), *options, **here)
                assert done.code == 0, done.err

            async def waiting() -> bool:
                asked = await deputize("permissions", "--json", **here)
                running = await deputize("list", "--status", "running", "--json", **here)
                return len(asked.out.splitlines()) == 2 and len(running.out.splitlines()) == 2

            await until(waiting, 120)
            link = re.search(r"http\S+", (await deputize("open", "--print", **here)).out)
            assert link is not None
            if stay:
                print(link[0], flush=True)
                await asyncio.Event().wait()
            await draw(link[0])
            stack.interrupt()
            await stack.done()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
