"""``list_directory``: the entries of one directory."""

from __future__ import annotations

from pydantic import Field

from ...shared.text import clip
from ..text.output import one_line
from ..threads import run_short
from ..workspace.file_entries import PRIVATE_DIR, is_being_written
from ..workspace.files import FileEntry, named
from .base import Availability, DisplayOptions, Kind, Params, Tool, ToolContext, ToolResult
from .params import WorkspacePath

LIMIT = 1000


class ListDirectoryParams(Params):
    path: WorkspacePath = Field(default=".", min_length=1, description="The directory, relative to the workspace.")


class ListDirectory(Tool[ListDirectoryParams]):
    """Lists one directory: first its directories (they end with /), then its files with their sizes in bytes.

    It does not look into directories; to find files at any depth use glob.
    """

    name = "list_directory"
    availability = Availability("enable_file_tools")
    kind = Kind.READ
    display = DisplayOptions("read")
    aliases = ("ls", "list_dir", "LS", "list_files")
    params = ListDirectoryParams

    def title(self, params: ListDirectoryParams) -> str:
        return f"list {clip(params.path, 80)}"

    async def run(self, ctx: ToolContext, params: ListDirectoryParams) -> ToolResult:
        files = ctx.reading(params.path)
        scanned = await run_short(files.scan, params.path)
        entries = [each for each in scanned if each.path != PRIVATE_DIR and not is_being_written(each.name)]
        entries.sort(key=lambda entry: (entry.stat.kind != "directory", entry.name))
        lines = [_line(entry) for entry in entries[:LIMIT]]
        if len(entries) > LIMIT:
            lines.append(f"({LIMIT} of {len(entries)} entries. Use glob with a pattern to find the others.)")
        path = named(files, files.relative(params.path))
        facts = {"path": path, "count": len(entries), "truncated": len(entries) > LIMIT}
        return ToolResult("\n".join(lines) or f"(The directory {path} is empty.)", self.title(params), metadata=facts)


def _line(entry: FileEntry) -> str:
    name = one_line(entry.name)
    match entry.stat.kind:
        case "directory":
            return f"{name}/"
        case "file":
            return f"{name}  ({entry.stat.size} bytes)"
        case "symlink":
            return f"{name}  (link)"
        case "other":
            return f"{name}  (device, pipe or socket)"
