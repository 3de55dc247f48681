"""The OpenAPI document: FastAPI's document of the routes, completed by schemas, scopes and descriptions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Union, get_args

from pydantic import Field, TypeAdapter, create_model

from ..shared.events import AnyEvent
from ..shared.request import DelegationRequest
from ..shared.wire import Timestamp, Wire
from .operations import ROUTES
from .problems import Problem, list_of_types
from .routes import BODIES
from .short_forms import add_short_forms

EXAMPLES = Path(__file__).with_name("examples.json")
"""Of each operation for its request and its statuses, else by media type; made by ``tests/wire/examples.py``."""

TAGS = {
    "delegations": "Submit tasks, and follow, steer, end, repeat and merge them.",
    "events": "What happens in delegations, as server-sent events or as a list.",
    "files": "Uploads, the files of runs, and how much disk they take.",
    "permissions": "Calls that wait for a person.",
    "webhooks": "Notifications, and whether they have arrived.",
    "triggers": "Signed deliveries of other services, which begin work.",
    "schedules": "What the service begins by itself, and when.",
    "cost": "What delegations cost.",
    "audit": "Changes by callers, and refusals.",
    "fleet": "Workers and their tools.",
    "metrics": "The metrics of the whole fleet, for Prometheus.",
    "health": "Whether the service is alive, and ready.",
}
"""The groups of operations, in the order of a rendered page."""


class EventHead(Wire):
    """What every event carries besides its own fields."""

    delegation_id: str
    """The delegation that it is about."""
    seq: int | None = None
    """From 1, without gaps; absent on transient events."""
    at: Timestamp
    """When it happened."""
    attempt: int
    """The number of the attempt that it belongs to, from 1; 0 before the first one."""


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Returns FastAPI's document, completed."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    for (method, path), scopes in ROUTES.items():
        # The document has parameters without their kinds.
        operation = document["paths"].get(path.replace(":file}", "}"), {}).get(method.lower())
        if operation is not None:
            operation["security"] = [{"token": sorted(scopes)}]
    for model in (*BODIES, Problem):
        _add_schema(schemas, model.__name__, model)
    schemas["Problem"]["properties"]["type"]["description"] += f"\n\n{list_of_types()}"
    # All events in their flat wire form: the head's fields and their own.
    events = get_args(get_args(AnyEvent)[0])
    flat = [create_model(f"{event.__name__}Event", __base__=(event, EventHead)) for event in events]
    _add_schema(schemas, "Event", Annotated[Union[tuple(flat)], Field(discriminator="type")])  # noqa: UP007 - computed
    add_short_forms(schemas[DelegationRequest.__name__])
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if isinstance(field.get("default"), dict):
                # Client generators skip every operation that has one; the object's properties have their own defaults.
                del field["default"]
            if "const" in field:
                field.setdefault("description", f"Always `{field['const']}`: the kind of this object.")
            if "title" in field:  # made from the name: Expectedoutcome
                field["title"] = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").capitalize()
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["servers"] = [{"url": "/"}]
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    _add_examples(document)
    return document


def _add_examples(document: dict[str, Any]) -> None:
    examples: dict[str, Any] = json.loads(EXAMPLES.read_text("utf-8"))
    of_schemas: dict[str, Any] = {}
    """Examples by the schema of their media type, for operations that have none of their own."""
    without: list[tuple[str, dict[str, Any]]] = []
    for operation in (each for operations in document["paths"].values() for each in operations.values()):
        own = examples.get(operation["operationId"], {})
        for name, body in {"request": operation.get("requestBody", {}), **operation["responses"]}.items():
            for media_type, content in body.get("content", {}).items():
                schema = json.dumps(content["schema"])
                if example := examples.get(media_type, own.get(name)):
                    content["example"] = of_schemas[schema] = example
                else:
                    without.append((schema, content))
    for schema, content in without:
        if schema in of_schemas:
            content["example"] = of_schemas[schema]


def _add_schema(schemas: dict[str, Any], name: str, type: Any) -> None:
    schema = TypeAdapter(type).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    schemas[name] = schema
