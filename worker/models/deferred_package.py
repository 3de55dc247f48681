"""Imports a package without running its ``__init__``: its names are imported when they are first used.

The SDK's ``__init__`` imports the types of every endpoint, 3,000 modules, of which a worker needs a third.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any


def defer_package(name: str, *trees: str) -> None:
    """Defers the ``__init__`` of that package, and of the packages in ``trees`` below it.

    A package that was imported before stays as it is.
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, trees))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, trees: Sequence[str]) -> None:
        self._name = name
        self._trees = trees

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name and not any(f"{fullname}.".startswith(f"{tree}.") for tree in self._trees):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        is_package = spec is not None and spec.submodule_search_locations is not None
        if spec and is_package and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs the ``__init__`` only for a name that it does not import from elsewhere."""

    def __init__(self, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._lock = RLock()
        self._began = False

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, str]]:
        """Name: the module that ``__init__`` imports it from, and its name there."""
        imports = (each for each in ast.parse(self.get_data(self.path)).body if isinstance(each, ast.ImportFrom))
        return {
            alias.asname or alias.name: ("." * each.level + each.module, alias.name)
            for each in imports
            if each.module  # else it is a submodule
            for alias in each.names
        }

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _DeferredPackage

    def complete(self, package: ModuleType) -> None:
        """Runs the ``__init__``, once."""
        with self._lock:
            if not self._began:
                self._began = True
                super().exec_module(package)


class _DeferredPackage(ModuleType):
    def __getattr__(self, name: str) -> Any:
        assert self.__spec__
        assert isinstance(self.__spec__.loader, _Loader)
        loader, submodule = self.__spec__.loader, f"{self.__name__}.{name}"
        if name in loader.sources:
            module, original = loader.sources[name]
            value = getattr(import_module(module, self.__name__), original)
            setattr(self, name, value)
            return value
        is_special = name.startswith("__") and name != "__all__"
        if not is_special and find_spec(submodule):
            return import_module(submodule)
        if not is_special:
            loader.complete(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        assert self.__spec__
        assert isinstance(self.__spec__.loader, _Loader)
        self.__spec__.loader.complete(self)
        return list(super().__dir__())
