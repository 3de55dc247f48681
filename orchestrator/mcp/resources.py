"""The resources: a delegation with its whole result, its patch, and the artifacts that it produced."""

from __future__ import annotations

import re
from urllib.parse import unquote

import mcp_types as types

from ...shared.errors import Invalid, NotFound
from ..service import Service
from .arguments import ID
from .call import Source
from .outcome import SCHEME

JSON, DIFF, TEXT = "application/json", "text/x-diff", "text/plain"
LISTED = 50
URI = re.compile(re.escape(SCHEME) + rf"(?P<id>{ID.pattern})(?P<rest>/patch|/artifacts/(?P<name>[^/?#]+))?")


def templates() -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                name="delegation",
                uri_template=SCHEME + "{id}",
                description="A delegation: its request, how far it is, and its whole result.",
                mime_type=JSON,
            ),
            types.ResourceTemplate(
                name="patch",
                uri_template=SCHEME + "{id}/patch",
                description="What it changed in its copy of the workspace, as a unified diff for `git apply`.",
                mime_type=DIFF,
            ),
            types.ResourceTemplate(
                name="artifact",
                uri_template=SCHEME + "{id}/artifacts/{name}",
                description="A text that it produced for its caller.",
                mime_type=TEXT,
            ),
        ]
    )


async def newest(operations: Service | None, cursor: str | None) -> types.ListResourcesResult:
    """Returns a page of delegations; none while the service is not in use, because listing must not start it.

    Raises Invalid, Unavailable.
    """
    if operations is None:
        return types.ListResourcesResult(resources=[])
    if cursor is not None and not ID.fullmatch(cursor):
        raise Invalid("the cursor is not the nextCursor of a page")
    page = await operations.list(limit=LISTED, cursor=cursor)
    return types.ListResourcesResult(
        resources=[
            types.Resource(name=each.id, title=each.request.title, uri=SCHEME + each.id, mime_type=JSON)
            for each in page.items
        ],
        next_cursor=page.next_cursor,
    )


async def read(source: Source, uri: str) -> types.ReadResourceResult:
    """Returns a resource. Raises NotFound, Unavailable."""
    found = URI.fullmatch(uri)
    if found is None:
        raise NotFound(f"there is no resource {uri[:200]!r}; they are {SCHEME}ID, …/patch and …/artifacts/NAME")
    operations = await source.for_reading()
    kind, text = await _content(operations, found)
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])


async def _content(operations: Service, found: re.Match[str]) -> tuple[str, str]:
    if found["name"]:
        return TEXT, await operations.artifact(found["id"], unquote(found["name"]))
    if found["rest"]:
        return DIFF, await operations.patch(found["id"])
    return JSON, (await operations.get(found["id"])).to_json()
