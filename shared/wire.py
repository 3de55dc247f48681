"""The base of everything that travels: JSON is camelCase, Python is snake_case, both are read (contract §0)."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """A value on the wire. Readers ignore keys they do not know, so that old readers survive new writers."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, mode="json")


class Request(Wire):
    """A value a caller writes. An unknown key is refused, because a typo in a limit must not be silent (P-02)."""

    model_config = ConfigDict(extra="forbid")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[AwareDatetime, PlainSerializer(_iso, return_type=str)]
"""A point in time: ISO 8601, UTC, milliseconds."""


def now() -> datetime:
    return datetime.now(UTC)


def explain(error: ValidationError, model: type[BaseModel]) -> list[dict[str, str]]:
    """What was wrong, one ``{pointer, detail}`` a mistake: an RFC 6901 pointer and a sentence with the closest key."""
    return [
        {"pointer": "".join(f"/{part}" for part in mistake["loc"]), "detail": _detail(mistake, model)}
        for mistake in error.errors(include_url=False, include_context=False)
    ]


def _detail(mistake: Any, model: type[BaseModel]) -> str:
    if mistake["type"] != "extra_forbidden":
        return str(mistake["msg"]).removeprefix("Value error, ")
    key = str(mistake["loc"][-1])
    known = [field.alias or name for name, field in _model_at(model, mistake["loc"][:-1]).model_fields.items()]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"


def _model_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that stands at an error's location; the root model where the path leads into a union's tag."""
    for part in path:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                found = _first_model(field.annotation)
                model = found or model
    return model


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _first_model(part))), None)
