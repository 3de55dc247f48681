"""A run carries out the tests of the project it works on, with the project's own pytest."""

from __future__ import annotations

import shutil
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.running import Bench, call, say, script

PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose environment git ignores, with pytest in it and the project itself as an editable install."""
    root = tmp_path / "project"
    venv.create(root / ".venv", symlinks=True)
    site = next((root / ".venv/lib").glob("python3*")) / "site-packages"
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if (origin := Path(spec.origin)).name == "__init__.py":
            shutil.copytree(origin.parent, site / name)
        else:
            shutil.copy(origin, site)
    (site / "_counting.pth").write_text(f"{root}/src\n")
    (root / ".venv/bin/pytest").write_text(
        f"#!{root}/.venv/bin/python\nimport pytest; raise SystemExit(pytest.main())\n"
    )
    (root / ".venv/bin/pytest").chmod(0o755)
    (root / "src").mkdir()
    (root / "src/counting.py").write_text("ONE = 0\n")
    (root / "tests").mkdir()
    (root / "tests/test_counting.py").write_text("import counting\ndef test_one(): assert counting.ONE == 1\n")
    (root / ".gitignore").write_text(".venv/\n__pycache__/\n.pytest_cache/\n")
    return root


async def test_a_run_passes_the_projects_own_tests_on_what_it_has_changed(
    bench: Bench, project: Path, tmp_path: Path
) -> None:
    model = script(
        tmp_path,
        [call("write_file", path="src/counting.py", content="ONE = 1\n")],
        [call("bash", command="pytest -q -p no:cacheprovider && ls -d .venv/bin/pytest")],
        [say("The tests pass.")],
    )
    workspace = {"kind": "directory", "path": str(project), "ignored": False}
    result = await bench.run(model=model, workspace=workspace)
    steps = [line.split(" ", 3)[3] for line in result.details.splitlines()]
    assert [step[0] for step in steps] == ["✓", "✓"], await bench.events(result.delegation_id)
    assert [path for path in result.files_modified if "pycache" not in path] == ["src/counting.py"]
    assert (project / "src/counting.py").read_text() == "ONE = 0\n"
