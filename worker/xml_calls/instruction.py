"""Formats calls and results as XML, and generates the instruction that teaches a model the form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any
from xml.sax.saxutils import quoteattr

from ..models.base import ToolSpec

FORM = """\
<tool_call>
<name>tool_name</name>
<params>
<parameter_name><![CDATA[value]]></parameter_name>
</params>
</tool_call>"""
"""The form of a call, for instructions and error messages."""

JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    NoneType: "null",
}
_COMBINATIONS = ("anyOf", "oneOf", "allOf")
_MAX_REFERENCES = 8
_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_INTRODUCTION = f"""\
# Calling tools

To call a tool, write the call into your answer, as XML in exactly this form:

{FORM}

The next message holds the results, as <tool_result>…</tool_result>, one for each call, in the order of the calls.

# Tools"""
_NOTES = """\
# Notes

- Put every value between <![CDATA[ and ]]>. It is taken verbatim: escape nothing, and mind that blanks and line \
breaks are part of it.
- Where a value itself contains ]]>, write ]]]]><![CDATA[> instead.
- A boolean is true or false, a number is plain digits, an array or an object is JSON.
- Leave out optional parameters whose default is right.
- You may write several calls one after another; they are executed in that order. After the last one stop and wait for \
the results. Never write a <tool_result> yourself.
- Close each call with </tool_call>. An incomplete call is not executed.
- Write calls neither in code fences nor in backticks. To mention the form without calling, put it in backticks.
- An answer without a call ends your work."""


def cdata(text: str) -> str:
    """Returns the text in CDATA; each ``]]>`` in it is split over two sections."""
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def format_value(value: Any) -> str:
    """Returns the text of a value: strings verbatim, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def format_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the call as XML; parsing it returns the same name and values."""
    values = ""
    for key, value in arguments.items():
        opening, closing = (key, key) if _TAG.fullmatch(key) else (f"param name={quoteattr(key)}", "param")
        values += f"<{opening}>{cdata(format_value(value))}</{closing}>\n"
    return f"<tool_call>\n<name>{name}</name>\n<params>\n{values}</params>\n</tool_call>"


def format_tool_result(name: str, result: str, *, success: bool = True, warnings: Sequence[str] = ()) -> str:
    """Returns the result of a call as XML; characters that XML forbids stay in it, because only the model reads it."""
    elements = "".join(f"<warning>{cdata(warning)}</warning>\n" for warning in warnings)
    state = "true" if success else "false"
    return (
        f"<tool_result>\n<name>{name}</name>\n<success>{state}</success>\n{elements}"
        f"<result>{cdata(result)}</result>\n</tool_result>"
    )


def generate_tool_instruction(tools: Sequence[ToolSpec]) -> str:
    """Returns the instruction for these tools: form, parameters, examples and notes; "" for no tools."""
    if not tools:
        return ""
    return "\n\n".join([_INTRODUCTION, *map(_describe_tool, tools), _NOTES])


def example_call(tool: ToolSpec) -> str:
    """Returns a call with the required parameters as ``your_NAME_here``, and the others that have a default with it."""
    values = {
        name: f"your_{name}_here" if required else part["default"]
        for name, part, required in _parameters(tool)
        if required or part.get("default") is not None
    }
    return format_tool_call(tool.name, values)


def _describe_tool(tool: ToolSpec) -> str:
    lines = [f"### {tool.name}", f"Description: {tool.description}", "Parameters:"]
    for parameter in _parameters(tool):
        lines += _describe_parameter(tool, *parameter)
    if len(lines) == 3:
        lines[-1] = "Parameters: none"
    if definitions := tool.schema.get("$defs"):
        lines.append(f"Definitions: {_json(definitions)}")
    return "\n".join([*lines, "Example:", example_call(tool)])


def _parameters(tool: ToolSpec) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yields the name and the schema of each parameter, and whether it is required."""
    for name, part in (tool.schema.get("properties") or {}).items():
        yield name, part if isinstance(part, Mapping) else {}, name in (tool.schema.get("required") or ())


def _describe_parameter(tool: ToolSpec, name: str, part: Mapping[str, Any], required: bool) -> Iterator[str]:
    types = sorted(declared_types(tool.schema, name) - {"null"})
    need = "required" if required else "optional"
    description = " ".join([*str(part.get("description", "")).split(), *_constraints(part)])
    yield f"  - {name}: {' or '.join(types) or 'any'} ({need})" + (f" - {description}" if description else "")
    if not required and part.get("default") is not None:
        yield f"    Default: {format_value(part['default']) or '(empty)'}"
    if {"array", "object"} & set(types):
        schema = {key: value for key, value in part.items() if key not in ("default", "description")}
        yield f"    Schema: {_json(schema)}"


def _constraints(part: Mapping[str, Any]) -> Iterator[str]:
    """Yields the choices and the range of a value; null as an alternative is ignored."""
    if isinstance(entries := part.get("anyOf"), list):
        entries = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("type") != "null"]
        part = {**entries[0], **part} if len(entries) == 1 else part
    if isinstance(choices := part.get("enum"), list):
        yield f"(one of: {', '.join(map(format_value, choices))})"
    low, high = part.get("minimum"), part.get("maximum")
    if low is not None and high is not None:
        yield f"({low}–{high})"
    elif low is not None or high is not None:
        yield f"(at least {low})" if high is None else f"(at most {high})"


def declared_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """Returns the JSON types a schema allows for a parameter; empty where it declares none."""
    return frozenset(_types((schema.get("properties") or {}).get(name), schema, _MAX_REFERENCES))


def _types(part: Any, root: Mapping[str, Any], references: int) -> set[str]:
    if not isinstance(part, Mapping) or not references:
        return set()
    found: set[str] = set()
    if isinstance(reference := part.get("$ref"), str):
        target: Any = root  # of #/$defs/Name
        for key in reference.removeprefix("#/").split("/"):
            target = target.get(key) if isinstance(target, Mapping) else None
        found |= _types(target, root, references - 1)
    type_ = part.get("type")
    found |= {name for name in (type_ if isinstance(type_, list) else [type_]) if isinstance(name, str)}
    for key in _COMBINATIONS:
        for entry in part.get(key) or ():
            found |= _types(entry, root, references - 1)
    if not found:
        examples = [part["const"]] if "const" in part else part.get("enum") or ()
        found = {JSON_TYPES.get(type(example), "null") for example in examples}
    return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
