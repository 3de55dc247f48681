"""`deputize doctor` on secrets: each row is tried on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.orchestrator.cli.doctor_secrets import secret_checks
from deputize.orchestrator.cli.findings import Finding
from deputize.shared.settings import Settings

KEY = "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cD"


def rows(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Finding]:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    return {row.name: row for row in secret_checks(Settings.load())}


def test_masking_is_tried_with_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(monkeypatch, ANTHROPIC_API_KEY=KEY, DEPUTIZE_TOKEN="token-of-the-operator")
    assert found["masking"].state == "✓"
    assert "2 values" in found["masking"].detail
    assert KEY not in str(found)


def test_a_secret_too_short_to_be_masked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(monkeypatch, DEPUTIZE_TOKEN="short")
    assert (found["masking"].state, "fewer than 8" in found["masking"].detail) == ("!", True)


def test_a_key_in_the_environment_is_named_and_one_in_a_private_file_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = rows(monkeypatch, ANTHROPIC_API_KEY=KEY)
    assert (found["keys"].state, "ANTHROPIC_API_KEY_FILE" in found["keys"].remedy) == ("!", True)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    assert rows(monkeypatch, ANTHROPIC_API_KEY_FILE=str(tmp_path / "key"))["keys"].state == "✓"
    (tmp_path / "key").chmod(0o644)
    found = rows(monkeypatch)
    assert (found["keys"].state, found["keys"].remedy) == ("!", f"chmod 600 {tmp_path / 'key'}")


def test_that_memory_is_private_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(monkeypatch)["memory"].state == "✓"
