"""How calls are written as XML, and what a model is told so that it can write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from worker.models.base import ToolSpec
from worker.models.xml_calls.values import declared_types

FORM = """\
<tool_call>
<name>tool_name</name>
<params>
<parameter_name><![CDATA[value]]></parameter_name>
</params>
</tool_call>"""
"""A call as it must look, for instructions and errors."""

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_INTRODUCTION = f"""\
# Calling tools

You call a tool by writing the call into your answer, as XML in exactly this form:

{FORM}

What it gave comes in the next message, as <tool_result>…</tool_result>, one for each call, in the order of the calls.

# Tools"""
_NOTES = """\
# Notes

- Put every value between <![CDATA[ and ]]>. What stands there is taken as it is: escape nothing, and mind that blanks \
and line breaks count.
- Where a value itself holds ]]>, write ]]]]><![CDATA[> for it.
- A boolean is true or false, a number is plain digits, an array or an object is JSON.
- Leave out optional parameters whose default is right.
- You may write several calls one after another; they are carried out in that order. After the last one stop and wait \
for the results. Never write a <tool_result> yourself.
- Close each call with </tool_call>. One that is not complete is not carried out.
- Write calls neither in code fences nor in backticks. To mention the form without calling, put it in backticks.
- An answer without a call ends your work."""


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


def generate_tool_instruction(tools: Sequence[ToolSpec]) -> str:
    """How to call these tools: the form, each tool with its parameters and an example, and notes; "" for no tools."""
    if not tools:
        return ""
    return "\n\n".join([_INTRODUCTION, *map(_told, tools), _NOTES])


def example(tool: ToolSpec) -> str:
    """A call of the tool with every parameter: required ones as ``your_NAME_here``, the others with their default."""
    required = _required(tool)
    values = {
        name: f"your_{name}_here" if name in required else part["default"]
        for name, part in _parameters(tool)
        if name in required or part.get("default") is not None
    }
    return format_tool_call(tool.name, values)


def _told(tool: ToolSpec) -> str:
    lines = [f"### {tool.name}", f"Description: {tool.description}", "Parameters:"]
    required = _required(tool)
    for name, part in _parameters(tool):
        lines += _parameter(tool, name, part, required=name in required)
    if len(lines) == 3:
        lines[-1] = "Parameters: none"
    if definitions := tool.schema.get("$defs"):
        lines.append(f"Definitions: {_json(definitions)}")
    return "\n".join([*lines, "Example:", example(tool)])


def _parameter(tool: ToolSpec, name: str, part: Mapping[str, Any], *, required: bool) -> Iterator[str]:
    types = sorted(declared_types(tool.schema, name) - {"null"})
    need = "required" if required else "optional"
    told = " ".join([*str(part.get("description", "")).split(), *_bounds(part)])
    yield f"  - {name}: {' or '.join(types) or 'any'} ({need})" + (f" - {told}" if told else "")
    if not required and part.get("default") is not None:
        yield f"    Default: {spelled(part['default']) or '(empty)'}"
    if {"array", "object"} & set(types):
        schema = {key: value for key, value in part.items() if key not in ("default", "description")}
        yield f"    Schema: {_json(schema)}"


def _bounds(part: Mapping[str, Any]) -> Iterator[str]:
    """What a value may be, where the schema limits it; that it may be null as well does not matter here."""
    if isinstance(entries := part.get("anyOf"), list):
        entries = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("type") != "null"]
        part = {**entries[0], **part} if len(entries) == 1 else part
    if isinstance(choices := part.get("enum"), list):
        yield f"(one of: {', '.join(map(spelled, choices))})"
    low, high = part.get("minimum"), part.get("maximum")
    if low is not None and high is not None:
        yield f"({low}–{high})"
    elif low is not None or high is not None:
        yield f"(at least {low})" if high is None else f"(at most {high})"


def _parameters(tool: ToolSpec) -> list[tuple[str, Mapping[str, Any]]]:
    properties = tool.schema.get("properties")
    parts = properties.items() if isinstance(properties, Mapping) else ()
    return [(name, part if isinstance(part, Mapping) else {}) for name, part in parts]


def _required(tool: ToolSpec) -> set[str]:
    return set(tool.schema.get("required") or ())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
