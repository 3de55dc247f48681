"""Names that strangers choose: none becomes an option of bubblewrap or a file of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.errors import ErrorType, ToolError
from tests.worker.sandboxes import bash, sandbox_over
from worker.sandbox.base import Command

BIND = "v\0--bind\0/\0/tmp"


@pytest.mark.parametrize(
    "words",
    [{"env": {"X": BIND}}, {"env": {f"X\0y\0{BIND}": "1"}}, {"cwd": f".\0{BIND}"}, {"cwd": ".\0--share-net"}],
)
async def test_a_nul_in_a_commands_surroundings_is_refused(tmp_path: Path, words: dict[str, Any]) -> None:
    with sandbox_over(tmp_path / "ws") as sandbox:
        with pytest.raises(ToolError, match="NUL") as raised:
            await sandbox.run(bash("ls /tmp", **words))
        assert raised.value.type is ErrorType.EXECUTION_FAILED
        with pytest.raises(ToolError, match="NUL"):
            await sandbox.shells.start("ls", bash("ls /tmp", **words))
        with pytest.raises(ToolError, match="NUL"):
            await sandbox.start(Command(["/bin/ls", "a\0b"], 5), lambda _: None, lambda _: None)


@pytest.mark.parametrize("name", ["{victim}", "../victim.txt", "down/../../victim.txt", "link", "a\0b", ""])
async def test_a_mark_is_never_written_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    victim, marks = tmp_path / "victim.txt", tmp_path / "marks"
    victim.write_text("precious")
    (marks / "down").mkdir(parents=True)
    (marks / "link").symlink_to(victim)
    mark = name.format(victim=victim)
    with sandbox_over(tmp_path / "ws", marks=marks) as sandbox:
        if mark:
            with pytest.raises(ToolError, match="cannot be started"):
                await sandbox.run(bash("true", mark=mark))
            assert sandbox.outcome(mark) is None
        else:
            await sandbox.run(bash("true", mark=mark))
    assert victim.read_text() == "precious"
    assert sorted(path.name for path in marks.iterdir()) == ["down", "link"]
