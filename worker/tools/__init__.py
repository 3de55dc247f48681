"""The tools: one file each, and one line each in BUILTIN."""

from __future__ import annotations

from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.bash import Bash
from deputize.worker.tools.bash_kill import BashKill
from deputize.worker.tools.bash_output import BashOutput
from deputize.worker.tools.call_subagent import CallSubagent
from deputize.worker.tools.create_artifact import CreateArtifact
from deputize.worker.tools.edit_file import EditFile
from deputize.worker.tools.get_skill import GetSkill
from deputize.worker.tools.glob import Glob
from deputize.worker.tools.grep import Grep
from deputize.worker.tools.list_directory import ListDirectory
from deputize.worker.tools.read_artifact import ReadArtifact
from deputize.worker.tools.read_file import ReadFile
from deputize.worker.tools.read_many_files import ReadManyFiles
from deputize.worker.tools.recall_notes import RecallNotes
from deputize.worker.tools.record_note import RecordNote
from deputize.worker.tools.rewrite_artifact import RewriteArtifact
from deputize.worker.tools.update_artifact import UpdateArtifact
from deputize.worker.tools.web_fetch import WebFetch
from deputize.worker.tools.web_search import WebSearch
from deputize.worker.tools.write_file import WriteFile
from deputize.worker.tools.write_todos import WriteTodos

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
