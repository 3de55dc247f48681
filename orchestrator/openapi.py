"""The OpenAPI document: FastAPI's, with the bodies that we parse ourselves, events and problems added."""

from __future__ import annotations

from typing import Annotated, Any, Union, get_args

from pydantic import Field, TypeAdapter, create_model

from orchestrator.problems import Problem
from orchestrator.routes import BODIES
from shared.events import AnyEvent
from shared.wire import Timestamp, Wire


class Head(Wire):
    """What every event carries besides its own fields."""

    delegation_id: str
    seq: int | None = None
    """From 1, without gaps; absent on transient events."""
    at: Timestamp
    attempt: int


def completed(document: dict[str, Any]) -> dict[str, Any]:
    schemas: dict[str, Any] = document["components"]["schemas"]
    for model in (*BODIES, Problem):
        _add(schemas, model.__name__, model)
    _add(schemas, "Event", _events())
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            _without_object_default(field)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _without_object_default(field: dict[str, Any]) -> None:
    """Removes an object as a default value: client generators skip every operation that has one.

    Nothing is lost, because the object's properties have their own defaults.
    """
    if isinstance(field.get("default"), dict):
        del field["default"]


def _add(schemas: dict[str, Any], name: str, type: Any) -> None:
    schema = TypeAdapter(type).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    schemas[name] = schema


def _events() -> Any:
    """Returns the union of all events in their flat wire form: the head's fields and their own."""
    events = get_args(get_args(AnyEvent)[0])
    flat = [create_model(f"{event.__name__}Event", __base__=(event, Head)) for event in events]
    return Annotated[Union[tuple(flat)], Field(discriminator="type")]  # noqa: UP007 - the members are computed
