"""Patches are read as the worker writes them; what they name stays below a directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.errors import Invalid
from deputize.shared.patch_format import blob_id, check_path, created_part, is_safe, parse_patch, without
from tests.shared.patches.patching import patch_of

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.lists(st.sampled_from(["a", "b", "", "é", "@@ -1 +1 @@", "diff --git a/x b/x", "-", "\r"]), max_size=12).map(
    "\n".join
)
CONTENTS = st.one_of(TEXTS.map(str.encode), st.binary(max_size=200))


@given(path=st.lists(NAMES.filter(is_safe), min_size=1, max_size=3).map("/".join))
def test_a_path_is_read_as_it_was_written(path: str) -> None:
    (part,) = parse_patch(patch_of(path, b"", b"x\n"))
    assert (part.old_path, part.new_path) == (path, path)


@given(old=CONTENTS, new=CONTENTS)
def test_a_patch_makes_the_new_content_of_the_old_and_only_of_that(old: bytes, new: bytes) -> None:
    (part,) = parse_patch(patch_of("x", old, new))
    if old == new:
        assert (part.hunks, part.binary) == ([], False) or part.result(old) == new
        return
    assert part.result(old) == new
    assert (part.old_id, part.new_id) == (blob_id(old), blob_id(new))
    if not part.binary:
        assert part.reversed().result(new) == old
        assert part.merged_by_context(old) in (None, new)
        other = b"other\n" + old
        assert part.result(other) != new


@pytest.mark.parametrize(("old", "new"), [(None, b"x\ny"), (b"x\ny", None), (None, b"\0"), (None, b"")])
def test_a_side_that_does_not_exist_has_no_path(old: bytes | None, new: bytes | None) -> None:
    (part,) = parse_patch(patch_of("a b", old, new))
    assert (part.old_path, part.new_path) == (None if old is None else "a b", None if new is None else "a b")
    assert part.result(old or b"") == (new or b"")


UNSAFE = ["../x", "/x", "a/../../x", "a/./x", "a//x", ".git/hooks/post-checkout", "a/.GIT/config", ".Git", ""]
UNSAFE += ["git~1/config", "a/GIT~1", ".git /x", ".git. ./x", ".Git:x/y", ".git::$INDEX_ALLOCATION/x", "a\\.git\\x"]


@pytest.mark.parametrize("path", UNSAFE)
def test_a_path_that_leads_elsewhere_is_refused_for_every_caller(path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(Invalid, match=r"not a safe path|not in git"):
        parse_patch(patch)
    with pytest.raises(Invalid, match="not a safe path"):
        check_path(path)


@pytest.mark.parametrize("path", [".gitignore", "git", "a/.github/x", "..x", "...", "x..", " "])
def test_names_that_only_look_like_it_are_fine(path: str) -> None:
    assert is_safe(path)
    check_path(path)


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/x b/x\n@@ -1 +1 @@\n",
        "diff --git a/x b/x\n@@ -1 +1 @@\n?x\n",
        "diff --git a/x b/x\nGIT binary patch\nliteral 9\nzcmV\n\n",
        "diff --git a/x b/x\nGIT binary patch\ndelta 5\n\n",
        'diff --git "a/x\n',
    ],
)
def test_what_is_cut_or_of_another_format_is_refused(patch: str) -> None:
    with pytest.raises(Invalid, match="not in git's format"):
        parse_patch(patch)


def test_lines_before_the_first_file_are_remarks() -> None:
    assert parse_patch("# left out, too large: big.bin\n") == []


def test_a_binary_content_is_read_whole_or_refused() -> None:
    patch = patch_of("x", None, b"\0one")
    (part,) = parse_patch(patch.rstrip("\n"))  # as it ends where the last line does
    assert (part.binary, part.result(b"")) == (True, b"\0one")
    with pytest.raises(Invalid, match="a binary content is incomplete"):
        parse_patch(patch.replace("literal 4", "literal 5"))


@pytest.mark.parametrize(("executable", "mode"), [(True, "100755"), (False, "100644")])
def test_a_part_is_made_for_a_new_file(executable: bool, mode: str) -> None:
    part = created_part("a/b", b"x\n", executable=executable)
    assert (part.path, part.new_mode, part.new_id, part.result(b"")) == ("a/b", mode, blob_id(b"x\n"), b"x\n")


def test_a_patch_without_some_paths_keeps_all_others() -> None:
    kept = patch_of("src/a.py", b"1\n", b"diff --git a/x b/x\n"), patch_of("né w", None, b"x")
    gone = patch_of("tests/a.py", b"1\n", b"2\n"), patch_of('"odd" é', None, b"\0\1"), patch_of("tests", b"x", None)
    remark, paths = "# left out: z\n", ["tests/a.py", '"odd" é', "tests"]
    assert without("".join([remark, gone[0], kept[0], *gone[1:], kept[1]]), paths) == "".join([remark, *kept])
    assert without("".join(kept), []) == "".join(kept)
    assert without("diff --git broken\n", ["x"]) == "diff --git broken\n"


@pytest.mark.parametrize("path", ["src/old.py", "src/new.py"])
def test_a_file_that_was_renamed_has_two_paths(path: str) -> None:
    renamed = patch_of("src/new.py", b"1\n", b"1\n", source="src/old.py")
    assert without(renamed, [path]) == ""
    assert without(renamed, ["src"]) == renamed
