"""Fifty results over one small Python project: ten pairs exclude each other in a file, ten fail only when they run.

Each result works alone. ``works`` executes the whole project in this process, as a check of a real one would.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tests.shared.patches.siblings import Change

TEXT = "".join(f"LINE_{number} = {number}\n" for number in range(12))
CONFIGURATION = (
    "LIMIT = 10\n\n\ndef bounded(items):\n    assert len(items) <= LIMIT, f'{len(items)} items'\n    return items\n"
)
SHOP = """ORDERS = {"total": 3, "open": 1}


def price(amount):
    return amount * 2


def label(name):
    return name.upper()


def convert(value):
    return value / 4


def pair():
    return 1


class Basket:
    def count(self):
        return 2


def checked(value):
    assert value >= 0, f"{value} is too small"
    return value


def announce(kind):
    return kind
"""
REGISTRY = """KNOWN = {}


def register(name, handler):
    assert name not in KNOWN, f"{name} is there already"
    KNOWN[name] = handler
"""
BASE = {
    "shop.py": SHOP,
    "registry.py": REGISTRY,
    "configuration.py": CONFIGURATION,
    "prices.py": "import shop\n\nassert shop.price(2) == 4\n",
    "labels.py": "import shop\n\nassert shop.label('a') == 'A'\n",
    **{f"part_{number}.py": TEXT for number in range(10)},
}


def edited(path: str, *pairs: tuple[str, str], **more: str) -> Change:
    text = BASE[path]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return {path: text.encode()} | {f"{name}.py": each.encode() for name, each in more.items()}


def new(name: str, text: str) -> Change:
    return {f"{name}.py": text.encode()}


SEMANTIC: list[tuple[Change, Change]] = [
    (
        edited("shop.py", ("def price(", "def price_of("), prices=BASE["prices.py"].replace("price(", "price_of(")),
        new("invoice", "import shop\n\nTOTAL = shop.price(7)\n"),
    ),
    (
        edited(
            "shop.py",
            ("def label(name)", "def label(name, language)"),
            labels=BASE["labels.py"].replace("'a')", "'a', 'en')"),
        ),
        new("badge", "import shop\n\nBADGE = shop.label('guest')\n"),
    ),
    (
        edited("shop.py", ("return value / 4", "return str(value / 4)")),
        new("sums", "import shop\n\nassert shop.convert(8) + 1 == 3\n"),
    ),
    (
        edited("shop.py", ("def pair():\n    return 1", "def pair():\n    return 1, 1")),
        new("twice", "import shop\n\nassert shop.pair() * 2 == 2\n"),
    ),
    (
        edited("shop.py", ("class Basket", "class Cart")),
        new("checkout", "from shop import Basket\n\nassert Basket().count() == 2\n"),
    ),
    (edited("shop.py", ('"total": 3', '"sum": 3')), new("report", "import shop\n\nassert shop.ORDERS['total'] == 3\n")),
    (
        edited("shop.py", ("value >= 0", "value >= 5")),
        new("small", "from shop import checked\n\nassert checked(1) == 1\n"),
    ),
    (
        new("exporting", "import registry\n\nregistry.register('export', print)\n"),
        new("downloads", "import registry\n\nregistry.register('export', len)\n"),
    ),
    (
        edited("configuration.py", ("LIMIT = 10", "LIMIT = 5")),
        new("rows", "from configuration import bounded\n\nROWS = bounded([0] * 8)\n"),
    ),
    (
        edited(
            "shop.py", ("def announce(kind):\n    return kind", "def announce(kind):\n    return {'open': 1}[kind]")
        ),
        new("closing", "import shop\n\nassert shop.announce('shut') == 'shut'\n"),
    ),
]
"""Both work alone, and not together."""


def line(number: int, at: int, text: str | None) -> Change:
    path = f"part_{number}.py"
    return edited(path, (f"LINE_{at} = {at}\n", text or ""))


TEXTUAL: list[tuple[Change, Change]] = [
    (line(0, 5, "LINE_5 = 'a'\n"), line(0, 5, "LINE_5 = 'b'\n")),
    (line(1, 5, "LINE_5 = 'a'\n"), line(1, 6, "LINE_6 = 'b'\n")),
    (line(2, 5, None), line(2, 5, "LINE_5 = 'b'\n")),
    (line(3, 11, "LINE_11 = 11\nA = 1\n"), line(3, 11, "LINE_11 = 11\nB = 1\n")),
    (line(4, 5, "LINE_5 = 'a'\n"), {"part_4.py": None}),
    ({"part_5.py": None, "moved_5.py": TEXT.encode()}, {"part_5.py": None, "other_5.py": TEXT.encode()}),
    ({"part_6.py": None, "moved_6.py": TEXT.encode()}, {"part_6.py": None}),
    (new("both", "A = 1\n"), new("both", "B = 1\n")),
    (new("folder/inner", "A = 1\n"), {"folder": b"A = 1\n"}),
    ({"part_9.py": b"\0one"}, {"part_9.py": b"\0other"}),
]
"""Both are changes of one path, and cannot both be kept."""

HARMLESS: list[Change] = [
    *(new(f"extra_{number}", f"EXTRA_{number} = {number}\n") for number in range(5)),
    line(7, 1, "LINE_1 = 'top'\n"),
    line(7, 10, "LINE_10 = 'bottom'\n"),
    line(8, 1, "LINE_1 = 'top'\n"),
    edited("registry.py", ("    KNOWN[name] = handler\n", "    KNOWN[name] = handler\n\n\nVERSION = 2\n")),
    {"notes.md": b"# Notes\n"},
]
"""Compatible with all others, some in the same files."""


def works(files: Mapping[str, tuple[str, bytes]]) -> str:
    """Executes every module; what the first failing one raised, or nothing."""
    loaded: dict[str, ModuleType] = {}

    def load(name: str, *_: Any) -> ModuleType:
        if name not in loaded:
            loaded[name] = module = ModuleType(name)
            inside = {**vars(builtins), "__import__": load}
            module.__dict__["__builtins__"] = inside
            exec(compile(files[f"{name}.py"][1], f"{name}.py", "exec"), module.__dict__)
        return loaded[name]

    for path in sorted(files):
        if path.endswith(".py") and b"\0" not in files[path][1] and "/" not in path:
            try:
                load(path.removesuffix(".py"))
            except Exception as error:  # noqa: BLE001 - whatever the project raises is what its check finds
                return f'File "{path}": {type(error).__name__}: {error}'
    return ""
