"""Findings of doctor as JSON, and the sentences of promises."""

from __future__ import annotations

import pytest

from deputize.shared.promises import PROMISES, Finding, State


@pytest.mark.parametrize(("state", "word"), [("✓", "ok"), ("!", "warning"), ("✗", "broken")])
def test_a_finding_has_its_state_as_a_word(state: State, word: str) -> None:
    found = Finding(state, "network", "no route", "start it anew").to_dict()
    assert found == {"state": word, "name": "network", "detail": "no route", "remedy": "start it anew"}


def test_the_sentence_of_a_promise_has_no_markup() -> None:
    assert any("`" in each.text for each in PROMISES)
    assert not any("`" in each.sentence for each in PROMISES)
