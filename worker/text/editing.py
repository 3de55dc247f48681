"""An edit of a text as a model asks for it: what is refused, and what comes out."""

from __future__ import annotations

from shared.errors import ErrorType, ToolError
from worker.text.not_found import no_such_text
from worker.text.numbered import without_numbers
from worker.text.omission import refuse_placeholder
from worker.text.replacement import Replacement, replace
from worker.text.textfile import TextFile


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
