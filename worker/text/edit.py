"""Edits that a model requests: applied, or refused with an error that states how to correct it.

Placeholders such as ``// ... rest of code ...`` are refused: they would replace the code that they stand for.
"""

from __future__ import annotations

import re
from functools import cache

from rapidfuzz import fuzz, process

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from .encodings import NUL_SHOWN
from .replacement import Replacement, find_lines, replace
from .textfile import TextFile, number_lines, strip_line_numbers

_ELLIPSIS = r"(?:\.{3,}|…)"
_NOUN = (
    r"(?:code|files?|functions?|methods?|class(?:es)?|implementation|contents?|logic|body|lines?|imports?|modules?"
    r"|script|sections?|block|component|text|document|markup|styles?|tests?|fields?|properties|cases|definitions?)"
)
_SAME = r"(?:unchanged|omitted|the\s+same|as\s+(?:is|before)|not\s+shown|goes\s+here|here)"
_UNCHANGED = rf"(?:(?:is|are|remains?|stays?|left|kept)\s+)*{_SAME}(?:\s+for\s+brevity)?"
_REST = rf"(?:the\s+)?(?:rest|remainder)\s+of\s+(?:(?:the|this|your|my)\s+)?(?:\w+\s+)?{_NOUN}(?:\s+{_UNCHANGED})?"
_OTHERS = rf"(?:the\s+)?(?:existing|remaining|previous|original|unchanged|same|other)\s+(?:\w+\s+)?{_NOUN}"
_EXPLICIT = rf"(?:{_REST}|(?:existing|remaining|unchanged)\s+code|{_OTHERS}\s+{_UNCHANGED}|{_NOUN}\s+{_UNCHANGED})"
"""The wording of a placeholder without an ellipsis."""
_FEW = r"(?:rest|unchanged|omitted|same\s+as\s+(?:before|above)|no\s+changes?|(?:existing|remaining)\s+\w+)"
_HINT = rf"(?:keep\s+)?(?:{_REST}|{_OTHERS}|{_FEW})(?:\s+{_UNCHANGED})?"
"""The wording of a placeholder with an ellipsis."""
_DOTTED = rf"(?:{_ELLIPSIS}\s*[(\[]?(?:{_HINT}|{_NOUN})[)\]]?\s*{_ELLIPSIS}?|{_HINT}\s*{_ELLIPSIS})"
_IN_BRACKETS = rf"[(\[<]\s*(?:{_DOTTED}|{_EXPLICIT}|(?:rest\s+)?unchanged|rest\s+omitted)\s*[)\]>]"
_OPEN = r"(?:/{2,}|\#+|\{?/\*+|<!--|--+|;+|%+|\*)"
_CLOSE = r"(?:\*+/\}?|-->)?[\s})\];,.]*"
_PLACEHOLDER = rf"""
    \s*{_OPEN}\s*(?:{_DOTTED}|{_EXPLICIT}|{_IN_BRACKETS})\s*{_CLOSE}       # a line with nothing but the comment
    | .*[\s{{(\[,]{_OPEN}\s*{_ELLIPSIS}\s*(?:{_REST}|{_OTHERS})\b[^"']{{0,40}}  # a comment after code
    | \s*(?:{_ELLIPSIS}\s*(?:{_REST}|{_OTHERS})(?:\s+{_UNCHANGED})?\s*{_ELLIPSIS}?|{_IN_BRACKETS})\s*  # no comment sign
    """
_MAX_CHARS = 200
"""Longer lines are not searched for placeholders."""
_LINES_SEARCHED = 20_000
_LINES_COMPARED = 50
_LINES_SHOWN = 12
_LINE_CHARS = 300
_SIMILAR = 60.0
"""The least similarity, of 100, of a line that is shown as one of the closest."""


@cache
def _placeholder() -> re.Pattern[str]:
    """Compiled when it is first needed, because a worker's start would wait for it."""
    return re.compile(_PLACEHOLDER, re.IGNORECASE | re.VERBOSE)


def find_placeholder(text: str, *known: str) -> str | None:
    """Returns the first line that is a placeholder and occurs in none of the known texts, or None."""
    for line in text.splitlines():
        remark = line.strip()
        if len(line) <= _MAX_CHARS and _placeholder().fullmatch(line) and not any(remark in each for each in known):
            return remark
    return None


def refuse_placeholder(name: str, text: str, *known: str) -> None:
    """Raises ToolError(INVALID_TOOL_PARAMS) for a parameter, of this name, whose text contains a placeholder.

    A line that one of the ``known`` texts contains, the file's and the text to replace, is none.
    """
    if found := find_placeholder(text, *known):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{name} has a placeholder: {clip(found, 100)!r}. It would be written to the file instead of the lines "
            "that it stands for. Write these lines out, or change less at once: unchanged lines can be left out. "
            "Nothing was changed.",
        )


def not_found_error(file: TextFile, path: str, old: str, new: str) -> ToolError:
    """Returns the error for a text that is not in the file, with its probable cause or the closest lines."""
    reason = _diagnosis(file, old)
    if reason is None:
        reason = "Check whitespace, indentation and line ends, or read the file again: it may have changed."
        if len(new.strip()) > 2 and new not in old and (lines := find_lines(file, new)):
            reason = f"new_string is already in the file (line {lines[0]}): perhaps this edit was made before."
        if path.endswith(".ipynb"):
            reason += " In a notebook each line of a cell is a JSON string: copy the lines as read_file shows them."
        reason += _closest_lines(file, old)
    return ToolError(ErrorType.EDIT_NOT_FOUND, f"Text not found in {path}: {clip(repr(old), 200)}. {reason}")


def _diagnosis(file: TextFile, old: str) -> str | None:
    if (bare := strip_line_numbers(old)) and find_lines(file, bare):
        return (
            "It begins every line with a line number, as read_file prints them. They are not part of the file: "
            "send old_string and new_string without them."
        )
    plain = old
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'")):
        plain = plain.replace(written, meant)
    if plain != old and find_lines(file, plain):
        return r"It is escaped twice: send line ends, tabs and quotes themselves, not as \n, \t and \"."
    if found := find_placeholder(old, file.text):
        return f"It has a placeholder, {clip(found, 100)!r}: send the lines that it stands for, or leave it out."
    if "\ufffd" in old and file.readable != file.text:
        return "\ufffd stands for bytes of the file that are not valid UTF-8: leave them out of old_string."
    return None


def _closest_lines(file: TextFile, old: str) -> str:
    """Returns the lines most similar to the old text, numbered; the candidates are found by its longest line."""
    lines = [line[:_LINE_CHARS] for line in file.readable.split("\n")[:_LINES_SEARCHED]]
    wanted = [line[:_LINE_CHARS] for line in old.replace("\r\n", "\n").strip("\n").split("\n")[:_LINES_COMPARED]]
    anchor = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    if not wanted[anchor].strip():
        return ""
    found = process.extract(wanted[anchor], lines, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    if not found:
        return ""
    text = "\n".join(wanted)
    starts = [max(0, at - anchor) for _, _, at in found]
    start = max(starts, key=lambda at: fuzz.ratio("\n".join(lines[at : at + len(wanted)]), text))
    stretch = lines[start : start + min(len(wanted), _LINES_SHOWN)]
    return f"\nThe closest lines are:\n{number_lines((line.removesuffix(chr(13)) for line in stretch), start + 1)}"


def refuse_empty(old: str, new: str, instead: str) -> None:
    """Raises ToolError for an edit with an empty old text, or with equal texts.

    ``instead`` are the tools that write a whole text, for the message.
    """
    if not old:
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"old_string is empty, so there is nothing to replace. Pass the text to replace, or use {instead}.",
        )
    if old == new:
        raise no_change_error("old_string and new_string are the same")


def apply_edit(file: TextFile, name: str, old: str, new: str, *, every: bool) -> Replacement:
    """Replaces ``old``, or ``every`` occurrence of it, by ``new`` in the file's text; ``name`` is for messages.

    Raises:
        ToolError: EDIT_NOT_FOUND, EDIT_AMBIGUOUS, EDIT_NO_CHANGE, or INVALID_TOOL_PARAMS for a text with a
            placeholder or with line numbers.
    """
    if NUL_SHOWN in old and "\0" in file.text and NUL_SHOWN not in file.text:  # the lines as they were shown
        old, new = old.replace(NUL_SHOWN, "\0"), new.replace(NUL_SHOWN, "\0")
    done = replace(file, old, new, every=every)
    if done is None:
        raise not_found_error(file, name, old, new)
    if new.count("\n") and strip_line_numbers(new, only_ours=True) and not strip_line_numbers(old):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            "new_string begins every line with a line number as read_file prints them. They are not part of the "
            "file: leave them out. Nothing was changed.",
        )
    refuse_placeholder("new_string", new, old, file.text)
    if done.text == file.text:
        raise no_change_error("the file already contains new_string, except for the differences that were ignored")
    return done


def no_change_error(why: str) -> ToolError:
    """Returns the error for an edit that would change nothing."""
    return ToolError(ErrorType.EDIT_NO_CHANGE, f"Nothing to change: {why}.")
