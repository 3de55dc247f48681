"""The functions that read a text of a git server, an MCP server, an archive or a command, outside of whole packages."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from deputize.shared import notebook
from deputize.shared.git import executed_files, own, remote
from deputize.shared.libc import closing_fd
from deputize.shared.settings import Settings
from deputize.shared.settings import git_credentials as credentials
from deputize.worker.instructions import files
from deputize.worker.mcp import streams
from deputize.worker.sandbox import buffers
from deputize.worker.sandbox import command as commands
from deputize.worker.workspace import archive, patches
from deputize.worker.workspace.manifest import Content, Difference
from tests.worker.growing_checks import PATH, half, raw

FOREIGN_ROOMS = ("shared/git", "shared/settings/git_credentials.py", "shared/notebook.py")
_SETTINGS = Settings.load(environ={}, git_hosts=["http://git.example:3000"])
_FILE = Content("100644", "0" * 64)
_CHANGED = Difference("a.txt", _FILE, _FILE)


def _fed(text: str) -> None:
    """In chunks of the size of a pipe, as a server's output comes."""
    incoming, data = streams.Incoming(lambda _: None), raw(text)
    for at in range(0, len(data), 1 << 16):
        incoming.feed(data[at : at + (1 << 16)])
    incoming.end()

    async def read() -> None:
        with suppress(anyio.EndOfStream):
            while True:
                await incoming.receive()

    asyncio.run(read())


def _instructions(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "AGENTS.md").write_bytes(raw(text))
        with closing_fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY)) as opened:
            files.instructions_of(opened, "", ["AGENTS.md"])


def _hidden(text: str) -> None:
    buffers.HiddenLines().replace(text.split("a"), "a")


FOREIGN_READS: Mapping[str, Callable[[str], object]] = {
    "shared/settings/git_credentials.py:names_of": credentials.names_of,
    "shared/git/executed_files.py:run_by_hosts": lambda text: executed_files.run_by_hosts(
        [text[:PATH], *text.split("a")]
    ),
    "shared/git/own.py:failure_of": lambda text: own.failure_of("push", "https://a.example/b", text),
    "shared/git/remote.py:check_branch": lambda text: remote.check_branch(text, "/deliver/branch"),
    "shared/git/remote.py:check_ref": lambda text: remote.check_ref(text, "/workspace/ref"),
    "shared/git/remote.py:check_url": lambda text: remote.check_url(f"https://a.example/{text}", _SETTINGS),
    "shared/git/remote.py:credential_of": lambda text: remote.credential_of(f"https://a.example/{text}", _SETTINGS),
    "shared/git/remote.py:is_commit": remote.is_commit,
    "shared/git/remote.py:remote_of": lambda text: remote.remote_of(f"http://git.example:3000/{text}", _SETTINGS),
    "shared/notebook.py:cell": lambda text: notebook.cell("ok", [text, text], text, ()),
    "shared/notebook.py:line": lambda text: notebook.line("ToolAgentResult", "dlg_1", "completed", text),
    "worker/instructions/files.py:all_instructions": lambda text: files.all_instructions(0, text.split("a"), []),
    "worker/instructions/files.py:instructions_of": _instructions,
    "worker/instructions/files.py:nested": lambda text: files.nested(text.split("a"), ["b"]),
    "worker/mcp/streams.py:Incoming.feed": _fed,
    "worker/sandbox/buffers.py:BoundedBuffer.add": lambda text: buffers.BoundedBuffer(1000).add(raw(text)),
    "worker/sandbox/buffers.py:HiddenLines.replace": _hidden,
    "worker/sandbox/buffers.py:LineFilter.__init__": buffers.LineFilter,
    "worker/sandbox/buffers.py:LineFilter.matches": lambda text: buffers.LineFilter("(a|a)*b").matches([text]),
    "worker/sandbox/buffers.py:OutputBuffer.add": lambda text: buffers.OutputBuffer().add(raw(text)),
    "worker/sandbox/buffers.py:OutputBuffer.put_back": lambda text: buffers.OutputBuffer().put_back(raw(text)),
    "worker/sandbox/buffers.py:incomplete_utf8_length": lambda text: buffers.incomplete_utf8_length(raw(text)),
    "worker/sandbox/command.py:ansi_display": commands.ansi_display,
    "worker/sandbox/command.py:metadata": lambda text: commands.metadata(0, text, text),
    "worker/sandbox/command.py:printed_text": lambda text: commands.printed_text(raw(text)),
    "worker/workspace/archive.py:checked_path": archive.checked_path,
    "worker/workspace/patches.py:file_patch": lambda text: patches.file_patch(_CHANGED, raw(half(text)), raw(text)),
    "worker/workspace/patches.py:is_text": lambda text: patches.is_text(raw(text)),
    "worker/workspace/patches.py:quote_path": lambda text: patches.quote_path("a/", text[:PATH]),
}
