"""How calls and results are written: XML in which every value is a CDATA section."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

FORM = """\
<tool_call>
<name>tool_name</name>
<params>
<parameter_name><![CDATA[value]]></parameter_name>
</params>
</tool_call>"""
"""A call as it must look, for instructions and errors."""

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def cdata(text: str) -> str:
    """The text as it is. Where it holds ``]]>`` itself, it is split over two sections."""
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def spelled(value: Any) -> str:
    """A value as the text that stands for it: strings as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def format_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """The call in its proper form; reading it gives the same name and values."""
    values = "".join(f"{_param(key, spelled(value))}\n" for key, value in arguments.items())
    return f"<tool_call>\n<name>{name}</name>\n<params>\n{values}</params>\n</tool_call>"


def format_tool_result(name: str, result: str, *, success: bool = True, warnings: Sequence[str] = ()) -> str:
    """What a call gave, for the model to read.

    The result stays as it is: also characters that XML does not know, because its reader is a model.
    """
    told = "".join(f"<warning>{cdata(warning)}</warning>\n" for warning in warnings)
    state = "true" if success else "false"
    return (
        f"<tool_result>\n<name>{name}</name>\n<success>{state}</success>\n{told}"
        f"<result>{cdata(result)}</result>\n</tool_result>"
    )


def _param(name: str, value: str) -> str:
    if _TAG.fullmatch(name):
        return f"<{name}>{cdata(value)}</{name}>"
    return f"<param name={quoteattr(name)}>{cdata(value)}</param>"
