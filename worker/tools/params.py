"""Base class of tool parameters, tolerant of common variations by models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from ...shared.errors import ErrorType, ToolError
from ...shared.text import HALF_CHARACTER
from ..schemas.strict_json import loads

_HOME = re.compile(r"(?:~[\w.-]*|\$\{?(?:HOME|PWD)\}?|%USERPROFILE%)(?=/|$)")


OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "path": ("file_path", "filePath", "filename", "target_file", "dir_path", "directory", "target_directory"),
    "content": ("file_text", "contents"),
    "old_string": ("old_str", "oldString", "old_text"),
    "new_string": ("new_str", "newString", "new_text"),
    "replace_all": ("replaceAll",),
    "command": ("cmd",),
    "run_in_background": ("is_background", "background"),
    "bash_id": ("shell_id",),
    "pattern": ("regex", "query"),
    "glob": ("include", "include_pattern", "file_pattern"),
    "ignore_case": ("-i",),
    "context": ("-C",),
    "max_results": ("head_limit",),
    "count": ("max_results", "num_results"),
    "skill_name": ("skill",),
    "name": ("agent_name", "artifact_name"),
    "task": ("prompt",),
    "description": ("content",),
}
"""Parameters, with the names that tools of other agents have for them."""
_WITHOUT_EFFECT: Mapping[str, Sequence[str]] = {
    "command": ("description", "explanation"),
    "task": ("description",),
    "url": ("prompt",),
    "pattern": ("-n",),
    "status": ("activeForm", "id", "priority"),
}
"""What tools of other agents take beside a parameter, and ours need not: notes for people, and what ours do anyway."""


def refuse_home(path: str) -> str:
    """Raises ToolError(PATH_NOT_ALLOWED) for a path with a home variable, which is not expanded here.

    A plain name such as ``~backup.txt`` is allowed.
    """
    found = _HOME.match(path)
    if found is None or (found[0] == path and path[0] == "~" and path != "~"):
        return path
    raise ToolError(
        ErrorType.PATH_NOT_ALLOWED,
        f"Path not allowed: {path!r}: {found[0]} is not expanded here, and commands have another home directory. "
        f"Use a path relative to the workspace; write a file name that starts like this as ./{path}.",
    )


_PATH_CHECK = AfterValidator(refuse_home)
WorkspacePath = Annotated[str, _PATH_CHECK]
"""A path in the workspace, relative to it or as commands see it."""


class Params(BaseModel):
    """The parameters of a tool. Unknown ones are refused with the list of the known ones.

    ``other_names`` are undocumented aliases of its parameters, ``needless`` ones are ignored; null means not given. A
    list may be given as a string with JSON, and a list of strings as its only entry.
    """

    model_config = ConfigDict(extra="forbid")
    other_names: ClassVar[Mapping[str, str]] = {}
    needless: ClassVar[Set[str]] = frozenset()
    workspace_paths: ClassVar[Sequence[str]] = ()
    """The parameters of type ``WorkspacePath``, or a list of it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = cls.model_fields.keys()
        pairs = [(other, name) for name, others in OTHER_NAMES.items() for other in others]
        cls.other_names = {other: name for other, name in pairs if name in fields and other not in fields}
        needless = {other for name, others in _WITHOUT_EFFECT.items() if name in fields for other in others}
        cls.needless = needless - fields - cls.other_names.keys()
        annotations = {name: field.rebuild_annotation() for name, field in cls.model_fields.items()}
        cls.workspace_paths = [name for name, annotation in annotations.items() if _holds_path(annotation)]

    @classmethod
    def paths_of(cls, params: Params) -> tuple[str, ...]:
        """Returns the values of all parameters of type ``WorkspacePath``."""
        values = (getattr(params, name) for name in cls.workspace_paths)
        return tuple(path for value in values for path in ([value] if isinstance(value, str) else value or ()))

    @model_validator(mode="before")
    @classmethod
    def _one_name_each(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        arguments: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None and name not in cls.needless
        }
        for other, name in cls.other_names.items():
            if other not in arguments:
                continue
            value = arguments.pop(other)
            if arguments.setdefault(name, value) != value:
                raise ValueError(f"{name} and {other} are the same parameter but differ; send only {name}")
        for name, value in arguments.items():
            if isinstance(value, str) and HALF_CHARACTER.search(value):
                raise ValueError(
                    f"{name} contains half of a surrogate pair, which is not a character; send the complete one"
                )
            if isinstance(value, str) and name in cls.model_fields:
                arguments[name] = _as_list(value, cls.model_fields[name].annotation)
        return arguments


def _holds_path(annotation: Any) -> bool:
    return annotation == _PATH_CHECK or any(map(_holds_path, get_args(annotation)))


def _as_list(value: str, annotation: Any) -> Any:
    """Converts a string to the expected list: from JSON, or as the only entry of a list of strings."""
    choices = (annotation,) if get_origin(annotation) is list else get_args(annotation)
    entries = [get_args(each) for each in choices if get_origin(each) is list]
    if not entries or str in choices:
        return value
    if value.lstrip().startswith("["):
        with suppress(ValueError):
            return loads(value)
    return [value] if len(entries) == 1 and entries[0][0] in (str, WorkspacePath) else value
