"""Placeholders: ``// ... rest of code ...`` in a new text would put a remark in the place of the code it stands for.

Only remarks that say so in words are found. An ellipsis alone means something in too many languages: Python's ``...``,
a spread ``...args``, a stub, a range. So do headings such as ``# Existing fields``.
"""

from __future__ import annotations

import re

from shared.errors import ErrorType, ToolError
from worker.output import clip

_DOTS = r"(?:\.{3,}|…)"
_THING = (
    r"(?:code|files?|functions?|methods?|class(?:es)?|implementation|contents?|logic|body|lines?|imports?|modules?"
    r"|script|sections?|block|component|text|document|markup|styles?|tests?|fields?|properties|cases|definitions?)"
)
_SAME = r"(?:unchanged|omitted|the\s+same|as\s+(?:is|before)|not\s+shown|goes\s+here|here)"
_AS_IT_WAS = rf"(?:(?:is|are|remains?|stays?|left|kept)\s+)*{_SAME}(?:\s+for\s+brevity)?"
_REST = rf"(?:the\s+)?(?:rest|remainder)\s+of\s+(?:(?:the|this|your|my)\s+)?(?:\w+\s+)?{_THING}(?:\s+{_AS_IT_WAS})?"
_OTHERS = rf"(?:the\s+)?(?:existing|remaining|previous|original|unchanged|same|other)\s+(?:\w+\s+)?{_THING}"
_SURE = rf"(?:{_REST}|(?:existing|remaining|unchanged)\s+code|{_OTHERS}\s+{_AS_IT_WAS}|{_THING}\s+{_AS_IT_WAS})"
"""What a remark without an ellipsis has to say."""
_FEW = r"(?:rest|unchanged|omitted|same\s+as\s+(?:before|above)|no\s+changes?|(?:existing|remaining)\s+\w+)"
_HINT = rf"(?:keep\s+)?(?:{_REST}|{_OTHERS}|{_FEW})(?:\s+{_AS_IT_WAS})?"
"""What is enough beside an ellipsis."""
_DOTTED = rf"(?:{_DOTS}\s*[(\[]?(?:{_HINT}|{_THING})[)\]]?\s*{_DOTS}?|{_HINT}\s*{_DOTS})"
_IN_BRACKETS = rf"[(\[<]\s*(?:{_DOTTED}|{_SURE}|(?:rest\s+)?unchanged|rest\s+omitted)\s*[)\]>]"
_OPEN = r"(?:/{2,}|\#+|\{?/\*+|<!--|--+|;+|%+|\*)"
_CLOSE = r"(?:\*+/\}?|-->)?[\s})\];,.]*"
_PLACEHOLDER = re.compile(
    rf"""
    \s*{_OPEN}\s*(?:{_DOTTED}|{_SURE}|{_IN_BRACKETS})\s*{_CLOSE}       # a line that is nothing but the remark
    | .*[\s{{(\[,]{_OPEN}\s*{_DOTS}\s*(?:{_REST}|{_OTHERS})\b[^"']{{0,40}}  # one behind code
    | \s*(?:{_DOTS}\s*(?:{_REST}|{_OTHERS})(?:\s+{_AS_IT_WAS})?\s*{_DOTS}?|{_IN_BRACKETS})\s*  # one without a sign
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MAX_CHARS = 200
"""No remark is longer; longer lines are not looked at."""


def placeholder(text: str, *known: str) -> str | None:
    """The first line that stands for others and is in none of the known texts, or None."""
    for line in text.splitlines():
        remark = line.strip()
        if len(line) <= _MAX_CHARS and _PLACEHOLDER.fullmatch(line) and not any(remark in each for each in known):
            return remark
    return None


def refuse_placeholder(name: str, text: str, *known: str) -> None:
    """Raises ToolError(INVALID_TOOL_PARAMS) where the parameter ``name`` has a line that stands for others.

    What the ``known`` texts (the file, the text to replace) have already is no placeholder.
    """
    if found := placeholder(text, *known):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{name} has a placeholder: {clip(found, 100)!r}. It would stand in the file instead of the lines it is "
            "meant for. Write these lines out, or change less at once: what stays need not be given at all. "
            "Nothing was changed.",
        )
