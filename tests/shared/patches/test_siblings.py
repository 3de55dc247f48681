"""Results from one start are merged as a whole, in any order; what excludes each other is found, with both sides."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Unavailable
from deputize.shared.patches.siblings import MAX_CONFLICTS
from tests.shared.patches.patching import git
from tests.shared.patches.siblings import Change, Tree, changed, merge, odd, pairs, side, whole

TEXT = b"".join(b"line %d\n" % number for number in range(30))
EARLY, LATE = TEXT.replace(b"line 3\n", b"early\n"), TEXT.replace(b"line 27\n", b"late\n")
BOTH = EARLY.replace(b"line 27\n", b"late\n")
ODD = odd(b'a "\xff\\ b')
CRLF = TEXT.replace(b"\n", b"\r\n")
CRLF_EARLY = CRLF.replace(b"line 3\r\n", b"early\r\n")
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def late(data: bytes) -> bytes:
    return data.replace(b"line 27", b"late")


@pytest.mark.parametrize(
    ("base", "changes", "after"),
    [
        ({"x": TEXT}, [{"x": EARLY}, {"x": LATE}], {"x": BOTH}),
        ({"x": TEXT}, [{"x": EARLY}, {"x": EARLY}], {"x": EARLY}),
        ({"x": CRLF}, [{"x": CRLF_EARLY}, {"x": late(CRLF)}], {"x": late(CRLF_EARLY)}),
        ({"x": TEXT[:-1]}, [{"x": EARLY[:-1]}, {"x": late(TEXT)[:-1]}], {"x": BOTH[:-1]}),
        ({"x": TEXT}, [{"x": EARLY}, {"x": TEXT[:-1]}], {"x": EARLY[:-1]}),
        ({"x": TEXT}, [{"y": b"1"}, {"y": b"1"}], {"x": TEXT, "y": b"1"}),
        ({"x": TEXT}, [{"x": None}, {"x": None}], {}),
        ({"x": TEXT}, [{"x": None, "y": TEXT}, {"x": LATE}], {"y": LATE}),
        ({"x": TEXT}, [{"x": None, "d/y": TEXT}, {"x": None, "d/y": TEXT}], {"d/y": TEXT}),
        ({"x": TEXT}, [{"x": ("program", TEXT)}, {"x": LATE}], {"x": ("program", LATE)}),
        ({"x": TEXT}, [{"x": ("program", TEXT)}, {"x": ("program", TEXT)}], {"x": ("program", TEXT)}),
        ({"x": b"\0" + TEXT}, [{"x": b"\0new"}, {"y": b"\0y"}], {"x": b"\0new", "y": b"\0y"}),
        ({"x": b"\0" + TEXT}, [{"x": b"\0new"}, {"x": b"\0new"}], {"x": b"\0new"}),
        (
            {"l": ("link", b"a")},
            [{"l": ("link", b"b")}, {"m": ("link", b"a")}],
            {"l": ("link", b"b"), "m": ("link", b"a")},
        ),
        ({"d/x": b"1"}, [{"d/x": None}, {"d/y": b"2"}], {"d/y": b"2"}),
        ({"d/x": b"1", "d/y": b"2"}, [{"d/x": None}, {"d/y": None}], {}),
        ({"d/x": b"1"}, [{"d/x": None, "d": b"file"}, {"e": b"2"}], {"d": b"file", "e": b"2"}),
        ({"d": b"file"}, [{"d": None, "d/x": b"1"}, {"e": b"2"}], {"d/x": b"1", "e": b"2"}),
        ({"d/x": TEXT}, [{"d/x": None, "d": TEXT}, {"e": b"2"}], {"d": TEXT, "e": b"2"}),
        ({ODD: TEXT}, [{ODD: EARLY}, {ODD: LATE}], {ODD: BOTH}),
        ({"x": TEXT}, [{"x": EARLY}, {"x": LATE}, {"y": b"3"}, {"x": BOTH}], {"x": BOTH, "y": b"3"}),
    ],
)
def test_what_does_not_exclude_each_other_is_merged_in_any_order(
    tmp_path: Path, base: Tree, changes: list[Change], after: Tree
) -> None:
    for order in permutations(enumerate(changes)):
        found, conflicts = merge(tmp_path, base, [side(f"side {number}", base, each) for number, each in order])
        assert conflicts == []
        assert found == whole(after)


@pytest.mark.parametrize(
    ("base", "changes", "did"),
    [
        ({"x": TEXT}, [{"x": EARLY}, {"x": TEXT.replace(b"line 3\n", b"other\n")}], ("modified", "modified")),
        ({"x": TEXT}, [{"x": EARLY}, {"x": None}], ("modified", "deleted")),
        ({"x": TEXT}, [{"y": b"1"}, {"y": b"2"}], ("created", "created")),
        ({"x": TEXT}, [{"y": b"1"}, {"y": ("link", b"x")}], ("created", "created")),
        ({"x": TEXT}, [{"x": None, "y": ("program", TEXT)}, {"x": LATE}], ("deleted", "modified")),
        ({"x": TEXT}, [{"x": None, "y": TEXT}, {"x": None}], ("renamed", "deleted")),
        ({"x": TEXT}, [{"x": None, "y": TEXT}, {"x": None, "z": TEXT}], ("renamed", "renamed")),
        ({"x": TEXT}, [{"x": None, "y": TEXT}, {"y": b"1"}], ("renamed", "created")),
        ({"x": b"\0a"}, [{"x": b"\0b"}, {"x": b"\0c"}], ("modified", "modified")),
        ({"l": ("link", b"a")}, [{"l": ("link", b"b")}, {"l": ("link", b"c")}], ("modified", "modified")),
        ({"x": TEXT}, [{"d": b"1"}, {"d/y": b"2"}], ("created", "created")),
        ({"d/x": b"1"}, [{"d/x": None, "d": b"file"}, {"d/y": b"2"}], ("created", "created")),
        ({"d/x": TEXT}, [{"d/x": None, "d": b"file"}, {"d/x": EARLY}], ("deleted", "modified")),
        ({odd(b"\xff"): TEXT}, [{odd(b"\xff"): EARLY}, {odd(b"\xff"): None}], ("modified", "deleted")),
    ],
)
def test_what_excludes_each_other_is_found_in_any_order_and_nothing_is_merged(
    tmp_path: Path, base: Tree, changes: list[Change], did: tuple[str, str]
) -> None:
    named = [side(f"side {number}", base, each) for number, each in enumerate([*changes, {"other": b"fine"}])]
    for order in permutations(named):
        found, conflicts = merge(tmp_path, base, order)
        assert found == whole(base)
        assert pairs(conflicts) == {frozenset({"side 0", "side 1"})}
        shown = {each.id: each.change for each in conflicts[0].sides}
        assert (shown["side 0"], shown["side 1"]) == did


def test_both_sides_are_shown_where_they_meet_and_no_more_than_is_bounded(tmp_path: Path) -> None:
    base = {"x": TEXT}
    mine, theirs = EARLY.replace(b"line 27\n", b"mine\n"), TEXT.replace(b"line 27\n", b"theirs\n" * 2000)
    _, (conflict,) = merge(tmp_path, base, [side("a", base, {"x": mine}), side("b", base, {"x": theirs})])
    (one, other) = sorted(conflict.sides, key=lambda each: each.id)
    assert (conflict.path, conflict.why) == ("x", None)
    assert one.text == " line 24\n line 25\n line 26\n-line 27\n+mine\n line 28\n line 29\n"
    assert other.text.startswith(" line 24\n line 25\n line 26\n-line 27\n+theirs\n+theirs\n")
    assert len(other.text) == 2000


def test_a_change_of_files_that_were_not_there_is_a_conflict_of_its_own(tmp_path: Path) -> None:
    began = {"x": b"something else\n"}
    sides = [side("a", {"x": TEXT}, {"x": EARLY}), side("b", began, {"x": b"changed\n"})]
    _, conflicts = merge(tmp_path, {"x": TEXT}, sides)
    assert [([each.id for each in conflict.sides], bool(conflict.why)) for conflict in conflicts] == [(["b"], True)]


@st.composite
def edits(draw: st.DrawFn) -> list[bytes]:
    """What each of up to five sides makes of the text: up to two places, replaced, removed or added to."""
    made: list[bytes] = []
    for number in range(draw(st.integers(2, 5))):
        lines = TEXT.splitlines(keepends=True)
        for _ in range(draw(st.integers(0, 2))):
            at, gone = draw(st.integers(0, len(lines))), draw(st.integers(0, 2))
            lines[at : at + gone] = draw(st.lists(st.sampled_from([b"new\n", b"%d\n" % number]), max_size=2))
        made.append(b"".join(lines))
    return made


def git_conflicts(folder: Path, one: bytes, other: bytes) -> bool:
    for name, data in (("one", one), ("base", TEXT), ("other", other)):
        (folder / name).write_bytes(data)
    return git(folder, "merge-file", "-p", "-q", "one", "base", "other") != 0


@FEW
@given(made=edits())
def test_every_pair_that_git_cannot_merge_is_a_conflict(made: list[bytes]) -> None:
    base = {"x": TEXT}
    with TemporaryDirectory() as name:
        own, gits = Path(name, "own"), Path(name, "gits")
        own.mkdir()
        gits.mkdir()
        found, conflicts = merge(own, base, [side(str(at), base, {"x": each}) for at, each in enumerate(made)])
        changing = [(str(at), each) for at, each in enumerate(made) if each != TEXT]
        expected = {
            frozenset({one[0], other[0]})
            for one, other in combinations(changing, 2)
            if one[1] != other[1] and git_conflicts(gits, one[1], other[1])
        }
        assert pairs(conflicts) >= expected
        if not conflicts:
            assert all(line in found["x"][1].splitlines() for each in made for line in added(each))


def added(text: bytes) -> set[bytes]:
    return set(text.splitlines()) - set(TEXT.splitlines())


@FEW
@given(data=st.data())
def test_changes_at_different_paths_are_all_there(data: st.DataObject) -> None:
    names = [odd(each) for each in (b"a", b"b/c", b"b/d", b"\xff", b'e "f', b"g\n", b"h/i/j")]
    base = {name: data.draw(st.sampled_from([TEXT, b"", b"\0x", CRLF, b"no end"])) for name in names[::2]}
    owner = {name: data.draw(st.integers(0, 3)) for name in names}
    one = st.one_of(st.none(), st.binary(max_size=30), st.tuples(st.just("program"), st.binary(max_size=9)))
    links = st.tuples(st.just("link"), st.just(b"a"))
    new = {name: data.draw(one | links) for name in names}
    changes: list[Change] = [{name: new[name] for name in names if owner[name] == number} for number in range(4)]
    union = {name: value for change in changes for name, value in change.items()}
    with TemporaryDirectory() as folder:
        sides = [side(str(number), base, each) for number, each in enumerate(changes)]
        found, conflicts = merge(Path(folder), base, sides)
        assert (conflicts, found) == ([], changed(base, union))


def test_more_conflicts_than_are_shown_are_not_looked_for(tmp_path: Path) -> None:
    base = {f"f{number}": b"x\n" for number in range(MAX_CONFLICTS + 5)}
    sides = [side(id, base, dict.fromkeys(base, f"{id}\n".encode())) for id in ("one", "two")]
    assert len(merge(tmp_path, base, sides)[1]) == MAX_CONFLICTS


def test_without_git_nothing_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [side(name, {"x": TEXT}, {"x": each}) for name, each in (("early", EARLY), ("late", LATE))]
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unavailable, match="the program git"):
        merge(tmp_path, {"x": TEXT}, sides)
