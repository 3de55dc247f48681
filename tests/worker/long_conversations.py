"""Conversations that near the window of their model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.running import call, say, script

FIRST = {"match": {"contains": "Work so far"}}
WRITE = call("write_file", path="a.txt", content="word " * 400)
READ = call("read_file", path="a.txt")


def long_script(folder: Path, *after: Any, summary: str = "NOTES: a.txt was written.", **more: Any) -> str:
    """Two turns that make the conversation long, and what is played when it has begun anew."""
    name = script(folder, [WRITE], [READ], [say("never reached")], summary=summary)
    path = Path(name.partition(":")[2])
    rules = [{**FIRST, "turns": list(after) or [[READ], [say("all done")]]}, *json.loads(path.read_text())["rules"]]
    path.write_text(json.dumps({"rules": rules, "label": "", "window": 1600} | more))
    return name
