"""The patch of a workspace is one that git applies."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from deputize.shared.masking import SecretMask
from deputize.shared.patch_format import parse_patch
from deputize.worker.workspace.patches import Facts, quote_path, with_masked_binaries
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import TREES, directory, git_apply, plant, tree


async def test_a_patch_looks_as_git_writes_it(copied: Workspace) -> None:
    copied.files.write("src/main.py", b"one\n2\nthree")
    await copied.note_changes()
    copied.files.write("new file.txt", b"hello\n")
    assert (await copied.facts()).patch == (
        "diff --git a/src/main.py b/src/main.py\n"
        "index 4cb29ea38f70d7c61b2a3a25b02e3bdf44905402..a623a0b003e0a9d68f0cffe69882989f57df4d00 100644\n"
        "--- a/src/main.py\n"
        "+++ b/src/main.py\n"
        "@@ -1,3 +1,3 @@\n"
        " one\n"
        "-two\n"
        "-three\n"
        "+2\n"
        "+three\n"
        "\\ No newline at end of file\n"
        'diff --git "a/new file.txt" "b/new file.txt"\n'
        "new file mode 100644\n"
        "index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a\n"
        "--- /dev/null\n"
        '+++ "b/new file.txt"\n'
        "@@ -0,0 +1 @@\n"
        "+hello\n"
    )


async def test_git_applies_a_patch_of_every_kind_of_change(copied: Workspace, tmp_path: Path) -> None:
    path = copied.path
    copied.files.write("src/main.py", b"zero\none\ntwo\nthree")
    copied.files.write('odd "name"\twith\nall\\of it é', b"x\r\ny\r\n")
    copied.files.write("empty", b"")
    copied.files.write("logo.png", bytes(range(255, -1, -1)) * 20)
    copied.files.write("noise", os.urandom(5000))
    copied.files.write("latin", b"caf\xe9\n")
    (path / "src/deep/run.sh").rename(path / "run it.sh")
    (path / "link").unlink()
    (path / "link").symlink_to("elsewhere")
    (path / "out").unlink()
    (path / "out").write_text("a file now\n")
    (path / "src/kept.o").unlink()
    (path / "src/kept.o").mkdir()
    (path / "src/kept.o/below").write_text("a directory now\n")
    (path / "built.o").chmod(0o755)
    shutil.copytree(path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply((await copied.facts()).patch, tmp_path / "again") == ""
    assert tree(tmp_path / "again") == tree(path)


TOKEN = "ghp_" + "9fK2mQx7Lp0Rt5Vw8Zb3Nc6Hd1Js4GyTeAuX"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", ["shape", "known"])
@pytest.mark.parametrize("before", ["\0", "é\0", "\0" * 9000])
async def test_secrets_are_masked_in_binary_files_too(copied: Workspace, encoding: str, kind: str, before: str) -> None:
    secret = TOKEN if kind == "shape" else "hunter2-hunter2-hunter2"
    data = f"{before}key = {secret}\n{before}".encode(encoding)
    copied.files.write("secret.bin", data)
    copied.files.write("logo.png", bytes(range(255, -1, -1)) * 20)
    facts = with_masked_binaries(await copied.facts(), SecretMask(["hunter2-hunter2-hunter2"]).text)
    found = {
        part.path: part.literal or b"".join(b"".join(hunk.new) for hunk in part.hunks)
        for part in parse_patch(facts.patch)
    }
    masked = found["secret.bin"].replace(b"\0", b"").decode("latin-1")
    assert (secret in masked, "***" in masked) == (False, True)
    assert found["logo.png"] == bytes(range(255, -1, -1)) * 20


async def test_files_that_do_not_fit_are_left_out_by_name_and_the_rest_applies(
    copied: Workspace, tmp_path: Path
) -> None:
    copied.files.write("a big one", b"line\n" * 3000)
    copied.files.write("huge", b"line\n" * 2_000_000)
    copied.files.write("small", b"x\n")
    patch = (await copied.facts(max_bytes=10_000)).patch
    assert patch.startswith(
        '# left out, too large: "a big one"\n# left out, too large: huge\ndiff --git a/small b/small\n'
    )
    assert len(patch) < 10_000
    shutil.copytree(copied.path.with_name("base"), tmp_path / "again", symlinks=True)
    assert git_apply(patch, tmp_path / "again") == ""
    assert (tmp_path / "again/small").read_bytes() == b"x\n"


async def test_a_long_file_changed_throughout_takes_no_long_time(copied: Workspace, tmp_path: Path) -> None:
    lines = [f"{number % 3}\n" for number in range(100_000)]
    copied.files.write("long", "".join(lines).encode())
    workspace = await Workspace.create(directory(copied.path), "dlg_2", tmp_path / "more")
    workspace.files.write("long", "".join(f"{line}x\n" for line in lines).encode())
    async with asyncio.timeout(10):
        changes = (await workspace.facts()).changes
        patch = (await workspace.facts()).patch
    assert [(change.added_lines, change.removed_lines) for change in changes] == [(199_999, 99_999)]
    assert git_apply(patch, copied.path) == ""
    assert copied.files.read("long") == workspace.files.read("long")
    await workspace.remove()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain/name-1.txt", "a/plain/name-1.txt"),
        ("with space", '"a/with space"'),
        ('quo"te', '"a/quo\\042te"'),
        ("é", '"a/\\303\\251"'),
        ("new\nline", '"a/new\\012line"'),
    ],
)
def test_a_name_is_quoted_so_that_git_reads_it(path: str, expected: str) -> None:
    assert quote_path("a/", path) == expected


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TREES, after=TREES)
def test_a_patch_turns_any_tree_into_any_other(
    before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trees")
    (folder / "source").mkdir()
    plant(folder / "source", before)

    async def work() -> Facts:
        workspace = await Workspace.create(directory(folder / "source"), "dlg_1", folder / "root")
        plant(workspace.path, after)
        found = await workspace.facts()
        workspace.close()
        return found

    found = asyncio.run(work())
    assert git_apply(found.patch, folder / "source") == ""
    assert tree(folder / "source") == after
    told = {change.path for change in found.changes} | {change.from_ for change in found.changes} - {None}
    assert told == {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    shutil.rmtree(folder)
