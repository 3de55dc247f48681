"""Whether a file is valid in the format that its name states: JSON, notebooks, TOML and YAML."""

from __future__ import annotations

import json
import tomllib

_MOST = 256 * 1024
"""Characters up to which a text is parsed, because YAML takes a second for so many."""
_MAX_BRACKETS = 500
"""Brackets in YAML up to which it is parsed: the time grows with the square of their depth."""


def format_remark(path: str, before: str | None, after: str) -> str:
    """Returns a sentence if the text is not valid any more, or if a new one is not; "" otherwise.

    A file that was not valid before may have comments, or be a template.
    """
    name = path.rpartition("/")[2].lower()
    kind = _KINDS.get(name.rpartition(".")[2]) if "." in name else None
    if kind is None or len(after) > _MOST or not after.strip():
        return ""
    problem = _problem(kind, after)
    if not problem or (before is None and ("//" in after or "/*" in after or "{{" in after or "{%" in after)):
        return ""
    if before is not None and before.strip() and _problem(kind, before):
        return ""
    any_more = "" if before is None else " any more"
    cell = ' In a notebook each line of a cell is a JSON string: escape " as \\".' if name.endswith(".ipynb") else ""
    return f" Note: the file is not valid {kind}{any_more}: {problem}.{cell}"


_KINDS = {
    **dict.fromkeys(("json", "ipynb", "geojson", "webmanifest"), "JSON"),
    "jsonl": "JSON Lines",
    "toml": "TOML",
    **dict.fromkeys(("yaml", "yml"), "YAML"),
}


def _problem(kind: str, text: str) -> str:
    """Returns why the text is not valid, "" if it is."""
    text = text.removeprefix("\ufeff")
    try:
        match kind:
            case "JSON":
                json.loads(text)
            case "JSON Lines":
                for line in filter(str.strip, text.splitlines()):
                    json.loads(line)
            case "TOML":
                tomllib.loads(text)
            case _:
                return _yaml_problem(text)
    except RecursionError:
        return ""  # it is too deep to be judged
    except ValueError as error:
        return str(error).removesuffix(".")
    return ""


def _yaml_problem(text: str) -> str:
    if text.count("[") + text.count("{") > _MAX_BRACKETS:
        return ""
    import yaml  # few files need it

    try:
        for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        return f"{error.problem}{where}"
    except yaml.YAMLError as error:
        return str(error)
    return ""
