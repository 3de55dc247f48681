"""`deputize demo`: four concurrent delegations, and assertions on their results."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.wording import outcome
from . import output
from .connect import asynchronous, connect, load_settings, sandbox_problem
from .errors import Exit
from .watcher import Watcher, display

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings
    from ..client import Client

WORKERS = 2
DIFF_LINES = 18
PACKAGES = ("orchestrator", "worker", "shared")

LIST_CLASSES = """\
Count and list the public classes.

List the public classes of this package and write a report to REPORT.md.
"""
FIX_BUG = """\
Find and fix the bug.

Make the tests of the sample package pass. Run them with `python3 -m unittest -q` before and after the change, and
change nothing but pricing.py.
"""
LIE = """\
Claim a fix that is none (a script lies here, to be caught).

Part of the demo, whatever model is set up: a script changes the test that fails instead of pricing.py, and reports
success.
"""
READ_ON = """\
Read every file one by one.

Read this package file by file, again and again, for as long as you can.
"""
HIDDEN_TEST = (
    "import unittest\n"
    "from pricing import Order\n"
    "class HiddenTest(unittest.TestCase):\n"
    "    def test_two_of_fifty_get_the_discount(self):\n"
    "        order = Order()\n"
    "        order.add('thing', 50, quantity=2)\n"
    "        self.assertEqual(order.total(), 90)\n"
)
CHECK = {"kind": "command", "run": "python3 -B -m unittest -q", "files": {"test_hidden.py": HIDDEN_TEST}}
"""What the worker itself runs at the end: the tests as they were before, and one that no agent sees."""


@dataclass(frozen=True, slots=True)
class DemoPart:
    """One delegation, and an assertion on its result as a sentence."""

    request: DelegationRequest
    truth: str
    holds: Callable[[ToolAgentResult], bool]


@click.command()
@asynchronous
async def demo() -> Exit:
    """Watch four delegations at once, each on a copy of its own.

    One reports on this project's own code, one fixes a bug, which checks verify, one reaches a limit and reports its
    progress: with ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL set by a real model, else by a script. One is always a
    script, which claims to have fixed the bug: checks refute it.
    """
    settings = load_settings()
    output.note(_model_sentence(settings))
    with sources(settings) as (project, sample):
        tried = parts(project, sample, None if _has_model(settings) else "scripted")
        async with connect(settings, workers=WORKERS) as service:
            if problem := sandbox_problem(await service.client.workers()):
                output.note(f"It needs the sandbox, which does not work here: {problem.removesuffix('.')}.")
                output.note(f"{output.command(settings, 'doctor')} shows what is to do.")
                return Exit.FAILED
            delegations = await service.client.create_many([part.request for part in tried])
            with display() as shown:
                watcher = Watcher(service, shown, prints_results=True)
                await watcher.all(delegations)
            if watcher.cut is not None:
                return watcher.cut
            held = [
                await _print_outcome(settings, service.client, part, watcher.results[delegation.id])
                for part, delegation in zip(tried, delegations, strict=True)
            ]
    run = output.command(settings, "run", "Describe what this project does", "--workspace", ".")
    output.note("")
    output.note("Next:")
    output.note(f"  {output.command(settings, 'show', delegations[-1].id, '--steps')}")
    if not _has_model(settings):
        output.note("and after `export ANTHROPIC_API_KEY=…` the real work, on any directory:")
    output.note(f"  {run}")
    return Exit.SUCCEEDED if all(held) else Exit.FAILED


@contextmanager
def sources(settings: Settings) -> Generator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields the workspaces: this project, and the sample package with the bug; both where they may be copied from."""
    here = Path(__file__).parent
    root = here.parents[1]
    allowed = settings.workspace_sources[0].absolute() if settings.workspace_sources else None
    with tempfile.TemporaryDirectory(prefix="deputize-demo-", dir=allowed) as folder:
        sample = Path(folder, "sample")
        sample.mkdir()
        # Kept as text, so that no linter of this project reports the bug.
        for kept in here.joinpath("sample").glob("*.py.txt"):
            shutil.copyfile(kept, sample / kept.name.removesuffix(".txt"))
        if allowed or not root.joinpath("pyproject.toml").is_file():
            root = _copy_installed(Path(folder, "project"))
        yield {"kind": "directory", "path": str(root)}, {"kind": "directory", "path": str(sample)}


def _copy_installed(folder: Path) -> Path:
    """Copies only this project's installed packages: site-packages has all others, too."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(f"deputize.{package}")
        if spec is not None and spec.origin:
            shutil.copytree(Path(spec.origin).parent, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def parts(project: dict[str, Any], sample: dict[str, Any], model: str | None) -> list[DemoPart]:
    """Returns what is delegated; the last one stays on the screen."""
    from ...shared.request import DelegationRequest

    def request(**fields: Any) -> DelegationRequest:
        return DelegationRequest.model_validate({"labels": {"demo": "yes"}, "model": model, **fields})

    return [
        DemoPart(
            request(task=LIST_CLASSES, workspace=project),
            "REPORT.md is among the changed files",
            lambda result: any(changed.path == "REPORT.md" for changed in result.file_changes),
        ),
        DemoPart(
            request(task=READ_ON, workspace=project, limits={"max_tool_calls": 6}),
            "it ended at max_tool_calls, and still reports how far it came",
            lambda result: result.termination_reason == "max_tool_calls" and bool(result.summary.strip()),
        ),
        DemoPart(
            request(task=LIE, workspace=sample, model="scripted", verify=[CHECK], max_verify_rounds=0),
            "it is refuted, and no success, whatever it claims",
            lambda result: result.verification.verdict == "refuted" and not result.success,
        ),
        DemoPart(
            request(task=FIX_BUG, workspace=sample, verify=[CHECK]),
            "it is verified, and pricing.py is among the changed files",
            lambda result: (
                result.verification.verdict == "verified"
                and any(changed.path == "pricing.py" for changed in result.file_changes)
            ),
        ),
    ]


def _has_model(settings: Settings) -> bool:
    return settings.has_model_endpoint or settings.table_of(None).is_own


def _model_sentence(settings: Settings) -> str:
    if _has_model(settings):
        return f"Four delegations at once, answered by {settings.model}, one of them by a script that lies."
    return (
        "Four delegations at once. No model is set up (ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL), so a script plays "
        "the model's part; queue, workers, tools, sandbox and results are real."
    )


async def _print_outcome(settings: Settings, client: Client, part: DemoPart, result: ToolAgentResult) -> bool:
    """Prints one delegation's outcome. Returns whether its assertion holds."""
    id = result.delegation_id
    output.line("")
    output.line(f"━━ {part.request.title}  {id}")
    output.prose(result.summary.strip())
    output.line("")
    output.line(outcome(result))
    output.lines(output.verdict(result.verification))
    output.lines(f"refuted    by the run: {claim}" for claim in result.refuted_claims)
    output.lines(map(output.change, result.file_changes))
    diff = _text_diffs(await client.patch(id)).splitlines()
    output.lines(f"  | {line}" for line in diff[:DIFF_LINES])
    if len(diff) > DIFF_LINES:
        output.line(f"  … {len(diff) - DIFF_LINES} more lines: {output.command(settings, 'show', id, '--patch')}")
    holds = part.holds(result)
    output.line(f"{'✓' if holds else '✗ NOT TRUE:'} {part.truth}")
    return holds


def _text_diffs(patch: str) -> str:
    """Returns the diffs of text files only, without their hashes; others remain in the list of changes."""
    diffs = re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE)
    return "".join(re.sub(r"(?m)^index .*\n", "", diff) for diff in diffs if "\nGIT binary patch\n" not in diff)
