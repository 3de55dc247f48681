"""The records of trust and the files that they cover: what is damaged or strange is never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.trust import TrustRecords, covered, regular_bytes, text_of


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the records are kept."""
    (tmp_path / "config").mkdir()
    return tmp_path / "config/trusted.json"


def servers(folder: Path, said: Any) -> None:
    (folder / "mcp.json").write_text(json.dumps(said))


def names(folder: Path) -> list[str]:
    return sorted(str(Path(path).relative_to(folder)) for path in covered(folder))


@pytest.mark.parametrize("config", ["", "not toml", "policy = 7\nmcp_config = 'a\\u0000b'", 'tools = "wrong"'])
def test_a_configuration_that_names_nothing_covers_itself_alone(repo: Path, config: str) -> None:
    (repo / "deputize.toml").write_text(config)
    assert names(repo) == ["deputize.toml"]


def test_an_empty_directory_covers_nothing(repo: Path) -> None:
    assert covered(repo) == {}


@pytest.mark.parametrize(
    "said", [[], {"servers": []}, {"mcpServers": {"a": "b"}}, {"mcpServers": {"a": {"args": "x"}}}]
)
def test_servers_that_are_not_declared_as_such_name_no_files(repo: Path, said: Any) -> None:
    servers(repo, said)
    (repo / "x").touch()
    assert names(repo) == ["mcp.json"]


def test_a_list_of_servers_that_is_no_json_is_covered_all_the_same(repo: Path) -> None:
    (repo / ".mcp.json").write_text("{")
    assert names(repo) == [".mcp.json"]


def test_a_server_covers_the_files_it_names_here_or_leads_to_and_no_others(repo: Path) -> None:
    (repo.parent / "outside.sh").touch()
    (repo / "tool.sh").touch()
    arguments = ["--rules=tool.sh", "../outside.sh", "/etc/hostname", ".", 7, "a\0b"]
    servers(repo, {"servers": {"one": {"command": "sh", "cwd": "${workspaceFolder}", "args": arguments}}})
    assert sorted(Path(path).name for path in covered(repo)) == ["mcp.json", "outside.sh", "tool.sh"]


def test_links_in_a_circle_are_walked_once(repo: Path) -> None:
    (repo / "skills/one").mkdir(parents=True)
    (repo / "skills/one/SKILL.md").touch()
    (repo / "skills/one/again").symlink_to(repo / "skills")
    assert names(repo) == ["skills/one/SKILL.md"]


def test_a_file_that_is_too_long_is_refused(repo: Path) -> None:
    (repo / "long").write_bytes(b"x" * 11)
    with pytest.raises(Misconfigured, match="is larger than 10 bytes"):
        regular_bytes(repo / "long", 10)


def test_only_texts_of_a_readable_length_are_kept() -> None:
    assert [text_of(data) for data in (b"text", b"\xff", b"a\0b", b"x" * 65_537)] == ["text", None, None, None]


def test_records_are_listed_and_removed(repo: Path, file: Path) -> None:
    records = TrustRecords(file.parent)
    assert records.folders() == []
    assert not records.revoke(repo)
    assert not file.exists()
    records.record(repo, {})
    assert records.folders() == [str(repo)]
    assert records.revoke(repo)
    assert records.folders() == []


@pytest.mark.parametrize("text", ["{", "[]", "\ud800"])
def test_a_damaged_file_of_records_trusts_nothing(repo: Path, file: Path, text: str) -> None:
    file.touch(0o600)
    file.write_text(text, errors="surrogatepass")
    assert TrustRecords(file.parent).held(repo) is None
    assert TrustRecords(file.parent).folders() == []


@pytest.mark.parametrize("record", [7, {}, {"at": "now", "digests": {}, "texts": {}}, {"at": 7}])
def test_a_damaged_record_is_none(repo: Path, file: Path, record: Any) -> None:
    file.touch(0o600)
    file.write_text(json.dumps({str(repo): record}))
    assert TrustRecords(file.parent).of(repo) is None


def test_records_that_cannot_be_written_are_a_mistake_of_the_settings(repo: Path, file: Path) -> None:
    (repo / "file").touch()
    with pytest.raises(Misconfigured, match="cannot be written: Not a directory"):
        TrustRecords(repo / "file/config").record(repo, {})
    file.mkdir()
    with pytest.raises(Misconfigured, match="cannot be written: Is a directory"):
        TrustRecords(file.parent).record(repo, {})
