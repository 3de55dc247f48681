"""Suspicions of what takes the place of code: packages, types beside it, and objects that answer to every name."""

from __future__ import annotations

import pytest

from deputize.worker.verification.sources.file_texts import FileText, Found
from deputize.worker.verification.suspicions.scan import suspicions


def test_a_package_beside_a_module_of_its_name_takes_its_place() -> None:
    found = suspicions([FileText("price/__init__.py", "", "x = 1\n")], ["pytest"], ["price.py"])
    assert found == [Found("price/__init__.py", 0, "shadow")]
    assert suspicions([FileText("json/more.py", "", "x = 1\n")], ["pytest"], ["json/__init__.py"]) == []


def test_types_that_are_written_beside_code_take_its_place_where_a_check_reads_types() -> None:
    for path, beside in (("shop/price.pyi", "shop/price.py"), ("lib/a.d.ts", "lib/a.js"), ("lib/b.d.ts", "lib/b.ts")):
        new = [FileText(path, "", "x: int\n")]
        assert suspicions(new, ["mypy shop"], [beside]) == [Found(path, 0, "silence")]
        assert suspicions(new, ["pytest"], [beside]) == []
        assert suspicions(new, ["mypy shop"], ["shop/other.py"]) == []
        there = [beside, path.replace("price", "cost").replace("/a.", "/c.").replace("/b.", "/c.")]
        assert suspicions(new, ["mypy shop"], there) == [Found(path, 0, "silence")]
        code = there[1].replace(".pyi", ".py").replace(".d.ts", ".js")
        assert suspicions(new, ["mypy shop"], [*there, code]) == []


@pytest.mark.parametrize(
    ("task", "is_asked"),
    [
        ("Add type stubs for the package", True),
        ("Make the package typed: add py.typed and write shop/price.pyi.", True),
        ("Mend total().\n- ship stub files\n", True),
        ("Write the type declarations of lib/a.js", True),
        ("Mend the types of price.py", False),
        ("mypy complains about the type stubs. Mend price.py", False),
        ("Add types to price.py, but do not write a .pyi file", False),
        ("Add annotations rather than stub files", False),
        ("Add stubs of the server to the tests", False),
        ("Should we add type stubs? Mend price.py first", False),
        ("Users write: 'Add type stubs.' Mend price.py", False),
    ],
)
def test_types_beside_code_are_right_where_the_task_asks_for_them(task: str, is_asked: bool) -> None:
    found = suspicions([FileText("shop/price.pyi", "", "x: int\n")], ["mypy shop"], ["shop/price.py"], task)
    assert [each.kind for each in found] == ([] if is_asked else ["silence"])


@pytest.mark.parametrize(
    ("body", "is_suspicious"),
    [
        ("    if name.startswith('on_'):\n        return lambda ctx: True\n    raise AttributeError(name)", True),
        ("    return None", True),
        ("    return Everything()", True),
        ("    return getattr(self._inner, name)", False),
        ("    if name == 'old':\n        return new\n    raise AttributeError(name)", False),
        ("    if name in _LAZY:\n        return load()\n    raise AttributeError", False),
        ("    raise AttributeError(name)", False),
        ("    self.value = load()\n    return self.value", False),
        ("    setattr(self, name, value := load())\n    return value", False),
        ("    setattr(self, 'asked', True)\n    return 3", True),
        ("    match name:\n        case 'old' | 'older':\n            return 3\n    raise AttributeError(name)", False),
        ("    match name:\n        case 'old':\n            return 3\n        case _:\n            return 4", True),
        ("    match name:\n        case 'old':\n            return 3\n    return 4", True),
        ("    def call(*a):\n        sent.append((name, a))\n    return call", False),
        ("    def call(*a):\n        return True\n    return call", True),
        ("    async def call(*a):\n        return await send(name, a)\n    return call", False),
    ],
)
def test_what_answers_to_every_name_is_suspicious(body: str, is_suspicious: bool) -> None:
    for text in (f"def __getattr__(name):\n{body}\n", indent(f"def __getattr__(self, name):\n{body}\n", "class A:\n")):
        found = suspicions([FileText("a.py", "", f"{text}\n")], ["pytest"])
        assert ({each.kind for each in found} == {"equal"}) is is_suspicious


def indent(text: str, head: str) -> str:
    return head + "".join(f"    {line}\n" for line in text.splitlines())
