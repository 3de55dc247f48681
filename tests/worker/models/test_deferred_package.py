"""A package whose ``__init__`` is deferred gives every name that it would have given."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import pytest

from deputize.worker.models.deferred_package import defer_package

INIT = """\
from . import kinds
from .near import Near as Near
from .far.end import (
    Far as Remote,
    other,
)
if True:
    from .computed import Computed
__all__ = ["Near"]
made_here = Near.__name__
"""

Deferred = Callable[[], ModuleType]


@pytest.fixture
def deferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deferred:
    """Returns the function that imports the package ``heavy``, deferred with all below ``heavy.kinds``."""
    files = {
        "__init__.py": INIT,
        "near.py": "class Near: pass",
        "far/__init__.py": "from .end import Far",
        "far/end.py": "class Far: pass\nother = 1",
        "computed.py": "Computed = 2",
        "kinds/__init__.py": "from .one import One\nfrom .two import Two",
        "kinds/one.py": "class One: pass",
        "kinds/two.py": "from . import One\nclass Two(One): pass",
        "kindsmen/__init__.py": "from ..near import Near",
    }
    for path, text in files.items():
        file = tmp_path / "heavy" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    defer_package("heavy", "heavy.kinds")
    return lambda: importlib.import_module("heavy")


def loaded() -> set[str]:
    return {each.removeprefix("heavy.") for each in sys.modules if each.startswith("heavy.")}


@pytest.fixture(autouse=True)
def forget_the_package() -> Generator[None]:
    yield
    for module in [each for each in sys.modules if each.partition(".")[0] == "heavy"]:
        del sys.modules[module]


def test_importing_it_imports_nothing_below_it(deferred: Deferred) -> None:
    deferred()
    assert loaded() == set()


def test_a_name_imports_only_the_module_that_it_comes_from(deferred: Deferred) -> None:
    assert deferred().Near.__module__ == "heavy.near"
    assert loaded() == {"near"}
    assert deferred().Remote.__name__ == "Far"
    assert loaded() == {"near", "far", "far.end"}


def test_a_package_below_it_is_deferred_where_that_is_asked_for(deferred: Deferred) -> None:
    assert deferred().kinds.Two.__mro__[1].__module__ == "heavy.kinds.one"
    assert loaded() == {"kinds", "kinds.one", "kinds.two"}


def test_a_package_whose_name_only_begins_like_it_is_imported_as_ever(deferred: Deferred) -> None:
    deferred()
    importlib.import_module("heavy.kindsmen")
    assert loaded() == {"kindsmen", "near"}


@pytest.mark.parametrize(("name", "value"), [("made_here", "Near"), ("Computed", 2), ("__all__", ["Near"])])
def test_a_name_that_init_computes_runs_it(deferred: Deferred, name: str, value: object) -> None:
    assert getattr(deferred(), name) == value
    assert loaded() >= {"kinds", "near", "far.end", "computed"}


def test_what_was_given_before_init_ran_is_the_same_after_it(deferred: Deferred) -> None:
    package = deferred()
    near = package.Near
    assert package.made_here == "Near"
    assert package.Near is near


def test_dir_names_everything(deferred: Deferred) -> None:
    assert {"Near", "Remote", "other", "Computed", "made_here", "kinds"} <= set(dir(deferred()))


def test_a_name_that_is_not_there_is_said_as_python_says_it(deferred: Deferred) -> None:
    with pytest.raises(AttributeError, match=r"^module 'heavy' has no attribute 'nothing'$"):
        _ = deferred().nothing
    assert not hasattr(deferred(), "nothing")


def test_a_package_that_was_imported_before_stays_as_it_is(deferred: Deferred) -> None:
    sys.meta_path.pop(0)
    package = deferred()
    finders = list(sys.meta_path)
    defer_package("heavy")
    assert sys.meta_path == finders
    assert package.made_here == "Near"


def test_the_models_client_leaves_out_what_the_sdk_has_for_other_endpoints() -> None:
    script = (
        "import json, sys, deputize.worker.models.anthropic\n"
        "left_out = ['resources', 'lib.bedrock', 'lib.vertex', 'lib.tools', 'types.beta.vaults',"
        " 'types.beta.agent_list_params', 'types.beta.sessions.event_list_params']\n"
        "loaded = [name for name in left_out if f'anthropic.{name}' in sys.modules]\n"
        "import anthropic, anthropic.types\n"
        "client = anthropic.Anthropic(api_key='k')\n"
        "given = [client.beta.messages, anthropic.AnthropicBedrock, anthropic.types.Message, anthropic.resources]\n"
        "print(json.dumps([left_out, loaded, len(given), [f'anthropic.{n}' in sys.modules for n in left_out[:4]]]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    left_out, loaded, given, loaded_on_demand = json.loads(done.stdout)
    assert loaded == []
    assert given == 4
    assert loaded_on_demand == [True] * 4, f"the SDK has no such modules any more: {left_out[:4]}"
