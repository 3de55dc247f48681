"""Tables of environments: what is refused, and which one fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deputize.shared.errors import Misconfigured
from deputize.shared.settings.environments import EnvironmentSettings, matching, unknown_environment


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"variables": {"PATH": "x"}}, "'PATH' cannot be set"),
        ({"variables": {"A-B": "x"}}, "'A-B' cannot be set"),
        ({"inputs": ["/etc/passwd"]}, "is not a pattern of files in the repository"),
        ({"inputs": ["../x"]}, "is not a pattern of files in the repository"),
    ],
)
def test_wrong_names_and_patterns_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        EnvironmentSettings(setup="true", **fields)


@pytest.mark.parametrize(("content", "why"), [(b"\xff" * 20, "is not text"), (b"short", "needs a text of at least")])
def test_a_secret_is_a_text_that_is_long_enough(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(content)
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(Misconfigured, match=rf"environments\.site\.secrets\.KEY.*{why}"):
        EnvironmentSettings(setup="true", secrets={"KEY": tmp_path / "secret"}).secret_values("site")


def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    tables = {"site": EnvironmentSettings(setup="true", match=["https://git.example.org/a/*"])}
    assert unknown_environment(None, tables) is unknown_environment("site", tables) is None
    assert "'sit'" in (unknown_environment("sit", tables) or "")
    assert "there are site" in (unknown_environment("elsewhere", tables) or "")
    assert "the settings define none" in (unknown_environment("site", {}) or "")
    assert matching(tables, "https://git.example.org/a/b.git") == "site"
    assert matching(tables, None) is None
