"""How a reply ends: one table decides whether its calls run, whether the run is done, and what the model is asked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import lru_cache

from .base import Reply


class Ending(StrEnum):
    """What follows a reply."""

    CALLS = "its calls are executed"
    DONE = "the run is completed"
    CUT = "the model goes on where it was cut"
    PAUSED = "the model goes on after a pause"
    FULL = "a shorter conversation replaces this one"
    REFUSED = "the run has failed, and no call is executed"
    IMITATION = "the model is asked for a real call"
    EMPTY = "the model is asked for a report"
    NO_OUTPUT = "the model is asked to hand in the output"
    UNCLEAR = "the model is asked for the whole report or the next call"


ENDINGS = {
    # stop reasons of the API, and words that gateways pass on: with calls, with text, imitating a call, with nothing
    "end_turn stop_sequence stop eos eos_token eot eot_id end end_of_text endoftext end_of_turn complete completed "
    "done finish finished success": "CALLS DONE IMITATION EMPTY",
    "tool_use tool_call tool_calls function_call": "CALLS IMITATION IMITATION IMITATION",
    "max_tokens length max_output_tokens max_completion_tokens incomplete": "CALLS CUT IMITATION CUT",
    "malformed_function_call malformed_tool_call malformed_tool_use unexpected_tool_call": "CALLS IMITATION IMITATION "
    "IMITATION",
    "pause_turn": "CALLS PAUSED IMITATION PAUSED",
    "model_context_window_exceeded context_length_exceeded model_length": "CALLS FULL FULL FULL",
    "refusal content_filter content_filtered safety blocked blocklist guardrail_intervened prohibited_content "
    "recitation spii": "REFUSED REFUSED REFUSED REFUSED",
}
_ROWS = {reason: [Ending[end] for end in row.split()] for words, row in ENDINGS.items() for reason in words.split()}
_UNKNOWN = (Ending.CALLS, Ending.UNCLEAR, Ending.IMITATION, Ending.EMPTY)
"""What follows an unknown stop reason, such as ``error``, or none: half a report would be a success otherwise."""

_PREFIX = r"(?:[\w-]+:|[|\uff5c]\w+[|\uff5c])?"
_NS = f"<{_PREFIX}"
_MARKUP = (
    rf"{_NS}invoke\b[^<>]{{0,300}}\bname\s*=[^<>]{{0,300}}(?:\Z|>\s*(?:\Z|\{{|</?{_PREFIX}(?:parameter|invoke)"
    rf"|[^<]{{0,20000}}</{_PREFIX}invoke))"
    rf"|{_NS}(?:(?:start_)?function_calls?|tool_calls?|tool_use|tool_code|use_(?:mcp_)?tool|function)\b[^<>]{{0,300}}>"
    r"\s*(?:\Z|[{\[<]|[\w.]+\(|[\w.-]+ *(?:<arg_key>|\n *[<{]))"
    "|<function=[\\w.-]+>|<[|\uff5c]tool[_\u2581][a-z_\u2581]+[|\uff5c]>|<\\|python_tag\\|>"
    r"|\[TOOL_CALLS\]|^\[(?:tool[ _]|function )(?:call|use)|\bto=functions\.\w"
    r"|^(?:<(?-i:{tools})>\s*<\w+>|Act\w+:[ ]*({tools})[ ]*\n+Act\w+ Input:|\[?({tools})\(\s*\w+\s*=.*\)\]?\s*\Z)"
    r"|^(?:print\()?(?:await )?(?:default_api|functions|tools)\.({tools})\(|\bcall:({tools})\{"
    r"|^[ \t]*[\[{](?=[^\0]{0,500}\"(name|tool|tool_name|function|function_name|recipient_name|act\w+)\"\s*:\s*"
    r"\"(functions\.)?({tools})\")"
    r"(?=[^\0]{0,1000}\"(arguments|parameters|input|args|params|\w+_input)\"\s*:)"
)
"""The forms in which models write calls that learned to call tools at other interfaces."""
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)([^\n]*+)\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_CALL_FENCE = re.compile(r"\s*(tool|function)_(call|code|use)s?\b", re.IGNORECASE)
"""The language of a code block that holds calls."""
_INLINE_CODE = re.compile(r"(?<!`)(`++)[^\n]*?(?<!`)\1(?!`)")
_SHOWS = re.compile(
    r"example|like this|looks? like|such as|e\.g\.|\bin (this|the) (form|format|syntax)\b|\bcalls? (is|are)\b", re.I
)
_INTENDS = re.compile(r"\b(I|let me|let's|now|next|first)\b", re.IGNORECASE)
"""What precedes a code block that is meant as a call, if anything does."""
_MAX_LEAD = 200


def is_cut(stop_reason: str) -> bool:
    """Returns whether the end of the reply, and so a call, may be incomplete."""
    return Ending.CUT in _row(stop_reason) or Ending.FULL in _row(stop_reason)


def ending_of(reply: Reply, tools: Collection[str]) -> Ending:
    """Returns what follows a reply of a run with these tools."""
    calls, text, imitation, nothing = _row(reply.stop_reason)
    if reply.calls or not reply.text.strip():
        return calls if reply.calls else nothing
    return imitation if imitates_call(reply.text, tools) else text


def _row(stop_reason: str) -> Sequence[Ending]:
    return _ROWS.get(stop_reason.lower(), _UNKNOWN)


def imitates_call(text: str, tools: Collection[str]) -> bool:
    """Returns whether the text makes a tool call in writing, rather than showing one as code or within a sentence.

    A code block makes one if it calls one of the tools, ends the text, and its language is that of calls, or a short
    statement of intent at most precedes it.
    """
    *_, last = [None, *_FENCE.finditer(text)]
    if last and not text[last.end() :].strip() and any(tool in last[3] for tool in tools):
        lead = text[: last.start()].strip()
        is_short = len(lead) <= _MAX_LEAD and (_INTENDS.search(lead) or _CALL_FENCE.match(last[2]))
        if (not lead or (is_short and not _SHOWS.search(lead))) and _makes_call(last[3], tools):
            return True
    return _makes_call(_INLINE_CODE.sub("`", _FENCE.sub("`", text)), tools)


@lru_cache(maxsize=64)
def _markup(tools: Sequence[str]) -> re.Pattern[str]:
    return re.compile(_MARKUP.replace("{tools}", "|".join(map(re.escape, tools)) or r"\Z."), re.I | re.M)


def _makes_call(text: str, tools: Collection[str]) -> bool:
    ends_with_it = text.rstrip().endswith((">", "}", "]"))
    found = _markup(tuple(tools)).finditer(text)
    return any(ends_with_it or not text[: each.start()].rpartition("\n")[2].strip() for each in found)
