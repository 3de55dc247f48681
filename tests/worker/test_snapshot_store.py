"""The snapshot store, a real S3 server: a run goes on where nothing of its files is, as after its last snapshot."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from deputize.shared.errors import Misconfigured, WorkspaceLost
from deputize.shared.request import DelegationRequest, DirectoryWorkspace, EmptyWorkspace
from deputize.shared.runs.record import FilesOf
from deputize.worker.fleet.janitor import Janitor, Presence
from deputize.worker.task import carry_out
from deputize.worker.workspace.generation import restore
from deputize.worker.workspace.snapshot_store import SnapshotStore, StoredRun
from deputize.worker.workspace.tree_copy import CopyTally
from deputize.worker.workspace.workspace import Workspace
from tests.runs.bench import call, open_bench, say, script
from tests.worker.workspace.trees import directory, git, tree

BUCKET = "s3://snapshots/fleet-1"
ODD = os.fsdecode(b"odd \xff\n.txt")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server with a bucket, named by the variables of AWS."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    names = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1", "ENDPOINT_URL": url}
    for name, value in (names | {"ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    urlopen(Request(f"{url}/snapshots", method="PUT")).close()
    yield url
    urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()
    server.stop()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with a file, a program, and links that lead nowhere and out."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    (folder / "gone.txt").write_text("gone\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "out").symlink_to("/etc/passwd")
    (folder / ODD).write_text("odd\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


async def test_a_run_goes_on_on_a_machine_that_has_none_of_its_files(
    endpoint: str, redis_url: str, tmp_path: Path, source: Path
) -> None:
    model = script(
        tmp_path,
        [call("write_file", path="a.txt", content="one\n"), call("bash", command="rm gone.txt; echo two >> a.txt")],
        [call("bash", command="echo 1 > begun; sleep 50")],
        [call("bash", command="echo three >> a.txt; ls")],
        [say("Done.")],
    )
    where = DirectoryWorkspace(kind="directory", path=str(source))
    async with open_bench(redis_url, tmp_path / "one", snapshot_store=BUCKET) as one:
        id = await one.accept(DelegationRequest(task="do it", model=model, workspace=where))
        await one.interrupt(id, (one.settings.workspaces / id / "files/begun").exists)
    shutil.rmtree(tmp_path / "one")
    shutil.rmtree(source)
    async with open_bench(redis_url, tmp_path / "two", name="worker-2", snapshot_store=BUCKET) as two:
        await carry_out(two.services, id)
        result = await two.result(id)
        assert (result.success, result.summary, result.attempts) == (True, "Done.", 2), result.errors
        assert {each.path: each.change for each in result.file_changes} == {"a.txt": "created", "gone.txt": "deleted"}
        files = two.settings.workspaces / id / "files"
        expected = {
            ODD: b"odd\n",
            "kept.txt": b"kept\n",
            "a.txt": b"one\ntwo\nthree\n",
            "run.sh": b"#!/bin/sh\n",
            "out": b"/etc/passwd",
        }
        assert {path: data for path, (_, data) in tree(files).items()} == expected
        assert git(files, "log", "--format=%s") == "first\n"
        assert git(files, "status", "--porcelain").split() == ["D", "gone.txt", "??", "a.txt"]
        *_, doubtful, last = await two.steps(id)
        assert "outcome unknown" in doubtful.error
        assert [each.path for each in last.changes] == ["a.txt"]
        assert SnapshotStore(BUCKET).names(id)


async def test_a_run_does_not_go_on_with_the_files_of_an_attempt_whose_claim_is_lost(
    redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store"
    model = script(tmp_path, [call("write_file", path="a", content="1")], [call("bash", command="touch b; sleep 50")])
    async with open_bench(redis_url, tmp_path / "one", snapshot_store=url) as one:
        id = await one.accept(DelegationRequest(task="do it", model=model))
        await one.interrupt(id, (one.settings.workspaces / id / "files/b").exists)
    log = tmp_path / "store" / id / "log.1"
    assert log.read_text().startswith('["1:')
    log.write_text('["1:lost"]' + log.read_text().partition("]")[2])
    async with open_bench(redis_url, tmp_path / "two", name="worker-2", snapshot_store=url) as two:
        await carry_out(two.services, id)
        result = await two.result(id)
    assert (result.termination_reason, result.attempts) == ("worker_lost", 2)
    assert "its files are not all in the snapshot store" in result.summary


class Fleet:
    """Machines with one folder each, over one store."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder, self.source = folder, source
        (folder / "store").mkdir()
        self.store = SnapshotStore(f"file://{folder}/store")

    async def opened(
        self, machine: str, attempt: int, since: int = 0, count: int = 0, fence: str = "", before: str = ""
    ) -> Workspace:
        stored = StoredRun(self.store, "dlg_1", attempt, fence or f"{attempt}:a")
        fill = partial(stored.fill, since=since, count=count, calls=["1-1"], before=before)
        root = self.folder / machine
        restore = None if attempt == 1 else fill
        made = await Workspace.create(directory(self.source), "dlg_1", root, attempt=attempt, restore=restore)
        await made.store_in(stored)
        return made


@pytest.fixture
def fleet(tmp_path: Path, source: Path) -> Fleet:
    return Fleet(tmp_path, source)


async def test_a_worker_without_its_lease_changes_nothing_of_what_later_attempts_find(fleet: Fleet) -> None:
    first = await fleet.opened("one", 1)
    first.files.write("a", b"1")
    await first.note_changes("s1")
    second = await fleet.opened("two", 2, count=1)
    first.files.write("zombie", b"x")
    await first.note_changes("s2")
    third = await fleet.opened("three", 3, count=1)
    for each in (second, third):
        assert (each.path / "a").read_bytes() == b"1"
        assert not (each.path / "zombie").exists()
        assert each.status_folder.joinpath("1-1").exists()  # a command that may have begun is in doubt
    assert [change.path for change in (await third.facts()).changes] == ["a"]
    for each in (first, second, third):
        each.close()


async def test_of_two_attempts_of_one_number_the_files_are_those_of_the_one_whose_claim_is_kept(fleet: Fleet) -> None:
    first = await fleet.opened("one", 1)
    first.files.write("a", b"1")
    await first.note_changes("s1")
    lost = await fleet.opened("two", 2, count=1, fence="2:lost", before="1:a")
    kept = await fleet.opened("three", 2, count=1, fence="2:kept", before="1:a")
    for each in (lost, kept):
        each.files.write("b", each.path.parents[1].name.encode())
    await lost.note_changes("s2")
    await kept.note_changes("s2")
    third = await fleet.opened("four", 3, count=2, before="2:kept")
    assert (third.path / "b").read_bytes() == b"three"
    await lost.note_changes("s3")
    lost.files.write("c", b"")
    await lost.note_changes("s4")
    fourth = await fleet.opened("five", 3, count=1, before="2:kept")  # it had changed nothing
    assert sorted(path.name for path in fourth.path.glob("[a-c]")) == ["a"]
    with pytest.raises(WorkspaceLost, match="steps are missing"):
        await fleet.opened("six", 3, count=2, before="2:kept")
    older = await fleet.opened("seven", 3, count=2)  # its claim has no fence of the attempt before
    for each in (first, lost, kept, third, fourth, older):
        each.close()


async def test_what_is_not_all_there_is_not_gone_on_with(fleet: Fleet) -> None:
    first = await fleet.opened("one", 1)
    first.files.write("a", b"1")
    shutil.rmtree(fleet.folder / "store/dlg_1/objects", ignore_errors=True)
    (fleet.folder / "store/dlg_1/objects").write_bytes(b"in its way")  # the store fails
    await first.note_changes("s1")
    with pytest.raises(WorkspaceLost, match="steps are missing"):
        await fleet.opened("two", 2, count=1)
    (fleet.folder / "store/dlg_1/objects").unlink()
    first.files.write("b", b"2")
    await first.note_changes("s2")
    second = await fleet.opened("two", 2, count=2)
    assert sorted(path for path in tree(second.path) if len(path) == 1) == ["a", "b"]
    second.close()
    with pytest.raises(WorkspaceLost, match="steps are missing"):
        await fleet.opened("three", 3, since=2, count=1)  # that try has no log
    shutil.rmtree(fleet.folder / "store/dlg_1/objects")
    with pytest.raises(WorkspaceLost, match="cannot be taken from the snapshot store"):
        await fleet.opened("four", 3, count=2)
    first.close()


async def test_a_retry_from_a_turn_goes_on_elsewhere_with_all_changes_since_the_first_start(fleet: Fleet) -> None:
    first = await fleet.opened("one", 1)
    first.snapshots.turn = lambda: 1
    first.files.write("a", b"1\n")
    await first.note_changes("s1")
    first.close()
    fill = partial(restore, fleet.folder / "one", FilesOf("dlg_1", 2), tally=CopyTally())
    again = await Workspace.create(EmptyWorkspace(), "dlg_1", fleet.folder / "two", restore=fill)
    await again.store_in(StoredRun(fleet.store, "dlg_1", 1, "1:a"))
    again.files.write("b", b"2\n")
    await again.note_changes("s2")
    expected = tree(again.path), await again.facts()
    again.close()
    elsewhere = await fleet.opened("three", 2, count=2)
    assert (tree(elsewhere.path), await elsewhere.facts()) == expected
    assert [change.path for change in expected[1].changes] == ["a", "b"]
    elsewhere.close()


async def test_what_is_deleted_here_is_deleted_there(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    async with open_bench(redis_url, tmp_path / "home", snapshot_store=f"file://{tmp_path}/store") as bench:
        model = script(tmp_path, [call("write_file", path="a", content="1")], [say("Done.")])
        gone, kept = [(await bench.run(model=model)).delegation_id for _ in range(2)]
        store, presence = bench.services.snapshots, Presence(bench.store, bench.bus, "eye")
        assert store is not None
        assert {name.partition("/")[0] for name in store.names(gone)} == {"start.tar", "log.1", "objects"}
        janitor = Janitor(bench.settings, bench.store, bench.bus, presence, bench.sent.extend, store)
        shutil.rmtree(bench.settings.workspaces / kept)
        assert await janitor.sweep(0) == 1
        assert (store.names(gone), bool(store.names(kept))) == ([], True)
        store.delete(gone)


def test_a_store_that_cannot_be_is_named() -> None:
    with pytest.raises(Misconfigured, match="nowhere://x cannot be opened"):
        SnapshotStore("nowhere://x")


def test_without_the_extra_the_setting_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(
        Misconfigured, match=r"^DEPUTIZE_SNAPSHOT_STORE needs obstore: `pip install '\.\[s3\]'` in a clone of deputize;"
    ):
        SnapshotStore(BUCKET)
