"""A run's change is merged as git merges it, or refused; nothing of the directory's own work is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Unavailable
from deputize.shared.patch_format import blob_id, parse_patch
from deputize.shared.patches.directory import Directory
from deputize.shared.patches.merge import OUT_OF_REACH, MergePlan, content_in_git
from tests.shared.patches.patching import git, patch_of, planned
from tests.worker.workspace.trees import tree

LINES = [f"line {number}\n" for number in range(12)]


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """The lines with up to three replaced, removed or added."""
    lines = list(LINES)
    for _ in range(draw(st.integers(0, 3))):
        at, count = draw(st.integers(0, len(lines))), draw(st.integers(0, 2))
        lines[at : at + count] = draw(st.lists(st.sampled_from(["mine\n", "x\n", "line 3\n"]), max_size=2))
    text = "".join(lines)
    return (text.removesuffix("\n") if draw(st.booleans()) else text).encode()


FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BASE = "".join(LINES).encode()


@FEW
@given(run=edited(), mine=edited())
def test_with_the_base_known_it_is_what_git_makes_of_three_sides(run: bytes, mine: bytes) -> None:
    with TemporaryDirectory() as name:
        ours, gits = Path(name, "ours"), Path(name, "gits")
        for folder in (ours, gits):
            folder.mkdir()
            git(folder, "init", "-q")
            for content in (BASE, run, mine):
                (folder / "x").write_bytes(content)
                git(folder, "add", "x")
        patch = patch_of("x", BASE, run)
        plan = planned(ours, patch)
        merges = run == BASE or git(gits, "apply", "--3way", "--whitespace=nowarn", "-", stdin=patch.encode()) == 0
        assert (not plan.refused) == merges
        assert (ours / "x").read_bytes() == ((gits / "x").read_bytes() if merges else mine)


@FEW
@given(run=edited(), mine=edited())
def test_without_the_base_a_merge_keeps_both_sides_or_is_refused(run: bytes, mine: bytes) -> None:
    with TemporaryDirectory() as name:
        folder, gits = Path(name, "ours"), Path(name, "gits")
        for each in (folder, gits):
            each.mkdir()
            (each / "x").write_bytes(mine)
        patch = patch_of("x", BASE, run)
        if planned(folder, patch).refused:
            assert (folder / "x").read_bytes() == mine
        elif run not in (BASE, mine):
            # Where there is one place for every part, git finds it, too.
            assert git(gits, "apply", "--whitespace=nowarn", "-", stdin=patch.encode()) == 0
            assert (folder / "x").read_bytes() == (gits / "x").read_bytes()


@FEW
@given(run=edited())
def test_what_was_taken_over_is_there_already_and_can_be_taken_back(run: bytes) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x").write_bytes(BASE)
        patch = patch_of("x", BASE, run)
        assert planned(folder, patch).refused == {}
        assert (folder / "x").read_bytes() == run
        if run != BASE:
            assert (planned(folder, patch).already, planned(folder, patch, reverse=True).refused) == (["x"], {})
        assert (folder / "x").read_bytes() == BASE


@pytest.mark.parametrize("with_base", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_where_a_merge_would_change_nothing_there_is_nothing_to_do(
    tmp_path: Path, *, reverse: bool, with_base: bool
) -> None:
    """A change that is here (or, taken back, is not here), in a file whose other lines have changed."""
    run = BASE.replace(b"line 1\n", b"its line\n")
    here = (BASE if reverse else run).replace(b"line 9\n", b"my line\n")
    git(tmp_path, "init", "-q")
    for content in (BASE, run) if with_base else ():
        (tmp_path / "x").write_bytes(content)
        git(tmp_path, "add", "x")
    (tmp_path / "x").write_bytes(here)
    plan = planned(tmp_path, patch_of("x", BASE, run), reverse=reverse)
    if with_base:
        assert (plan.applied, plan.already, plan.refused) == ([], ["x"], {})
    assert (tmp_path / "x").read_bytes() == here


def made(folder: Path, files: dict[str, bytes | None]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir() if data is None else (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("here", "patch", "why"),
    [
        ({"x": b"mine"}, patch_of("x", None, b"its"), "a file is here already"),
        ({"x": None}, patch_of("x", None, b"its"), "a directory is here already"),
        ({"x": b"mine"}, patch_of("x", b"old", None), "it was changed here since, and the run deleted it"),
        ({}, patch_of("x", b"old\n", b"new\n"), "x is not here any more"),
        ({"x": None}, patch_of("x", b"old\n", b"new\n"), "it is a directory here now"),
        ({"x": b"\0mine"}, patch_of("x", b"\0old", b"\0new"), "this binary file was changed here since"),
        ({"d": b"mine"}, patch_of("d/x", None, b"its"), "its folder d is a file here"),
        ({"a": b"same", "x": b"mine"}, patch_of("x", b"same", b"same", "a"), "and the run renamed a to it"),
        ({"x": b"mine\n"}, patch_of("x", b"old\n", b"new\n"), OUT_OF_REACH),
    ],
)
def test_where_work_would_be_lost_it_is_refused_and_nothing_changes(
    tmp_path: Path, here: dict[str, bytes | None], patch: str, why: str
) -> None:
    made(tmp_path, here)
    before = tree(tmp_path)
    plan = planned(tmp_path, patch_of("other", None, b"fine") + patch)
    assert [why in reason for reason in plan.refused.values()] == [True]
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("here", "parts", "after"),
    [
        ({}, [patch_of("d/x", None, b"new")], {"d/x": b"new"}),
        ({"d/x": b"old"}, [patch_of("d/x", b"old", None)], {}),
        ({"d/x": b"old"}, [patch_of("d/x", b"old", None), patch_of("d", None, b"f")], {"d": b"f"}),
        ({"a": b"same"}, [patch_of("b", b"same", b"same", "a")], {"b": b"same"}),
        ({"a": b"1\n", "b": b"2\n"}, [patch_of("a", b"1\n", b"3\n"), patch_of("b", b"2\n", None)], {"a": b"3\n"}),
        ({"d/x": b"x", "d/y": b"mine"}, [patch_of("d/x", b"x", None)], {"d/y": b"mine"}),
    ],
)
def test_files_folders_and_renames_change_their_places(
    tmp_path: Path, here: dict[str, bytes | None], parts: Sequence[str], after: dict[str, bytes]
) -> None:
    made(tmp_path, here)
    assert planned(tmp_path, "".join(parts)).refused == {}
    assert {name: data for name, (_, data) in tree(tmp_path).items()} == after
    assert [*tmp_path.glob(".deputize*")] == []


def test_a_place_that_is_not_certain_is_no_place(tmp_path: Path) -> None:
    block = b"a\nb\nc\nX\nd\ne\nf\n"
    (tmp_path / "twice").write_bytes(b"mine\n" + block * 2)
    plan = planned(tmp_path, patch_of("twice", block * 2, block + block.replace(b"X", b"Y")))
    assert plan.refused == {"twice": OUT_OF_REACH}


@pytest.mark.parametrize("is_known", [True, False])
def test_beside_the_same_lines_a_merge_needs_the_base_of_the_repository(tmp_path: Path, is_known: bool) -> None:
    (tmp_path / "x").write_bytes(BASE)
    if is_known:
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "x")
    mine = BASE.replace(b"line 7\n", b"mine 7\n")  # in the context of the run's change
    (tmp_path / "x").write_bytes(mine)
    plan = planned(tmp_path, patch_of("x", BASE, BASE.replace(b"line 5\n", b"its 5\n")))
    assert bool(plan.refused) != is_known
    assert (tmp_path / "x").read_bytes() == (mine.replace(b"line 5\n", b"its 5\n") if is_known else mine)


def test_a_changed_mode_comes_with_and_without_a_changed_content(tmp_path: Path) -> None:
    for name, new in (("same", b"x\n"), ("other", b"y\n")):
        (tmp_path / name).write_bytes(b"x\n")
        assert planned(tmp_path, patch_of(name, b"x\n", new, mode="100755")).refused == {}
        assert tree(tmp_path)[name] == ("program", new)


def test_a_content_that_was_masked_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old\n")
    plan = planned(tmp_path, patch_of("x", b"old\n", b"key = secret\n").replace("secret", "***"))
    assert "masked" in plan.refused["x"]


@pytest.mark.parametrize("way", ["folder", "file"])
def test_a_link_that_takes_a_place_between_check_and_write_leads_nowhere(tmp_path: Path, way: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "project"
    made(folder, {"d/x": b"old\n"})
    made(outside, {"x": b"old\n"})
    with Directory(folder) as target:
        plan = MergePlan(target)
        plan.add(parse_patch(patch_of("d/x", b"old\n", b"new\n")))
        assert plan.refused == {}
        (folder / "d/x").unlink()
        if way == "folder":
            (folder / "d").rmdir()
            (folder / "d").symlink_to(outside)
            with pytest.raises(OSError, match=r"symbolic|links|Not a directory"):
                plan.write()
        else:
            (folder / "d/x").symlink_to(outside / "x")
            plan.write()
            assert tree(folder) == {"d/x": ("file", b"new\n")}
    assert (outside / "x").read_bytes() == b"old\n"
    assert [*folder.glob(".deputize*")] == []


@pytest.mark.parametrize(("old", "new"), [(None, b"n"), (b"o", None), (b"o", b"n")])
def test_a_linked_folder_is_not_entered(tmp_path: Path, old: bytes | None, new: bytes | None) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "project"
    made(outside, {"x": b"o"})
    folder.mkdir()
    (folder / "d").symlink_to(outside)
    planned(folder, patch_of("d/x", old, new))
    assert tree(outside) == {"x": ("file", b"o")}
    assert tree(folder) == {"d": ("link", str(outside).encode())}


def test_a_link_that_the_run_made_is_made_and_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "project"
    made(outside, {"x": b"o"})
    folder.mkdir()
    patch = f"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+{outside}\n"
    patch += "\\ No newline at end of file\n" + patch_of("l/x", None, b"n")
    planned(folder, patch)
    assert tree(outside) == {"x": ("file", b"o")}


TEXTS = {
    "base": BASE,
    "first": BASE.replace(b"line 2\n", b"first\n"),
    "then": BASE.replace(b"line 2\n", b"then\n"),
    "both": BASE.replace(b"line 2\n", b"first\n").replace(b"line 9\n", b"then\n"),
    "binary": b"\0\1\2",
    "other": b"another text\n",
}
"""Contents of a file during a conversation: each may follow on each."""
State = dict[str, bytes | None]
STATES = st.fixed_dictionaries({name: st.sampled_from([None, *TEXTS.values()]) for name in ("a", "b/c")})


def difference(old: State, new: State) -> str:
    return "".join(patch_of(name, old[name], new[name]) for name in old if old[name] != new[name])


@settings(FEW, max_examples=100)
@example([{"a": TEXTS[name], "b/c": None} for name in ("first", "base", "both", "first")], 1)
@given(states=st.lists(STATES, min_size=2, max_size=4), here=st.integers(0, 3))
def test_a_conversations_changes_arrive_whichever_part_of_them_was_applied(states: list[State], here: int) -> None:
    start, *after = states
    applied = states[min(here, len(states) - 1)]
    patches = [difference(start, state) for state in after]
    with TemporaryDirectory() as name:
        folder, wanted = Path(name, "folder"), Path(name, "wanted")
        for place, state in ((folder, applied), (wanted, after[-1])):
            place.mkdir()
            made(place, {path: text for path, text in state.items() if text is not None})
        contents = {blob_id(text): text for text in TEXTS.values()}
        earlier = [part for patch in patches[-2::-1] for part in reversed(parse_patch(patch))] if after[:-1] else []
        with Directory(folder) as target:
            plan = MergePlan(target, contents.get)
            plan.add(parse_patch(patches[-1]), earlier)
            assert plan.refused == {}
            plan.write()
        assert tree(folder) == tree(wanted)
        changed = {path for path in ("a", "b/c") if applied[path] != after[-1][path]}
        assert {planned.path for planned in plan.applied} == changed


def test_what_was_changed_here_after_the_first_part_was_applied_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(TEXTS["first"].replace(b"line 11\n", b"mine\n"))
    with Directory(tmp_path) as target:
        plan = MergePlan(target, lambda blob: BASE if blob == blob_id(BASE) else None)
        plan.add(parse_patch(patch_of("a", BASE, TEXTS["then"])), parse_patch(patch_of("a", BASE, TEXTS["first"])))
        plan.write()
    assert (tmp_path / "a").read_bytes() == TEXTS["then"].replace(b"line 11\n", b"mine\n")
    assert [planned.merged for planned in plan.applied] == [True]


def test_a_conflict_with_work_of_ones_own_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BASE.replace(b"line 2\n", b"mine\n"))
    with Directory(tmp_path) as target:
        plan = MergePlan(target, lambda blob: BASE if blob == blob_id(BASE) else None)
        plan.add(parse_patch(patch_of("a", BASE, TEXTS["both"])), parse_patch(patch_of("a", BASE, TEXTS["first"])))
    assert plan.refused == {"a": "the same lines were changed here since"}


CHOSEN = [None, *(TEXTS[name] for name in ("base", "first", "both", "other"))]


@pytest.mark.parametrize("here", range(4))
def test_the_changes_of_three_parts_arrive_whichever_of_them_was_applied(here: int, is_thorough: bool) -> None:
    property_test: Any = test_a_conversations_changes_arrive_whichever_part_of_them_was_applied
    check = property_test.hypothesis.inner_test
    all_texts = [*enumerate(product(CHOSEN, repeat=4))]
    for number, texts in all_texts if is_thorough else random.sample(all_texts, 100):
        check([{"a": text, "b/c": CHOSEN[(number + at) % len(CHOSEN)]} for at, text in enumerate(texts)], here)


@pytest.mark.parametrize(("run", "mine", "merges"), [("both", "first", True), ("first", "then", False)])
def test_lines_are_merged_by_git(tmp_path: Path, run: str, mine: str, merges: bool) -> None:
    git(tmp_path, "init", "-q")
    for name in ("base", run, mine):
        (tmp_path / "x").write_bytes(TEXTS[name])
        git(tmp_path, "add", "x")
    patch = patch_of("x", BASE, TEXTS[run])
    with Directory(tmp_path) as target:
        assert MergePlan(target).unknown_contents(parse_patch(patch)) == [("x", True)]
    assert (planned(tmp_path, patch).refused == {}) == merges
    assert (tmp_path / "x").read_bytes() == TEXTS["both" if merges else mine]


def test_without_git_a_change_of_both_sides_is_an_error_and_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "x").write_bytes(TEXTS["then"].replace(b"line 9\n", b"mine\n"))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert content_in_git(tmp_path, blob_id(BASE)) is None
    with Directory(tmp_path) as target:
        plan = MergePlan(target, lambda _: BASE)
        with pytest.raises(Unavailable, match=r"the program git, .* failed here: git is not on PATH"):
            plan.add(parse_patch(patch_of("x", BASE, TEXTS["first"])))
    assert plan.refused == {}


@pytest.mark.parametrize(("line", "fails"), [("exit 128", True), ("exit 255", True), ("exit 1", False)])
def test_a_git_that_fails_has_found_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, fails: bool
) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\necho broken >&2\n{line}\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "x").write_bytes(TEXTS["then"].replace(b"line 9\n", b"mine\n"))
    with Directory(tmp_path) as target:
        plan = MergePlan(target, lambda _: BASE)
        plan.add(parse_patch(patch_of("x", BASE, TEXTS["first"])))
    assert ("git cannot merge it: broken" in plan.refused["x"]) == fails


def test_what_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = "long" * 100
    plan = planned(tmp_path, patch_of(path, b"a\n", b"b\n"))
    assert plan.refused == {path: "it cannot be read: File name too long"}
    with Directory(tmp_path) as target:
        part = parse_patch(patch_of(path, b"a\n", b"b\n"))
        plan = MergePlan(target)
        plan.add(parse_patch(patch_of("a", None, b"a\n")), part)
        assert plan.unknown_contents(part) == []
    assert plan.refused == {}


def test_a_binary_content_that_the_patch_lacks_is_fetched_or_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0new")
    back = [part.reversed() for part in parse_patch(patch_of("x", b"\0old", b"\0new"))]
    for known, refused in (({blob_id(b"\0old"): b"\0old"}, []), ({}, ["x"])):
        with Directory(tmp_path) as target:
            plan = MergePlan(target, known.get)
            assert [path for path, _ in plan.unknown_contents(back)] == ["x"]
            plan.add(back)
        assert [*plan.refused] == refused


def test_a_file_that_was_changed_here_and_only_renamed_there_keeps_the_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(TEXTS["first"])
    plan = planned(tmp_path, patch_of("b", BASE, BASE, source="a"))
    assert plan.refused == {}
    assert tree(tmp_path) == {"b": ("file", TEXTS["first"])}


def test_a_file_that_was_renamed_before_gets_the_last_name(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(BASE)
    with Directory(tmp_path) as target:
        plan = MergePlan(target)
        first, last = (parse_patch(patch_of(name, BASE, BASE, source="a")) for name in ("b", "c"))
        plan.add(last, first)
        plan.write()
    assert plan.refused == {}
    assert tree(tmp_path) == {"c": ("file", BASE)}


def test_links_that_lead_out_of_the_directory_are_named(tmp_path: Path) -> None:
    targets = {"out": "/etc", "up": "../other", "sub/up": "../../x", "in": "a.txt", "sub/in": "../a.txt"}
    patch = "".join(
        f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{target}\n"
        "\\ No newline at end of file\n"
        for path, target in targets.items()
    )
    assert planned(tmp_path, patch).links_out == {path: targets[path] for path in ("out", "sub/up", "up")}
