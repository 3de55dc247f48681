"""A new tool, model or route is one file, a rule a function, and one line in a list.

These fail when the line is missing.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from fastapi import APIRouter

from deputize.orchestrator.operations import OPERATIONS
from tests.architecture.sources import ROOT


def listed(package: str, attribute: str) -> list[Any]:
    registry: Mapping[str, Any] | Iterable[Any] = getattr(importlib.import_module(package), attribute)
    return list(registry.values() if isinstance(registry, Mapping) else registry)


def modules(package: str, *without: str) -> list[ModuleType]:
    names = [found.name for found in pkgutil.iter_modules([str(ROOT.joinpath(*package.split(".")[1:]))])]
    return [importlib.import_module(f"{package}.{name}") for name in names if name not in without]


def classes(module: ModuleType) -> list[type]:
    """The concrete public classes that a module defines itself."""
    return [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and not inspect.isabstract(value)
    ]


def home(entry: Any) -> str:
    """The module an entry comes from: a class, a function, an instance, or an import path as text."""
    if isinstance(entry, str):
        return entry.partition(":")[0]
    return entry.__module__ if inspect.isclass(entry) or inspect.isfunction(entry) else type(entry).__module__


def test_every_tool_is_in_the_list() -> None:
    entries = listed("deputize.worker.tools.builtin", "BUILTIN")
    from deputize.worker.tools.base import Tool
    from deputize.worker.tools.submit_result import SubmitResult  # offered only to runs with a schema, which it has

    tools = [
        found
        for module in modules("deputize.worker.tools", "base")
        for found in classes(module)
        if issubclass(found, Tool)
    ]
    offered = {entry if inspect.isclass(entry) else type(entry) for entry in entries}
    assert tools
    assert [tool.__name__ for tool in tools if tool not in offered] == [SubmitResult.__name__]


def test_every_model_is_in_the_list() -> None:
    homes = {home(entry) for entry in listed("deputize.worker.models", "MODELS")}
    models = {
        module.__name__
        for module in modules("deputize.worker.models", "base")
        if any(hasattr(found, "reply") for found in classes(module))
    }
    assert models
    assert models - homes == set()


def test_every_rule_is_in_the_list() -> None:
    rules = importlib.import_module("deputize.worker.policy.builtin_rules")
    public = [
        value
        for key, value in vars(rules).items()
        if inspect.isfunction(value) and value.__module__ == rules.__name__ and not key.startswith("_")
    ]
    assert public
    assert [rule.__name__ for rule in public if rule not in listed("deputize.worker.policy", "RULES")] == []


def test_every_router_is_in_the_list_and_every_function_of_a_route_is_that_of_a_row() -> None:
    entries = listed("deputize.orchestrator.routes", "ROUTERS")
    found = [each for module in modules("deputize.orchestrator.routes") for each in vars(module).values()]
    routers = [each for each in found if isinstance(each, APIRouter)]
    assert routers
    assert [each.tags for each in routers if not any(entry is each for entry in entries)] == []
    handled = {each: each._handles[0] for each in found if hasattr(each, "_handles")}
    assert len(handled) == len({*handled.values()}) > 10
    assert {*handled.values()} - {row.name for row in OPERATIONS} == set()
    used = {route.endpoint for router in entries for route in router.routes}
    assert {*handled} - used == set()
