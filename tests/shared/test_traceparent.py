"""``traceparent``: what W3C Trace Context allows, and whose trace the current task belongs to."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from deputize.shared.traceparent import current, parsed, part_of, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (SAMPLED, SAMPLED),
        (f" {SAMPLED}\t", SAMPLED),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-03", f"00-{TRACE}-{SPAN}-03"),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),  # flags that no version knows yet are not passed on
        (f"cc-{TRACE}-{SPAN}-01", SAMPLED),  # a later version, as far as this one knows it
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-holds", SAMPLED),
        (f"00-{TRACE}-{SPAN}-01-what-the-future-holds", ""),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 4000}", ""),
        (f"cc-{TRACE}-{SPAN}-01.", ""),
        (f"ff-{TRACE}-{SPAN}-01", ""),
        (f"00-{'0' * 32}-{SPAN}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (SAMPLED.upper(), ""),
        (SAMPLED[:-1], ""),
        (SAMPLED.replace("-", ""), ""),
        (f"{SAMPLED},{SAMPLED}", ""),
        (SAMPLED.replace("7", "\u0667"), ""),  # a digit, but not one of ASCII
        ("", ""),
        (None, ""),
    ],
)
def test_a_traceparent_is_taken_as_the_standard_has_it_or_not_at_all(text: str | None, taken: str) -> None:
    assert parsed(text) == taken


def test_the_trace_id_is_what_other_tools_show() -> None:
    assert (trace_id_of(SAMPLED), trace_id_of("")) == (TRACE, "")


def test_what_was_given_comes_before_opentelemetrys_current_span() -> None:
    other = SpanContext(int(TRACE, 16), 1, is_remote=False, trace_flags=TraceFlags(0))
    assert current() == ""
    token = context.attach(set_span_in_context(NonRecordingSpan(other)))
    try:
        assert current() == f"00-{TRACE}-0000000000000001-00"
        with part_of(SAMPLED):
            assert current() == SAMPLED
            with part_of("nonsense"):
                assert current() == f"00-{TRACE}-0000000000000001-00"
    finally:
        context.detach(token)
    assert current() == ""


def test_where_opentelemetry_is_not_imported_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert current() == ""
