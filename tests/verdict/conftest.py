"""What the sandboxes of the corpus have besides the system: a Python with pytest, made once."""

from __future__ import annotations

import compileall
import shutil
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pytest, which the operator shows to sandboxes; compiled, as they cannot write it."""
    root = tmp_path_factory.mktemp("kit") / "python"
    venv.create(root, symlinks=True)
    site = next((root / "lib").glob("python3*")) / "site-packages"
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if (origin := Path(spec.origin)).name == "__init__.py":
            shutil.copytree(origin.parent, site / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, site)
    compileall.compile_dir(site, quiet=2)
    (root / "bin/pytest").write_text(f"#!{root}/bin/python\nimport pytest; raise SystemExit(pytest.main())\n")
    (root / "bin/pytest").chmod(0o755)
    for folder in (root.parent, root.parent.parent):
        folder.chmod(0o755)  # the sandbox's user goes through them
    return root
