"""Which modules start programs on the host: in each, a folder of another author could name what runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import PACKAGES, dotted, name, nodes, python_files, tree

pytestmark = pytest.mark.system

STARTS = {
    "shared/git/command.py": "git, without any configuration of a repository",
    "shared/git/own.py": "git, in repositories that only we write",
    "shared/git/signing.py": "gpg, with a home that only we write",
    "shared/workspaces.py": "rm and chmod",
    "orchestrator/child.py": "our own programs",
    "orchestrator/cli/doctor.py": "our own program",
    "orchestrator/cli/env.py": "our own program",
    "orchestrator/cli/policy.py": "our own program",
    "orchestrator/cli/prove.py": "our own program",
    "orchestrator/cli/stack.py": "our own program",
    "orchestrator/stack.py": "our own program",
    "worker/linux/system.py": "du",
    "worker/linux/program.py": "bubblewrap, and our own program that starts servers",
    "worker/mcp/subreaper.py": "a server that the operator configured",
    "worker/sandbox/disk_room.py": "find and chmod",
    "worker/sandbox/trials.py": "Python's own program",
    "worker/standby/process.py": "our own program",
    "worker/web/fetch.py": "our own program",
}
START = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)"
    r"|(asyncio\.)?create_subprocess_(exec|shell)|os\.(exec\w+|posix_spawnp?|spawn\w+|system|popen)"
)
APART = {"-P", "-I"}
"""Options by which Python does not import from the working directory."""


def starts(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and START.fullmatch(dotted(node.func)) is not None


def runs_python_where_it_is(node: ast.AST) -> bool:
    """Whether it is the beginning of a command line that runs Python with the working directory's modules."""
    if not isinstance(node, ast.List | ast.Tuple) or len(node.elts) < 2:
        return False
    program, option = (ast.unparse(each) for each in node.elts[:2])
    return "sys.executable" in program and option.strip("'") not in APART


def our_nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in python_files(*PACKAGES):
        module = name(path)
        yield from ((module, node) for node in nodes(tree(path)))


def test_programs_are_started_in_these_modules_only() -> None:
    found = {module for module, node in our_nodes() if starts(node)}
    assert found == set(STARTS)


def test_git_is_started_in_one_place_only() -> None:
    named = {
        module
        for module, node in our_nodes()
        if module in STARTS and isinstance(node, ast.Constant) and re.fullmatch(r"(\S*/)?git( .*)?", str(node.value))
    }
    assert named == {"shared/git/command.py"}, "call deputize.shared.git.git: it starts nothing that a repository names"


def test_no_program_of_ours_imports_from_the_working_directory() -> None:
    found = [
        f"{module}:{node.lineno}"
        for module, node in our_nodes()
        if isinstance(node, ast.expr) and runs_python_where_it_is(node)
    ]
    assert found == [], "the folder may be another author's; add -P"


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.run(x)",
        "subprocess.Popen(x)",
        "asyncio.create_subprocess_exec(x)",
        "os.execvpe(x)",
        "os.system(x)",
    ],
)
def test_every_way_to_start_a_program_is_seen(line: str) -> None:
    assert any(map(starts, ast.walk(ast.parse(line))))


def test_python_in_the_working_directory_is_seen() -> None:
    found = [
        runs_python_where_it_is(ast.parse(each, mode="eval").body)
        for each in ("[sys.executable, '-m', m]", "[sys.executable, '-P']")
    ]
    assert found == [True, False]
