"""What is given on the command line: texts from files and pipes, and every odd value refused in one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.sockets import free_port
from deputize.shared.errors import Invalid
from tests.orchestrator.command_line import PROGRAM, deputize, environment
from tests.orchestrator.fake_service import FakeService

USUAL = {"version": "--version`", "status": "list`", "ps": "list`", "logs": "show ID", "config": "settings`"}
"""Words of other tools, and where they lead to."""


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [(["-"], "Count it"), ([], "Count it"), (["@task.txt"], None), (["@bom.txt"], "ignored")],
    ids=["dash", "nothing", "file", "mark"],
)
async def test_the_task_comes_from_a_pipe_or_a_file(
    url: str, service: FakeService, tmp_path: Path, arguments: list[str], stdin: str | None
) -> None:
    tmp_path.joinpath("task.txt").write_text("Count it")
    tmp_path.joinpath("bom.txt").write_bytes(b"\xef\xbb\xbfCount it")
    done = await deputize("run", *arguments, "--detach", stdin=stdin, cwd=tmp_path, DEPUTIZE_URL=url)
    assert done.code == 0
    (delegation,) = service.runs.values()
    assert delegation.request.task == "Count it"


async def test_a_text_may_begin_with_the_sign_of_a_file(url: str, service: FakeService) -> None:
    await deputize("run", "@@anna says: count", "--expect", "@@", "--detach", DEPUTIZE_URL=url)
    (delegation,) = service.runs.values()
    assert (delegation.request.task, delegation.request.expected_outcome) == ("@anna says: count", "@")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument '[TASK|@FILE|-]'"),
        (["run", "-"], "task is blank"),
        (["run", "-", "--context", "-"], "only once"),
        (["run", "@none.txt"], "none.txt cannot be read: No such file"),
        (["run", "@."], "cannot be read: Is a directory"),
        (["run", "@latin.txt"], "not UTF-8"),
        (["run", "@/dev/zero"], "larger than a request may be"),
        (["run", "x", "--timeout", "nan"], "--timeout"),
        (["run", "x", "--max-cost", "inf"], "--max-cost"),
        (["run", "x", "--wait", "nan"], "--wait"),
        (["watch", "--wait", "inf"], "--wait"),
        (["prune", "--older-than", "nan"], "--older-than"),
        (["run", "x", "--tools", " ,"], "--tools"),
        (["run", "x", "--workspace", ""], "--workspace"),
        (["run", "x", "--wait", "1", "--detach"], "--wait"),
        (["list", "--label", "x"], "--label"),
        (["show", "dlg_0", "--events", "--patch"], "--events and --patch"),
        (["show", "dlg_0", "--patch", "--artifact", "a"], "--patch and --artifact"),
        (["show", "dlg_0", "--patch", "--json"], "--json"),
        (["lst"], "did you mean list?"),
        *(([word], f"No such command '{word}'; `deputize {ours}") for word, ours in USUAL.items()),
        (["stop"], "Ctrl-C ends `deputize up`"),
        (["trust", "."], "not used any more; name a deputize.toml with --config"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_what_cannot_be_meant_is_refused_with_its_name(
    url: str, service: FakeService, tmp_path: Path, arguments: list[str], said: str
) -> None:
    tmp_path.joinpath("latin.txt").write_bytes("zażółć".encode("latin2"))
    done = await deputize(*arguments, cwd=tmp_path, DEPUTIZE_URL=url)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert service.runs == {}


async def test_the_services_refusal_names_the_option(url: str, service: FakeService) -> None:
    service.away = Invalid("it does not exist", [{"pointer": "/workspace/path", "detail": "it does not exist"}])
    done = await deputize("run", "x", "--workspace", "/none", DEPUTIZE_URL=url)
    assert done.code == 2
    assert "deputize: --workspace: it does not exist" in done.err


def run_bytes(*arguments: bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment(**more).items()}
    command = [os.fsencode(PROGRAM), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize(
    "arguments", [b"run x\xff", b"run x --tools \xff", b"show \xff", b"\xff", b"list --label \xff"], ids=repr
)
def test_an_argument_that_is_no_text_is_refused(arguments: bytes) -> None:
    done = run_bytes(*arguments.split(), DEPUTIZE_URL=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert b"is not valid UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["URL", "TOKEN", "MODEL", "HOME", "REDIS_URL", "CONFIG", "WORKSPACE_ROOT"])
@pytest.mark.parametrize("value", ["\udcff", "http://[", "http://x:99999999/", "a\nb"], ids=ascii)
async def test_an_odd_setting_is_one_line(name: str, value: str, tmp_path: Path) -> None:
    variables: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "home"),
        f"DEPUTIZE_{name}": value,
        "DEPUTIZE_MODEL": "scripted",
    }
    if name == "HOME":
        variables["DEPUTIZE_HOME"] = str(tmp_path / "file" / value)
        tmp_path.joinpath("file").touch()
    variables.setdefault("DEPUTIZE_URL", f"http://127.0.0.1:{free_port()}")
    if name in ("HOME", "REDIS_URL"):
        del variables["DEPUTIZE_URL"]
    done = await deputize("run", "x", **variables)
    assert done.code in (2, 3)
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    assert "deputize: " in done.err
