"""The promises about tool calls that are not commands of a run: the policy's, and those of file tools."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...shared.errors import ErrorType, ToolError
from ...shared.request import ApprovalMode
from ...shared.settings import Settings
from ..policy.explanation import Explainer, Situation
from ..policy.rule_file import load_rules
from ..sandbox.base import NoSandbox
from ..sandbox.bubblewrap import MOUNT
from ..sandbox.canaries import Canaries
from ..threads import run_in_thread
from ..tools.base import AnyTool
from ..tools.context import ToolContext
from ..tools.edit_file import EditFile
from ..tools.list_directory import ListDirectory
from ..tools.read_file import ReadFile
from ..tools.write_file import WriteFile
from ..workspace.files import Files
from .commands import Found
from .planted import plant, try_planted

_FORBIDDEN = (
    *("sudo id", "mkfs.ext4 /dev/sda", "rm -rf /", "true; sudo id", "sh -c 'sudo id'", 'echo "$(sudo id)"'),
    *("env -i nice sudo id", "find . -exec sudo id ';'", "echo id | xargs sudo", "eval 'mkfs /dev/sda'"),
)
_ASKS = ('bash {"command": "python3 program.py"}', 'write_file {"path": "a", "content": "b"}')
_TOOLS: Sequence[tuple[AnyTool, Mapping[str, str]]] = (
    (ReadFile(), {}),
    (ListDirectory(), {}),
    (WriteFile(), {"content": "overwritten"}),
    (EditFile(), {"old_string": "deputize", "new_string": "overwritten"}),
)


class Judge(Protocol):
    """Decides about a call: ``Explainer`` does as workers do."""

    def explain(self, text: str, situation: Situation) -> dict[str, Any]: ...


async def try_calls(settings: Settings, canaries: Canaries, found: Found, environ: Mapping[str, str]) -> None:
    """Tries what needs no sandbox. ``environ`` are the variables of a worker that names no configuration file."""
    planted = canaries.workspace("planted")
    plant(planted, planted.with_name("executed"))
    await found.attempt("planted", try_planted(planted, canaries.workspace("empty"), environ))
    await found.attempt("links", _file_tools(canaries))
    await found.attempt("forbidden", asyncio.to_thread(_forbidden, settings))
    await found.attempt("permission", asyncio.to_thread(try_permission, Explainer(settings, ())))


async def _file_tools(canaries: Canaries) -> list[str]:
    with Files(canaries.workspace("tools"), MOUNT) as files:
        return await try_file_tools(files, canaries.private)


def _forbidden(settings: Settings) -> list[str]:
    return try_forbidden(Explainer(settings, load_rules(settings.policy)))


def try_forbidden(judge: Judge) -> list[str]:
    """Returns the forbidden command lines that a run of some approval mode might execute. Nothing is executed."""
    lines = [(line, f"bash {json.dumps({'command': line})}") for line in _FORBIDDEN]
    decided = {
        f"{line} ({mode})": judge.explain(call, Situation(mode))["decision"]
        for line, call in lines
        for mode in ApprovalMode
    }
    return [f"the decision about {line} is {decision}" for line, decision in decided.items() if decision != "deny"]


def try_permission(judge: Judge) -> list[str]:
    """Returns the calls that change something and for which the mode ``ask`` does not ask."""
    decided = {call: judge.explain(call, Situation(ApprovalMode.ASK))["decision"] for call in _ASKS}
    return [f"the decision about {call} is {decision}" for call, decision in decided.items() if decision != "ask"]


async def try_file_tools(files: Files, outside: Path) -> list[str]:
    """Calls the file tools with names of the file ``outside`` and links to it. Returns what was not refused."""
    before = await run_in_thread(outside.read_bytes)
    context = ToolContext("doctor", "", files, NoSandbox("none is needed"))
    found: list[str] = []
    for path in (*_names(files, outside), *_links(files, outside)):
        found += [f"{tool} opened {path}" for tool in await _opened(context, path)]
    if await run_in_thread(outside.read_bytes) != before:
        found.append("a file outside of the workspace was changed")
    return found


def _names(files: Files, outside: Path) -> Iterator[str]:
    yield str(outside)
    yield os.path.relpath(outside, files.root)
    yield f"{files.mount}/{os.path.relpath(outside, files.root)}"
    yield f"/proc/self/root{outside}"


def _links(files: Files, outside: Path) -> Iterator[str]:
    """Makes links that lead to the file, and yields their names."""
    targets = {
        "absolute": outside,
        "relative": os.path.relpath(outside, files.root),
        "magic": f"/proc/self/root{outside}",
        "chain": "absolute",
        "folder": outside.parent,
    }
    for name, target in targets.items():
        path = files.root / name
        path.symlink_to(target)
        yield f"{name}/{outside.name}" if path.is_dir() else name


async def _opened(context: ToolContext, path: str) -> list[str]:
    """Returns the tools that did not refuse the path itself."""
    found: list[str] = []
    for tool, arguments in _TOOLS:
        try:
            await tool.run(context, tool.parse({"path": path, **arguments}))
        except ToolError as error:
            if error.type is ErrorType.PATH_NOT_ALLOWED:
                continue
        found.append(tool.name)
    return found
