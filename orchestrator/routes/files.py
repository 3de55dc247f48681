"""The files of a delegation: for what a patch cannot hold."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import StreamingResponse

from ...shared.runs.disk import DiskUsage
from ..dependencies import Service
from ..problems import problem_responses
from ..workspace_files import FileList

router = APIRouter(prefix="/v1", tags=["files"])

Base = Annotated[bool, Query(description="The files as they were when the run began.")]


@router.get("/disk")
async def get_disk_usage(service: Service) -> DiskUsage:
    """Returns what the files of finished delegations take on disk, from the records that exist."""
    return await service.disk()


class _FileConvertor(PathConvertor):
    regex = "(?s:.*)"
    """A name may hold line ends."""


register_url_convertor("file", _FileConvertor())


class FileResponse(StreamingResponse):
    media_type = "application/octet-stream"


@router.get("/delegations/{id}/files", responses=problem_responses(404, 409, 422))
async def list_files(service: Service, id: str, base: Base = False) -> FileList:
    """Lists the files in the workspace, at most 10,000, by path; 409 where this service cannot reach them."""
    return await service.files(id, base=base)


@router.get(
    "/delegations/{id}/files/{path:file}", response_class=FileResponse, responses=problem_responses(404, 409, 422)
)
async def get_file(request: Request, service: Service, id: str, path: str, base: Base = False) -> FileResponse:
    """Returns the bytes of one file, while the run goes on, too; 409 where this service cannot reach it."""
    if "\ufffd" in path and (raw := request.scope.get("raw_path")):  # of a name that is not UTF-8
        path = os.fsdecode(unquote_to_bytes(raw.partition(b"/files/")[2]))
    opened = await service.open_file(id, path, base=base)
    return FileResponse(opened.read(), headers={"Content-Length": str(opened.size)})
