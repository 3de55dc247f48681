"""The tools: one file each, and one line each in BUILTIN."""

from __future__ import annotations

from .base import AnyTool
from .bash import Bash
from .bash_kill import BashKill
from .bash_output import BashOutput
from .call_subagent import CallSubagent
from .create_artifact import CreateArtifact
from .edit_file import EditFile
from .get_skill import GetSkill
from .glob import Glob
from .grep import Grep
from .list_directory import ListDirectory
from .read_artifact import ReadArtifact
from .read_file import ReadFile
from .read_many_files import ReadManyFiles
from .recall_notes import RecallNotes
from .record_note import RecordNote
from .rewrite_artifact import RewriteArtifact
from .update_artifact import UpdateArtifact
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
