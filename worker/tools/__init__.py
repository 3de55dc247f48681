"""The tools: one file each, and one line each in BUILTIN."""

from __future__ import annotations

from worker.tools.base import AnyTool
from worker.tools.bash import Bash
from worker.tools.bash_kill import BashKill
from worker.tools.bash_output import BashOutput
from worker.tools.call_subagent import CallSubagent
from worker.tools.create_artifact import CreateArtifact
from worker.tools.edit_file import EditFile
from worker.tools.get_skill import GetSkill
from worker.tools.glob import Glob
from worker.tools.grep import Grep
from worker.tools.list_directory import ListDirectory
from worker.tools.read_artifact import ReadArtifact
from worker.tools.read_file import ReadFile
from worker.tools.read_many_files import ReadManyFiles
from worker.tools.recall_notes import RecallNotes
from worker.tools.record_note import RecordNote
from worker.tools.rewrite_artifact import RewriteArtifact
from worker.tools.update_artifact import UpdateArtifact
from worker.tools.web_fetch import WebFetch
from worker.tools.web_search import WebSearch
from worker.tools.write_file import WriteFile
from worker.tools.write_todos import WriteTodos

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
