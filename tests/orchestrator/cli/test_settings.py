"""`deputize settings` in its three forms."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests.orchestrator.command_line import deputize


async def test_settings_are_listed_with_what_differs_from_the_default(tmp_path: Path) -> None:
    done = await deputize("settings", cwd=tmp_path, DEPUTIZE_PORT="1", DEPUTIZE_CONFIG="/dev/null")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert done.code == 0
    assert rows["DEPUTIZE_PORT"] == ["1", "default:", "8642"]
    assert rows["DEPUTIZE_HOST"] == ['"127.0.0.1"']
    assert rows["DEPUTIZE_REDIS_URL"] == ["unset"]


async def test_settings_as_json_and_as_a_file(tmp_path: Path) -> None:
    variables = {"DEPUTIZE_SANDBOX_PROCESSES": "99", "DEPUTIZE_CONFIG": "/dev/null"}
    done = await deputize("settings", "--json", cwd=tmp_path, **variables)
    lines = {line["variable"]: line for line in map(json.loads, done.out.splitlines())}
    assert lines["DEPUTIZE_SANDBOX_PROCESSES"]["value"] == "99"
    done = await deputize("settings", "--toml", cwd=tmp_path, **variables)
    assert tomllib.loads(done.out)["sandbox"] == {"processes": 99}
    both = await deputize("settings", "--toml", "--json", cwd=tmp_path)
    assert (both.code, "--toml and --json" in both.err) == (2, True)
