"""Results that are laid over the files of a run: once more, they leave nothing of those before."""

from __future__ import annotations

from pathlib import Path

from deputize.shared.patch_format import parse_patch
from deputize.shared.patches.siblings import Side
from deputize.shared.request import DirectoryWorkspace
from deputize.worker.workspace.laid_out import lay_out
from deputize.worker.workspace.workspace import Workspace
from tests.shared.patches.patching import patch_of

BASE = {"a": "1\n", "b": "2\n"}


def side(id: str, **files: str | None) -> Side:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    patches = [patch_of(path, encoded(BASE.get(path)), encoded(new)) for path, new in files.items()]
    return Side(id, parse_patch("".join(patches)))


async def test_another_result_replaces_what_a_lost_worker_has_laid_out(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for name, text in BASE.items():
        (tmp_path / "project" / name).write_text(text)
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    workspace = await Workspace.create(spec, "dlg_1", tmp_path / "root")
    try:
        assert not await lay_out(workspace, [side("one", a="one\n", b=None, c="new\n")], ())
        paths = {part.path for each in workspace.changed().differences for part in each.apart()}
        assert paths == {"a", "b", "c"}
        assert not await lay_out(workspace, [side("two", b="two\n")], paths)
        left = {path.name: path.read_text() for path in workspace.path.iterdir() if path.is_file()}
        assert left == {"a": "1\n", "b": "two\n"}
        conflicts = await lay_out(workspace, [side("three", b="x\n"), side("four", b="y\n")], paths)
        assert [each.path for each in conflicts] == ["b"]
    finally:
        workspace.close()
