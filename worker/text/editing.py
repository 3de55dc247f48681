"""An edit as the model asks for it: made, or refused with what it needs to try again.

Placeholders are refused: ``// ... rest of code ...`` would put a remark in the place of the code it stands for.
"""

from __future__ import annotations

import re

from rapidfuzz import fuzz, process

from shared.errors import ErrorType, ToolError
from shared.text import clip
from worker.text.replacement import Replacement, find, replace
from worker.text.textfile import TextFile, numbered, without_numbers

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
_LINES_SEARCHED = 20_000
_LINES_COMPARED = 50
_LINES_SHOWN = 12
_LINE_CHARS = 300
_SIMILAR = 60.0
"""Of 100; below it two texts have little in common."""


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


def no_such_text(file: TextFile, path: str, old: str, new: str) -> ToolError:
    reason = _known_mistake(file, old) or _advice(file, old, new) + _closest(file, old)
    return ToolError(ErrorType.EDIT_NOT_FOUND, f"Text not found in {path}: {clip(repr(old), 200)}. {reason}")


def _known_mistake(file: TextFile, old: str) -> str | None:
    if (bare := without_numbers(old)) and find(file, bare):
        return (
            "It begins every line with a line number, as read_file prints them. They are not part of the file: "
            "send old_string and new_string without them."
        )
    if (plain := _unescaped(old)) != old and find(file, plain):
        return r"It is escaped twice: send line ends, tabs and quotes themselves, not as \n, \t and \"."
    if found := placeholder(old, file.text):
        return f"It has a placeholder, {clip(found, 100)!r}: send the lines that it stands for, or leave them out."
    if "\ufffd" in old and file.readable != file.text:
        return "\ufffd stands for bytes of the file that are not valid UTF-8: leave them out of old_string."
    return None


def _unescaped(text: str) -> str:
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'")):
        text = text.replace(written, meant)
    return text


def _advice(file: TextFile, old: str, new: str) -> str:
    if len(new.strip()) > 2 and new not in old and (places := find(file, new)):
        return f"new_string is there already (line {places[0]}): perhaps this edit was made before."
    return "Check blanks, indentation and line ends, or read the file again: it may have changed."


def _closest(file: TextFile, old: str) -> str:
    """The stretch of the file most like the old text, with its line numbers; found by its longest line."""
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
    return f"\nThe closest lines are:\n{numbered((line.removesuffix(chr(13)) for line in stretch), start + 1)}"


def refuse_empty(old: str, new: str, instead: str) -> None:
    """Raises ToolError where there is nothing to replace; ``instead`` says which tools write a whole text."""
    if not old:
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"old_string is empty, so there is no place to change. Give the text to replace, or use {instead}.",
        )
    if old == new:
        raise no_change("old_string and new_string are the same")


def edited(file: TextFile, name: str, old: str, new: str, *, every: bool) -> Replacement:
    """The text with ``new`` for ``old``. Raises ToolError for everything that stands against it."""
    done = replace(file, old, new, every=every)
    if done is None:
        raise no_such_text(file, name, old, new)
    _refuse_numbers(old, new)
    refuse_placeholder("new_string", new, old, file.text)
    if done.text == file.text:
        raise no_change("the file already reads so, apart from what had to be overlooked to find old_string")
    return done


def no_change(why: str) -> ToolError:
    return ToolError(ErrorType.EDIT_NO_CHANGE, f"Nothing to change: {why}.")


def _refuse_numbers(old: str, new: str) -> None:
    """A new text in which every line of several is numbered was copied from a read without taking the numbers off."""
    if new.count("\n") and without_numbers(new, only_ours=True) and not without_numbers(old):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            "new_string begins every line with a line number as read_file prints them. They are not part of the "
            "file: leave them out. Nothing was changed.",
        )
