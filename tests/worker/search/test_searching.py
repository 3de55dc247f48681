"""Glob patterns and searches against slow, obvious oracles."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import owner
from deputize.worker.search.glob_pattern import GlobPattern
from deputize.worker.search.listing import matching
from deputize.worker.tools.base import ToolResult
from tests.runs.toolbench import Toolbench, open_toolbench

names = st.text(alphabet="ab.c", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
parts = st.one_of(
    st.just("**"),
    st.lists(st.sampled_from(["a", "b", ".", "*", "?", "[ab]", "[!a]", "{a,bc}", "{,a}"]), min_size=1, max_size=4).map(
        "".join
    ),
)
patterns = st.lists(parts, min_size=1, max_size=4).map("/".join).filter(lambda text: text.count("{") <= 8)


def fits(pattern: str, path: str) -> bool:
    """The oracle: one character after the other, trying everything."""
    if "{" in pattern:
        start, end = pattern.index("{"), pattern.index("}")
        choices = pattern[start + 1 : end].split(",")
        return any(fits(pattern[:start] + choice + pattern[end + 1 :], path) for choice in choices)
    return fits_parts([part for part in pattern.split("/") if part not in ("", ".")], path.split("/"))


def fits_parts(parts: list[str], names: list[str]) -> bool:
    if not parts:
        return not names
    if parts == ["**"]:
        return bool(names)
    if parts[0] == "**":
        return any(fits_parts(parts[1:], names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and fits_name(parts[0], names[0]) and fits_parts(parts[1:], names[1:])


def fits_name(part: str, name: str) -> bool:
    if not part:
        return not name
    if part[0] == "*":
        return any(fits_name(part[1:], name[skip:]) for skip in range(len(name) + 1))
    if part[0] == "[":
        end = part.index("]")
        inner = part[1:end]
        inside = bool(name) and (name[0] not in inner[1:] if inner[0] == "!" else name[0] in inner)
        return inside and fits_name(part[end + 1 :], name[1:])
    return bool(name) and part[0] in ("?", name[0]) and fits_name(part[1:], name[1:])


@settings(max_examples=500, deadline=None)
@given(patterns, paths)
def test_a_pattern_matches_as_the_oracle_does(pattern: str, path: str) -> None:
    assert GlobPattern(pattern).matches(path) == fits(pattern, path)
    folder, _, name = path.rpartition("/")
    state = GlobPattern(pattern).at(folder)
    assert state.fits(name) == fits(pattern, path)


@dataclass
class Tree:
    """Files by path: what they hold and how long ago they were changed. No file is in the way of a directory."""

    files: dict[str, tuple[str, int]]

    def write(self, desk: Toolbench) -> None:
        for path, (content, age) in self.files.items():
            desk.write(path, content, age=age)

    @property
    def folders(self) -> list[str]:
        return sorted({path[:at] for path in self.files for at in range(len(path)) if path[at] == "/"})

    def newest_first(self) -> list[str]:
        return sorted(self.files, key=lambda path: (self.files[path][1], path))


@st.composite
def file_trees(draw: st.DrawFn) -> Tree:
    some = draw(st.lists(paths, min_size=1, max_size=12, unique=True))
    inner = {other[:at] for other in some for at in range(len(other)) if other[at] == "/"}
    contents = st.lists(st.sampled_from(["a", "bab", "", "c a", "xyz"]), max_size=7).map("\n".join)
    return Tree({path: (draw(contents), draw(st.integers(0, 3))) for path in some if path not in inner})


@settings(max_examples=80, deadline=None, derandomize=True)
@given(file_trees(), patterns.filter(lambda text: ".." not in text.split("/")), st.integers(0, 9), st.booleans())
def test_glob_finds_what_the_oracle_finds_in_its_order(tree: Tree, pattern: str, start: int, absolute: bool) -> None:
    """The oracle asks of every file whether it fits, character by character."""
    top = [".", *tree.folders][start % (1 + len(tree.folders))]
    below = "" if top == "." else top + "/"
    with tempfile.TemporaryDirectory(prefix="pytest") as name, open_toolbench(Path(name) / "w") as desk:
        tree.write(desk)
        listed = [path for path in tree.files if path.startswith(below)]
        found = matching(desk.files, listed, f"/workspace/{pattern}" if absolute else pattern, top)
    assert found == [
        path
        for path in tree.newest_first()
        if path in listed and fits(pattern, path if absolute else path[len(below) :])
    ]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(file_trees(), st.sampled_from(["a", "b.b", "^a$", "[^x]", "z|c"]), st.integers(0, 2))
@pytest.mark.costly
def test_grep_shows_what_the_oracle_shows(tree: Tree, pattern: str, context: int) -> None:
    """The oracle reads every line of every file."""
    with tempfile.TemporaryDirectory(prefix="pytest") as name:
        root = Path(name) / "w"
        result = asyncio.run(grep(root, tree, pattern, context))
    blocks: list[str] = []
    for path in tree.newest_first():
        lines = tree.files[path][0].split("\n")
        lines = lines if lines[-1] else lines[:-1]
        hits = [at for at, line in enumerate(lines) if re.search(pattern, line)]
        near = [at for at in range(len(lines)) if any(abs(at - hit) <= context for hit in hits)]
        shown = [
            ("    --\n" if at - 1 not in near and at != near[0] and context else "")
            + f"{at + 1:6d}{'|' if at in hits else '-'}{lines[at]}"
            for at in near
        ]
        blocks += [path, *shown] if near else []
    assert result.success
    assert result.content == ("\n".join(blocks) or f"Nothing matches {pattern!r} in ..")


async def grep(root: Path, tree: Tree, pattern: str, context: int) -> ToolResult:
    if reason := await Bubblewrap.selftest():
        pytest.skip(f"no sandbox here: {reason}")
    root.mkdir()
    if ids := owner():
        os.chown(root, *ids)
    with Bubblewrap(root) as sandbox, open_toolbench(root, sandbox=sandbox) as desk:
        tree.write(desk)
        return await desk.call("grep", pattern=pattern, context=context)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**/*.ts", ["a.ts", "x/y/a.ts"], ["a.tsx", "a.ts/b"]),
        ("src/**", ["src/a", "src/a/b"], ["srcs/a", "a/src/b"]),
        ("**/test_?.py", ["test_1.py", "a/test_x.py"], ["test_12.py"]),
        ("*.{js,jsx,{c,m}ts}", ["a.js", "a.jsx", "a.cts", "a.mts"], ["a.ts", "a.{js"]),
        ("[a-c]x[^0-9]", ["axb"], ["dxb", "ax1"]),
        ("a{b", ["a{b"], ["ab"]),
        ("{x}", ["{x}"], ["x"]),
        ("a//./b", ["a/b"], ["a/c/b"]),
        ("*", [".hidden", "plain"], ["a/b"]),
        ("[", ["["], ["a"]),
        ("[[]a", ["[a"], ["a"]),
    ],
)
def test_patterns_as_people_write_them(pattern: str, yes: list[str], no: list[str]) -> None:
    wanted = GlobPattern(pattern)
    assert [path for path in yes if not wanted.matches(path)] == []
    assert [path for path in no if wanted.matches(path)] == []


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 100 + "b", "**/*a*a*a*a*a*a*a*a*a*a*b/**/" * 5 + "x"])
def test_hostile_patterns_take_no_hostile_time(pattern: str) -> None:
    wanted = GlobPattern(pattern)
    begun = time.process_time()
    for _ in range(50):
        assert not wanted.matches("/".join(["a" * 200] * 20))
    assert time.process_time() - begun < 5
