"""What answers a request: the function of a route where it has one of its own, else that of the operation."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from types import ModuleType, NoneType
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path

from ...shared.delegation import Delegation
from ...shared.request import DelegationRequest
from ..access_tokens import RequestNote
from ..auth import require_token
from ..dependencies import Note, Service, join_trace
from ..operation import Operation, types_of
from ..operations import OPERATIONS
from ..operations import Service as Signatures
from ..problems import problem_responses
from ..scopes import Scope

F = TypeVar("F", bound=Callable[..., Any])

WITHHELD = "withheld: the token lacks the scope read"
STATE = ("id", "status", "created_at", "started_at", "finished_at", "attempt", "effective_limits", "paused")
"""The fields of a delegation that disclose neither what it is about nor its outcome."""

Id = Annotated[str, Path(description="The id of the delegation.", examples=["dlg_01k9zxv3q8h4t7m2n5p6r8s9ta"])]
Name = Annotated[
    str, Path(description="The name of the worker, as announced, or of the schedule.", examples=["worker-1@host"])
]
_HANDLES = "_handles"
"""The attribute of a function that has its operation, and the options of its route besides what the row has."""
_DESCRIBED: dict[str, Any] = {"id": Id, "name": Name}
"""What describes a parameter of a path; one that is missing here has its type, and no description."""


def handles(name: str, *, responses: dict[int | str, dict[str, Any]] | None = None, **options: Any) -> Callable[[F], F]:
    """Lets a function answer the requests of an operation; ``responses`` are those besides its refusals."""

    def register(function: F) -> F:
        setattr(function, _HANDLES, (name, {**options, "responses": responses or {}}))
        return function

    return register


def open_router(tag: str) -> APIRouter:
    """Returns a router for probes, which send no token."""
    return APIRouter(tags=[tag], generate_unique_id_function=lambda route: route.name)


def guarded_router(*tags: str) -> APIRouter:
    """Returns a router whose routes require a token."""
    needed = [Depends(require_token), Depends(join_trace)]
    return APIRouter(tags=[*tags], dependencies=needed, generate_unique_id_function=lambda route: route.name)


def router(*modules: ModuleType) -> APIRouter:
    """Returns the routes of all operations: of the functions of the modules, and of operations without one."""
    made = guarded_router()
    functions = [each for module in modules for each in vars(module).values() if hasattr(each, _HANDLES)]
    own: dict[str, Any] = {getattr(each, _HANDLES)[0]: each for each in functions}
    for row in OPERATIONS:
        function = own.get(row.name) or _plain(row)
        options: dict[str, Any] = getattr(function, _HANDLES, (row.name, {}))[1]
        options |= {"responses": {**options.get("responses", {}), **problem_responses(*row.refused)}, "name": row.id}
        made.add_api_route(row.path, function, methods=[row.method], status_code=row.status, tags=[row.tag], **options)
    return made


def _plain(row: Operation) -> Callable[..., Any]:
    """Returns a function that calls the operation with the parameters of the path, and is described as it is."""
    described = getattr(Signatures, row.name)

    async def answer(service: Service, note: Note, **given: Any) -> Any:
        found = await getattr(service, row.name)(**given)
        return shown(found, note) if isinstance(found, Delegation) else found

    kinds = {name: _DESCRIBED.get(name, kind) for name, kind in types_of(described).items()}
    returned = kinds.pop("return")
    if beside := [name for name in kinds if f"{{{name}}}" not in row.path]:
        raise TypeError(f"{row.name} takes {beside} beside its path: add a function with `handles` in routes/ for it")
    kinds = {"service": Service, "note": Note} | kinds
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in kinds.items()]
    made = Signature(parameters, return_annotation=None if returned is NoneType else returned)
    setattr(answer, "__signature__", made)  # noqa: B010 - for the type checker a function has none
    answer.__doc__ = described.__doc__
    return answer


def shown(delegation: Delegation, note: RequestNote) -> Delegation:
    """Returns the delegation, to a caller without the scope ``read`` only with its state; notes its id."""
    note.ids.append(delegation.id)
    if may_read(note):
        return delegation
    public = {name: getattr(delegation, name) for name in STATE}
    return Delegation(**public, request=DelegationRequest(task=WITHHELD))


def may_read(note: RequestNote) -> bool:
    return note.caller is not None and Scope.READ in note.caller.scopes
