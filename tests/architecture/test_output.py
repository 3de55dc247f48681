"""The command line has one way out, which makes text from outside visible."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import dotted, name, nodes, python_files, tree

WAYS_OUT = {
    "orchestrator/cli/output.py": "every line of every command",
    "orchestrator/cli/live_table.py": "redraws the lines at the bottom of a terminal, visible text only",
    "orchestrator/cli/markdown.py": "renders into a string, which output.py writes",
}
PRINTS = {"print", "input", "pprint", "rich.print"}
CLICK_PRINTS = {"echo", "secho", "prompt", "confirm", "pause", "echo_via_pager", "style", "progressbar", "edit"}


def prints(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "click" and any(alias.name in CLICK_PRINTS for alias in node.names)
    if not isinstance(node, ast.Call):
        return False
    called = dotted(node.func)
    module, _, last = called.rpartition(".")
    return (
        called in PRINTS
        or (module == "click" and last in CLICK_PRINTS)
        or (last in ("write", "writelines") and "sys.std" in called)
        or (last == "print" and "console" in module)
    )


def test_no_module_of_the_command_line_prints_past_the_one_way_out() -> None:
    found = [
        f"{name(path)}:{node.lineno}"
        for path in python_files("orchestrator")
        if name(path).startswith("orchestrator/cli/") and name(path) not in WAYS_OUT
        for node in nodes(tree(path))
        if isinstance(node, ast.expr | ast.stmt) and prints(node)
    ]
    assert found == [], "say it through orchestrator/cli/output.py"


@pytest.mark.parametrize(
    "line",
    [
        "print(x)",
        "click.echo(x)",
        "click.confirm(x)",
        "from click import echo",
        "sys.stdout.write(x)",
        "sys.stderr.buffer.write(x)",
        "self._console.print(x)",
    ],
)
def test_every_way_to_print_is_seen(line: str) -> None:
    assert any(map(prints, ast.walk(ast.parse(line))))
