"""What the network refused a run: bounded, without secrets, kept for the next attempt, and of hosts alone."""

from __future__ import annotations

from deputize.shared.masking import SecretMask
from deputize.shared.runs.record import KEPT, REFUSALS
from deputize.worker.web.refusals import Refusals

SECRET = "hunter2-and-more"


def opened(*kept: str) -> tuple[Refusals, dict[str, str]]:
    record: dict[str, str] = {}
    return Refusals(kept, SecretMask([SECRET]).text, record.update), record


def test_the_next_attempt_knows_what_was_refused_to_this_one() -> None:
    refusals, record = opened()
    for sentence in ("a is not allowed", "a is not allowed", f"{SECRET}.b is not allowed"):
        refusals.note(sentence)
    kept = KEPT[REFUSALS](record[REFUSALS])
    assert (len(kept), kept[0], SECRET in str(kept)) == (2, "a is not allowed", False)
    later, record = opened(*kept)
    later.note("a is not allowed")
    assert (later.sentences, record) == (kept, {})


def test_the_hosts_of_denied_calls_count_and_all_is_bounded() -> None:
    refusals, _ = opened()
    for url in ("https://evil.example/x", "https://[", 7, None, "no address"):
        refusals.note_denied("web_fetch", url)
    assert refusals.sentences == ["evil.example: a call of web_fetch was denied"]
    for number in range(300):
        refusals.note(f"{number}{'x' * 1000} is not allowed")
    assert (len(refusals.sentences), max(map(len, refusals.sentences)) <= 200) == (100, True)
