"""A newcomer's first changes: the documented tool in the tree, and workers with a tool, a check or a part of a user."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from deputize.shared.delegation import TerminationReason
from tests.architecture.sources import PACKAGES, ROOT, files, name
from tests.architecture.tree_copy import copy_of_the_tree, run_in, run_tests_in
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.waiting import until

ABOUT_FILES = ("tree", "imports", "words", "registries", "references", "tests", "errors")
"""Those of the tests of the architecture that read files of tools, and tests of them."""
OF_ITS_TOOL = "(architecture or count_words or samples) and not few_tests_are_left_to_ci"
"""The names of tests that the tool can fail: none about another tool."""
CONTRIBUTING = (ROOT / ".github/CONTRIBUTING.md").read_text("utf-8")
OF_EACH_KIND = {
    "a limit of a run": ("max_tool_calls|maxToolCalls", {"orchestrator/cli/demo.py"}),  # which reaches one
    "a test runner": ("(?i)vitest", set[str]()),
    "a host of pull requests": ("Gitea|gitea_", set[str]()),
}
"""Rows with the name of one that exists, as code and JSON have it, and with the files that need no other."""
TEST = '''
"""count_words: the words of a text file."""

from __future__ import annotations

from tests.runs.toolbench import Toolbench


async def test_words_are_counted(desk: Toolbench) -> None:
    desk.write("a.txt", "one two\\nthree\\n")
    assert (await desk.call("count_words", path="a.txt")).content == "3 words"
'''.lstrip()


def example(page: str = "own-tools") -> str:
    found = re.search(r"^```python\n(.*?)^```", (ROOT / f"worker/docs/{page}.md").read_text(), re.S | re.M)
    assert found
    return found[1]


def insert(file: Path, before: str, line: str) -> None:
    """Adds a line before the one that begins so."""
    text = file.read_text()
    assert text.count(f"\n{before}") == 1, (file, before)
    file.write_text(text.replace(f"\n{before}", f"\n{line}\n{before}"))


@pytest.mark.thorough
@pytest.mark.long
def test_the_documented_tool_passes_everything_with_a_line_two_samples_and_a_test(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    (tree / "worker/tools/count_words.py").write_text(example())
    (tree / "tests/worker/tools/test_count_words.py").write_text(TEST)
    insert(tree / "worker/tools/builtin.py", "from .edit_file", "from .count_words import CountWords")
    insert(tree / "worker/tools/builtin.py", "    RewriteArtifact(),", "    CountWords(),")
    samples = tree / "tests/contracts/tool_samples.py"
    insert(samples, '    "rewrite_artifact": {"name": "plan.md"', '    "count_words": {"path": "src/app.py"},')
    insert(samples, '    "rewrite_artifact": {"name": "long.md"', '    "count_words": {"path": "long.txt"},')

    own = "tests/worker/tools/test_count_words.py", "tests/contracts/test_tools.py"
    about_files = [f"tests/architecture/test_{name}.py" for name in ABOUT_FILES]
    code, output = run_tests_in(tree, *own, *about_files, named=OF_ITS_TOOL)
    assert code == 0, output
    assert run_in(tree, "-m", "ruff", "check", "--no-cache", "worker", "tests") == (0, "All checks passed!\n")


@asynccontextmanager
async def worker_of(program: Path, redis_url: str, home: Path) -> AsyncGenerator[Fleet]:
    """A service, and the worker that this program is."""
    async with open_fleet(redis_url, home, shutdown_seconds=1) as fleet:
        environment = fleet.settings.child_environment() | {"PATH": "/usr/bin:/bin"}
        with (home / "worker.log").open("wb") as log:
            worker = subprocess.Popen([sys.executable, program], env=environment, stdout=log, stderr=log)
        try:
            await until(lambda: fleet.has_announced(worker.pid), 60)
            yield fleet
        finally:
            worker.terminate()
            await until(lambda: worker.poll() is not None, 30)


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_the_files_that_name_one_of_a_kind_are_those_that_are_documented(kind: str) -> None:
    (row,) = [line for line in CONTRIBUTING.splitlines() if line.startswith(f"| {kind} |")]
    named = set(re.findall(r"`((?:shared|orchestrator|worker)/[\w/]+\.(?:py|js|toml))`", row))
    pattern, others = OF_EACH_KIND[kind]
    texts = {name(path): path.read_text("utf-8") for path in files() if path.suffix in (".py", ".js", ".toml")}
    found = {path for path, text in texts.items() if path.split("/")[0] in PACKAGES and re.search(pattern, text)}
    assert found - others == named


@pytest.mark.system
async def test_the_documented_worker_with_a_tool_of_a_users_own_package_runs_it(redis_url: str, tmp_path: Path) -> None:
    page = (ROOT / "worker/docs/own-tools.md").read_text("utf-8")
    (program,) = re.findall(r"^    import sys\n(?:(?:    .*)?\n)+", page, re.MULTILINE)
    source = example().replace("from ..", "from deputize.worker.").replace("from .", "from deputize.worker.tools.")
    (tmp_path / "count_words.py").write_text(source)
    (tmp_path / "program.py").write_text(dedent(program))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a.txt").write_text("one two\n")
    model = script(tmp_path, [call("count_words", path="a.txt")], [say("{{result}}")])
    async with worker_of(tmp_path / "program.py", redis_url, tmp_path / "home") as fleet:
        workspace = {"kind": "directory", "path": str(tmp_path / "work")}
        result = await fleet.run(model=model, workspace=workspace, tools=["count_words"])
    assert (result.success, result.summary) == (True, "2 words")


@pytest.mark.costly
@pytest.mark.system
async def test_the_documented_worker_with_a_kind_of_check_carries_it_out(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(example("own-checks"))
    model = script(tmp_path, [call("write_file", path="a.py", content="# GPL\n")], [say("Done.")])
    check = {"kind": "own", "name": "licence", "arguments": {"words": "Apache"}}
    async with worker_of(tmp_path / "program.py", redis_url, tmp_path / "home") as fleet:
        result = await fleet.run(model=model, verify=[check], max_verify_rounds=0)
        unknown = await fleet.run(model=model, verify=[check | {"name": "license"}])
    assert result.verification
    assert (result.verification.verdict, result.verification.why) == ("refuted", "without Apache: a.py")
    assert unknown.termination_reason is TerminationReason.CHECKS_CANNOT_START


@pytest.mark.system
async def test_the_documented_worker_with_a_part_ends_runs_by_it(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(example("parts"))
    model = script(tmp_path, [say("Done.")])
    async with worker_of(tmp_path / "program.py", redis_url, tmp_path / "home") as fleet:
        refused = await fleet.run(model=model)
        allowed = await fleet.run(model=model, labels={"cost-centre": "42"})
    assert (refused.termination_reason, allowed.success) == (TerminationReason.REFUSED, True)


SIGNATURE = '''
    @Operation("GET /v1/delegations/{id}/request", _READ, "get_request", 200, (404,))
    async def submitted(self, id: str) -> DelegationRequest:
        """Returns the request of a delegation, as it was submitted."""
        ...
'''
FUNCTION = """
    async def submitted(self, id: str) -> DelegationRequest:
        return (await self.get(id)).request
"""
OPERATION_TEST = '''
"""submitted: the request of a delegation."""

from __future__ import annotations

from pathlib import Path

from deputize import Orchestrator, SyncOrchestrator
from deputize.orchestrator.client import Client
from deputize.shared.request import DelegationRequest
from tests.orchestrator.access_tokens import bearer, one_for_each_scope, serving
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings


async def test_the_request_of_a_delegation_is_returned_everywhere(tmp_path: Path) -> None:
    service = FakeService()
    id = (await service.create(DelegationRequest(task="Count"))).delegation.id
    async with served(service) as url, Client(url) as client, Orchestrator(settings(url=url)) as orchestrator:
        assert (await client.submitted(id)).task == (await orchestrator.submitted(id)).task == "Count"
    assert SyncOrchestrator.submitted.__doc__
    async with serving(service, one_for_each_scope(tmp_path)) as http:
        for scope, status in {"read": 200, "submit": 403}.items():
            assert (await http.get(f"/v1/delegations/{id}/request", headers=bearer(scope))).status_code == status
'''.lstrip()
EVENT = '''
class StepCounted(Event):
    """How many steps the run has had."""

    type: Literal["step_counted"] = "step_counted"
    steps: int
    """The number of the steps."""


'''
CASE = '''        case "step_counted":
            return f"{event.steps} steps so far"'''
EVENT_TEST = '''
"""step_counted: in the streams, the transcript, the live line and the page."""

from __future__ import annotations

from deputize.orchestrator.run_states import RunStates
from deputize.shared.events import StepCounted
from tests.orchestrator.web.modules import asked, events, started
from tests.wire.samples import EVENTS


def test_the_event_is_on_the_page_and_in_the_live_line() -> None:
    happened = (0, started()), (1, StepCounted(steps=2))
    rows, doing = asked(("rows", events(*happened)), ("doing", events(*happened)))
    assert (rows, doing) == ([["note idle 2 steps so far", 1, 1]], ["2 steps so far"])
    states = RunStates()
    states.take(EVENTS["step_counted"])
    assert states.line().endswith(": 3 steps so far")
'''.lstrip()
ABOUT_BOTH = (
    "tests/architecture/test_registries.py",
    "tests/contracts/service/test_python.py::test_both_forms_take_the_same_arguments_and_are_described",
    "tests/contracts/service/test_python.py::test_no_operation_is_missing_in_either_form",
    "tests/orchestrator/test_readers_of_events.py",
    "tests/orchestrator/test_readme.py::test_its_routes_are_those_of_the_application",
    "tests/orchestrator/test_readme.py::test_its_verbs_are_those_of_the_service",
    "tests/orchestrator/test_scopes.py",
    "tests/orchestrator/test_submitted.py",
    "tests/orchestrator/web/test_step_counted.py",
    "tests/shared/test_wording.py",
    "tests/wire/test_json.py::test_an_event_on_the_wire",
    "tests/wire/test_json.py::test_there_is_a_golden_event_of_every_type",
    "tests/wire/test_openapi.py",
)


def add_operation(tree: Path) -> None:
    insert(tree / "orchestrator/operations.py", '    @Operation("GET /v1/delegations/{id}/patch"', SIGNATURE)
    insert(tree / "orchestrator/delegations.py", "    async def patch(", FUNCTION)
    insert(tree / "orchestrator/blocking.py", "    patch = ", "    submitted = _blocking(Orchestrator.submitted)")
    row = "| submitted | `GET /v1/delegations/{id}/request` | – |"
    insert(tree / "orchestrator/docs/http-api.md", "| artifact | `GET", row)
    insert(tree / "tests/orchestrator/fake_service.py", "    async def patch(", FUNCTION)
    (tree / "tests/orchestrator/test_submitted.py").write_text(OPERATION_TEST)


def add_event(tree: Path) -> None:
    """All places but the one where it happens."""
    insert(tree / "shared/events.py", "AnyEvent = Annotated[", EVENT)
    insert(tree / "shared/events.py", "    | Heartbeat,", "    | StepCounted")
    insert(tree / "shared/wording.py", '        case "progress" | "error":', CASE)
    samples = tree / "tests/wire/samples.py"
    insert(samples, '    {"type": "resumed_waiting", ', '    {"type": "step_counted", "steps": 3},')
    (tree / "tests/orchestrator/web/test_step_counted.py").write_text(EVENT_TEST)


@pytest.mark.parametrize(("add", "most"), [(add_operation, 4), (add_event, 3)])
def test_few_places_are_touched(add: Callable[[Path], None], most: int) -> None:
    """Besides tests; for an event not where it happens. The test below shows that they are all."""
    places = set(re.findall(r'tree / "((?:shared|orchestrator|worker)/[^"]+)"', inspect.getsource(add)))
    assert 2 <= len(places) <= most, places


@pytest.mark.long
def test_an_operation_and_an_event_are_each_added_in_the_places_that_are_documented(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    add_operation(tree)
    add_event(tree)
    code, output = run_tests_in(tree, *ABOUT_BOTH, "--rewrite-golden")
    assert code == 0, output
