"""The rows of services: whether a sandbox finds their programs."""

from __future__ import annotations

from pathlib import Path

from deputize.shared.settings import Settings
from deputize.worker.promises.services import service_rows
from deputize.worker.sandbox.protections import give


async def test_each_service_has_a_row_that_names_the_programs_which_are_missing(tmp_path: Path) -> None:
    services = {
        "whole": {"command": "exec sleep 1000", "health": "A=1 test -e x"},
        "half": {"command": "exec sleep 1000", "health": "no-such-ping 'a b'", "template": "/no/such/init -D ."},
        "unused": {"command": "sleep 1", "health": "true"},
    }
    environments = {"shop": {"setup": "true", "services": ["whole", "half"]}}
    settings = Settings.load(environ={}, home=tmp_path, services=services, environments=environments)
    (folder := tmp_path / "files").mkdir()
    give(folder)
    whole, half, unused = [row async for row in service_rows(settings, folder)]
    assert (whole.state, whole.name, whole.detail) == ("✓", "service whole", "a sandbox finds sleep, test")
    assert (half.state, half.detail) == ("✗", "a sandbox does not find no-such-ping, /no/such/init")
    assert (unused.state, unused.remedy) == ("!", 'services = ["unused"] lists it')
