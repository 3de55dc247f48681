"""Base classes of all wire models: JSON is camelCase, Python is snake_case, both are accepted."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, TypeGuard, Union, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticSerializationError, to_json

from .text import did_you_mean, shortened

MAX_MISTAKES = 20
MAX_EXAMINED = 2000
"""A document with more mistakes is probably the wrong document."""
LONGEST_COMPARED = 64
"""Characters of a name that is compared with the known ones."""
_NEAR = 0.6
"""How alike a key and a known one have to be: a wrong suggestion is worse than none."""
HALF = "there is half of a character, a lone surrogate, which cannot be sent; write the whole character, or remove it"
LONGEST_SHOWN = 200
"""Characters of a wrong name that are shown."""


def _camel(name: str) -> str:
    """Returns ``inputTokens`` for ``input_tokens``; a number's unit stays small: ``cacheWrite1hTokens``."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


class Wire(BaseModel):
    """A value on the wire. Readers ignore unknown keys, for forward compatibility."""

    model_config = ConfigDict(alias_generator=_camel, populate_by_name=True, frozen=True, extra="ignore")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Adds the docstrings of the fields. ``use_attribute_docstrings`` parses every module while it is imported."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        names = {name: field.alias or name for name, field in cls.model_fields.items()}
        for name, description in field_docstrings(cls).items():
            if (name_there := names.get(name)) in properties:
                properties[name_there].setdefault("description", description)
        return made

    def __str__(self) -> str:
        return repr(self)

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, mode="json")


class Request(Wire):
    """A value that a caller writes. Unknown keys are refused, because a typo in a limit must not be silent.

    Null for what has no null is the field left out. An object or a list may be JSON in a string: models write it so.
    """

    # Without a bound pydantic takes a text as it is; with any it refuses what UTF-8 cannot encode.
    model_config = ConfigDict(extra="forbid", str_min_length=0)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: Any) -> Any:
        return meant(cls, cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else given


def meant(model: type[Request], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields in the forms that the model has. What cannot be read stays, for the model to refuse it."""
    without_null, structured, numbers = _forms(model)
    read = {key: _structure(value) if key in structured else value for key, value in given.items()}
    read |= {key: [value] for key, value in read.items() if key in numbers and isinstance(value, bool)}  # not 1 or 0
    return {key: value for key, value in read.items() if value is not None or key not in without_null}


@cache
def _forms(model: type[BaseModel]) -> tuple[set[str], set[str], set[str]]:
    """Returns, by all names: optional fields that know no null, those that are objects or lists, and numbers."""
    without_null, structured, numbers = set[str](), set[str](), set[str]()
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else [field.annotation]
        kinds = [get_origin(kind) or kind for kind in map(_bare, kinds)]
        names = {name, field.alias or name}
        if not field.is_required() and NoneType not in kinds:
            without_null |= names
        if all(isinstance(kind, type) and issubclass(kind, BaseModel | dict | list | NoneType) for kind in kinds):
            structured |= names
        if kinds[0] in (int, float):
            numbers |= names
    return without_null, structured, numbers


def _structure(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value, object_pairs_hook=unique_keys)
    return value


@cache
def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the docstrings below the fields of a model and its bases, by the fields' names."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        with suppress(OSError, TypeError):  # it was made without source
            if issubclass(base, BaseModel) and base not in (BaseModel, Wire):
                found |= _attribute_docstrings(getsource(base))
    return found


def _attribute_docstrings(source: str) -> dict[str, str]:
    from . import syntax_tree  # only what prints a schema needs it

    definition = syntax_tree.parse(dedent(source)).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        attribute.target.id: cleandoc(after.value.value)
        for attribute, after in pairwise(definition.body)
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    }


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[
    AwareDatetime,
    PlainSerializer(_iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
"""A point in time: ISO 8601, UTC, milliseconds."""


def now() -> datetime:
    return datetime.now(UTC)


def sendable(value: Any) -> Any:
    """Returns a value that can be written as JSON. Raises ValueError with a sentence for any other."""
    try:
        to_json(value)
    except PydanticSerializationError as error:
        raise ValueError(HALF if "surrogates not" in str(error) else f"it cannot be written as JSON: {error}") from None
    return value


Data = Annotated[Any, AfterValidator(sendable)]
"""Any value that can be written as JSON."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON, as ``object_pairs_hook``. Raises ValueError where two values have the same key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {shortened(twice, LONGEST_SHOWN)!r} is there twice; the values of one would be lost")
    return found


def explain(error: ValidationError, model: type[BaseModel], *, python: bool = False) -> list[dict[str, str]]:
    """Returns one ``{pointer, detail}`` per mistake: an RFC 6901 pointer and a sentence with the closest key.

    ``python``: the keys were keyword arguments, so those that are suggested have Python's spelling. At most
    MAX_MISTAKES, because each costs time.
    """
    if (count := error.error_count()) > MAX_EXAMINED:
        return [{"pointer": "", "detail": f"{count:,} mistakes, too many to name; is this the right document?"}]
    mistakes = error.errors(include_url=False, include_input=False)
    return [_explained(mistake, model, python) for mistake in mistakes[:MAX_MISTAKES]]


def _explained(mistake: Any, model: type[BaseModel], python: bool) -> dict[str, str]:
    pointer = ""
    at: Any = model
    *path, last = mistake["loc"] or ("",)
    for part in path:
        at, shown = _step(at, part)
        pointer += shown
    detail = HALF if mistake["type"] == "string_unicode" else str(mistake["msg"]).removeprefix("Value error, ")
    if mistake["type"] == "extra_forbidden":
        detail = _unknown_key(str(last), at, python)
    if mistake["type"] == "union_tag_invalid":
        given, expected = mistake["ctx"]["tag"], mistake["ctx"]["expected_tags"]
        near = did_you_mean(given[:LONGEST_COMPARED], ast.literal_eval(f"({expected},)"), 1, show=repr)
        detail = "; ".join(filter(None, (detail, near)))
    tag_at_end = mistake["type"] not in ("extra_forbidden", "missing") and _step(at, last)[1] == ""
    return {"pointer": pointer if tag_at_end else pointer + _escaped(last), "detail": detail}


def _unknown_key(key: str, at: Any, python: bool) -> str:
    fields = at.model_fields.items() if _is_model(at) else ()
    in_python = python or "_" in key
    known = [name if in_python else field.alias or name for name, field in fields]  # as the caller writes
    places: dict[str, str] = {}
    for name, path in _nested(at, in_python) if _is_model(at) else ():
        if (known_at := places.get(name, repr(path))) != repr(path) and repr(path) not in known_at.split(" or "):
            known_at += f" or {path!r}"
        places[name] = known_at
    places |= {name: repr(name) for name in known}
    # Comparing is quadratic in the length, and a text of that length is not a misspelt key.
    near = did_you_mean(key, places, 1, cutoff=_NEAR, show=places.__getitem__) if len(key) <= LONGEST_COMPARED else ""
    hint = near or f"known keys: {', '.join(known)}"
    return f"unknown key {shortened(key, LONGEST_SHOWN)!r}; {hint}"


def _nested(model: type[BaseModel], in_python: bool, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the fields of the objects inside a model: their names, and their paths, as `limits.maxTurns`."""
    for name, field in model.model_fields.items():
        shown = name if in_python else field.alias or name
        if path:
            yield shown, path + shown
        for member in _members(field.annotation) if get_origin(field.annotation) is not list else ():
            yield from _nested(member, in_python, f"{path}{shown}.")


def _step(at: Any, part: int | str) -> tuple[Any, str]:
    """Takes one step along an error's location. Returns the new location and the addition to the pointer.

    A union's tag is a step of pydantic's, not of the document: it chooses a member and adds nothing.
    """
    if _is_model(at):
        for name, field in at.model_fields.items():
            if part in (name, field.alias):
                kinds = get_args(field.annotation)  # of a field that may be null, its model
                return kinds[0] if len(kinds) == 2 and kinds[1] is NoneType else field.annotation, _escaped(part)
        return None, _escaped(part)
    if get_origin(at) is dict:
        return _bare(get_args(at)[1]), _escaped(part)
    if isinstance(part, int):
        return _bare(next(iter(get_args(at)), None)), _escaped(part)
    fields = ((member, field) for member in _members(at) for field in member.model_fields.values())
    chosen = next((member for member, field in fields if part in get_args(field.annotation)), None)
    return chosen, "" if chosen else _escaped(part)


def _bare(annotation: Any) -> Any:
    """Returns an annotation without what validates it besides its type."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _members(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the models inside an annotation, such as a union's members."""
    if _is_model(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _members(part)


def _is_model(thing: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _escaped(part: int | str) -> str:
    return "/" + shortened(str(part), LONGEST_SHOWN).replace("~", "~0").replace("/", "~1") if part != "" else ""
