"""An interpreter of our own, shown to commands where the system has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deputize.worker.sandbox import environment
from tests.worker.sandbox.sandboxes import said, sandbox_over


async def test_an_interpreter_can_be_shown_where_the_system_has_none(tmp_path: Path) -> None:
    """Also when it lies where the sandbox's user could not go: as root, below a home directory."""
    mounts = environment.interpreter_mounts(Path(sys.base_prefix))
    if not mounts:
        pytest.skip(f"SKIPPED: {sys.base_prefix} is no whole installation")
    with sandbox_over(tmp_path / "ws", mounts=mounts) as sandbox:
        assert await said(sandbox, "/opt/python/bin/python3 -c 'import json, sys; print(sys.prefix)'") == "/opt/python"
        assert (await said(sandbox, "ls /opt/python; touch /opt/python/bin/x")).startswith("bin\nlib\ntouch: cannot")
        assert "/opt/python/bin" in await said(sandbox, "echo $PATH")


def test_a_virtual_environment_is_not_taken_for_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    assert [each.target for each in environment.interpreter_mounts(tmp_path)] == ["/opt/python/bin", "/opt/python/lib"]
    (tmp_path / "pyvenv.cfg").touch()
    assert environment.interpreter_mounts(tmp_path) == ()
    assert environment.interpreter_mounts(Path("/nowhere")) == ()
