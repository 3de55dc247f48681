"""Lines that are longer than a terminal is wide."""

from __future__ import annotations

import pytest

from deputize.orchestrator.cli.formatting import wrapped

ID = "dlg_01m87ws0000000000000h3yk00"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("the command ended with exit code 1", ["the command ended", "  with exit code 1"]),
        ("  and indented ones as well", ["  and indented ones", "  as well"]),
        (f"detached; {ID} goes on", ["detached;", f"  {ID}", "  goes on"]),
        (f"come back with `deputize watch {ID}`.", ["come back with", f"  `deputize watch {ID}`."]),
        (f"  to take over: deputize apply {ID}", ["  to take over:", f"  deputize apply {ID}"]),
        (f"to take over: A=/x /v/deputize apply {ID}", ["to take over:", f"  A=/x /v/deputize apply {ID}"]),
    ],
)  # fmt: skip
def test_words_ids_and_commands_stay_whole(line: str, parts: list[str]) -> None:
    assert wrapped(line, 20, hang=2) == parts


@pytest.mark.parametrize("width", range(4, 45))
def test_a_hard_limit_holds_for_every_word_and_loses_nothing(width: int) -> None:
    line = f"run `deputize show {ID}` in   /a/very/long/path/without/any/blank or not"
    parts = wrapped(line, width, hang=2, hard=True)
    assert max(map(len, parts)) <= width
    assert "".join("".join(parts).split()) == "".join(line.split())
