"""The names of tools that servers offer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.worker.mcp.config import exposed, prefix


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "git_status", "mcp__git__git_status"),
        ("my server", "get.time/now", "mcp__my_server__get_time_now"),
        ("é", "漢", "mcp______"),
        ("s" * 40, "t" * 40, f"mcp__{'s' * 40}__{'t' * 8}_"),
    ],
)
def test_names_are_such_as_every_model_takes(server: str, tool: str, name: str) -> None:
    assert exposed(server, tool, ()).startswith(name)
    assert exposed(server, tool, ()).startswith(prefix(server))


@given(st.text(), st.text(), st.text())
def test_names_differ_wherever_tools_do(server: str, tool: str, other: str) -> None:
    first = exposed(server, tool, ())
    second = exposed(server, other, {first})
    for name in (first, second):
        assert len(name) <= 64
        assert name.isascii()
        assert name.replace("-", "_").isidentifier()
    assert first != second or tool == other
