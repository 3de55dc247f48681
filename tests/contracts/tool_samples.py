"""Arguments for every tool. A new tool gets a line in `SAMPLES` and one in `OVERSIZED`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHELL = "5a3b1e00"
SAMPLES: Mapping[str, dict[str, Any]] = {
    "read_file": {"path": "src/app.py"},
    "write_file": {"path": "src/new.py", "content": "print('new')\n"},
    "edit_file": {"path": "src/app.py", "old_string": "VALUE = 1", "new_string": "VALUE = 2"},
    "bash": {"command": "cat src/app.py"},
    "bash_output": {"bash_id": SHELL},
    "bash_kill": {"bash_id": SHELL},
    "glob": {"pattern": "**/*.py"},
    "grep": {"pattern": "VALUE"},
    "web_fetch": {"url": "http://site.test/page"},
    "list_directory": {"path": "src"},
    "web_search": {"query": "orchestrator"},
    "call_subagent": {"task": "Summarise src/app.py", "context": "It holds one value."},
    "record_note": {"content": "Remember this."},
    "recall_notes": {"category": "general"},
    "write_todos": {"todos": [{"description": "Read the tests", "status": "pending"}]},
    "read_many_files": {"paths": ["src/*.py", "empty.txt"]},
    "get_skill": {"skill_name": "release-notes"},
    "create_artifact": {"name": "report.md", "content": "Done."},
    "read_artifact": {"name": "plan.md"},
    "update_artifact": {"name": "plan.md", "old_string": "first", "new_string": "last"},
    "rewrite_artifact": {"name": "plan.md", "content": "A new plan."},
}
"""Arguments with which a call succeeds in the workspace that ``prepare`` makes."""

OVERSIZED: Mapping[str, dict[str, Any]] = {
    "read_file": {"path": "long.txt"},
    "write_file": {"path": "long.txt", "content": "y" * 2_000_000},
    "edit_file": {"path": "long.txt", "old_string": "word", "new_string": "other", "replace_all": True},
    "bash": {"command": "cat long.txt; cat long.txt >&2"},
    "bash_output": {"bash_id": SHELL},
    "bash_kill": {"bash_id": SHELL},
    "glob": {"pattern": "many/**"},
    "grep": {"pattern": "word", "max_results": 1000},
    "web_fetch": {"url": "http://site.test/long"},
    "list_directory": {"path": "many"},
    "web_search": {"query": "word", "count": 50},
    "call_subagent": {"task": "y" * 200_000},
    "record_note": {"content": "y" * 20_000},
    "recall_notes": {"category": "y" * 20_000},
    "write_todos": {"todos": [{"description": "y" * 500, "status": "pending"}] * 100},
    "read_many_files": {"paths": ["long.txt", "many/*"]},
    "get_skill": {"skill_name": "long-guide"},
    "create_artifact": {"name": "report.md", "content": "y" * 1_000_000},
    "read_artifact": {"name": "long.md"},
    "update_artifact": {"name": "long.md", "old_string": "word", "new_string": "term", "replace_all": True},
    "rewrite_artifact": {"name": "long.md", "content": "y" * 1_000_000},
}
"""Arguments that have much to say or to do."""
