"""The tools: one line each in ``BUILTIN``, and one file each, or one for several that work on the same things."""

from __future__ import annotations

from .artifacts import CreateArtifact, ReadArtifact, RewriteArtifact, UpdateArtifact
from .background_shells import BashKill, BashOutput
from .base import AnyTool
from .bash import Bash
from .call_subagent import CallSubagent
from .edit_file import EditFile
from .glob import Glob
from .grep import Grep
from .list_directory import ListDirectory
from .notes import RecallNotes, RecordNote
from .read_file import ReadFile
from .read_many_files import ReadManyFiles
from .skills import GetSkill
from .web_fetch import WebFetch
from .web_search import WebSearch
from .write_file import WriteFile
from .write_todos import WriteTodos

BUILTIN: tuple[AnyTool, ...] = (
    ReadFile(),
    WriteFile(),
    EditFile(),
    Bash(),
    BashOutput(),
    BashKill(),
    Glob(),
    Grep(),
    WebFetch(),
    ListDirectory(),
    WebSearch(),
    CallSubagent(),
    RecordNote(),
    RecallNotes(),
    WriteTodos(),
    ReadManyFiles(),
    GetSkill(),
    CreateArtifact(),
    ReadArtifact(),
    UpdateArtifact(),
    RewriteArtifact(),
)
DEFAULT_KIT = ("read_file", "write_file", "edit_file", "bash", "bash_output", "bash_kill", "glob", "grep", "web_fetch")
"""The tools of a run that requests none. Few on purpose: every further tool is one more decision for the model."""
