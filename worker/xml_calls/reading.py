"""One call as it was written: its name and the texts of its values.

ElementTree reads it. What is not quite the form goes to ``mending.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain, zip_longest
from xml.etree import ElementTree

from worker.xml_calls.guarding import SECTION, guard, unguard
from worker.xml_calls.mending import Declared, mend
from worker.xml_calls.written import Unreadable, Written, parameter_name, without_section

_BLANKS = " \t\r\n"
_SECTION = re.compile(r"(<!\[CDATA\[.*?\]\]>)", re.DOTALL)


class _NotStrictError(Exception):
    """The call is not quite the form."""


def read_call(raw: str, declared: Declared) -> Written:
    """What a call says, from its ``<tool_call>`` to its ``</tool_call>``. Raises ``Unreadable``."""
    try:
        written = _strict(raw)
    except (ElementTree.ParseError, _NotStrictError):
        written = mend(raw, declared)
    if not written.name:
        raise Unreadable("its <name> is empty")
    twice = [name for name, count in Counter(name for name, _ in written.values).items() if count > 1]
    if twice:
        raise Unreadable(f"{', '.join(twice)} is given more than once")
    return written


def _strict(raw: str) -> Written:
    """By ElementTree. Raises its ParseError, ``_NotStrictError``, and ``Unreadable`` for what is certainly wrong."""
    parts = _SECTION.split(raw)
    root = ElementTree.fromstring(_tidy(parts))  # noqa: S314 - it begins with its root, so it can have no DTD
    if any("<!" in outside or "<?" in outside for outside in parts[::2]):
        raise _NotStrictError
    if _is_mixed(parts):
        raise Unreadable("a value has text both inside and outside of its CDATA section")
    if [child.tag for child in root] not in (["name"], ["name", "params"]) or root.attrib or len(root[0]):
        raise _NotStrictError
    params = root[1] if len(root) > 1 else ElementTree.Element("params")
    around = (root.text, params.text, *(child.tail for part in (root, params) for child in part))
    if any(text and unguard(text).strip() for text in around):
        raise Unreadable("there are words between its tags")
    values = [_param(element) for element in params]
    bare = [name for name, text in values if text.strip() and not text.startswith(SECTION)]
    return Written(
        name=unguard(root[0].text or "").strip(),
        values=tuple((name, unguard(text)) for name, text in values),
        warnings=(without_section(bare),) if bare else (),
    )


def _param(element: ElementTree.Element) -> tuple[str, str]:
    if len(element):
        raise _NotStrictError
    attributes = {name: unguard(value) for name, value in element.attrib.items()}
    return parameter_name(element.tag, attributes), element.text or ""


def _is_mixed(parts: list[str]) -> bool:
    """Whether a CDATA section has other text beside it, blanks around it excepted."""
    for at in range(1, len(parts), 2):
        before, after = parts[at - 1], parts[at + 1]
        if before and not before.rstrip(_BLANKS).endswith(">"):
            return True
        if after and not after.lstrip(_BLANKS).startswith("<"):
            return True
    return False


def _tidy(parts: list[str]) -> str:
    """The call without the blanks around its sections: they are layout, only what is inside is the value."""
    outside = [guard(part.strip(_BLANKS)) for part in parts[::2]]
    inside = [guard(part).replace("<![CDATA[", f"<![CDATA[{SECTION}", 1) for part in parts[1::2]]
    return "".join(chain.from_iterable(zip_longest(outside, inside, fillvalue="")))
