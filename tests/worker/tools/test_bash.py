"""bash: output, exit codes, time, and where it runs."""

from __future__ import annotations

import asyncio
import re

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.settings import Settings
from deputize.worker.contracts import Command, Completed
from deputize.worker.core.prompt import system_prompt
from deputize.worker.sandbox.environment import HOST, OFFLINE
from deputize.worker.text.output import AnsiOutput
from deputize.worker.tools.bash import Bash, BashParams
from deputize.worker.tools.command_calls import DEFAULT_TIMEOUT, MAX_TIMEOUT, effective_timeout, shell
from deputize.worker.tools.command_hints import command_hints
from tests.runs.toolbench import EVERYTHING, Toolbench
from tests.waiting import until

PROGRESS = "for n in $(seq 3000); do printf '\\rstep %s of 3000' $n; done; echo; seq 3000 | tr '\\n' '\\r' >&2"


@pytest.mark.requirement("S001-037", "S001-039", "S001-040", "S001-043", "S000-061", "S004-019")
@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("true", "(no output)"),
        ("read -r line || echo nobody answers", "nobody answers"),
        ('pwd; ls; [[ "$BASH_VERSION" ]] && echo bash; x=(1 2); echo ${x[1]}', "/workspace\na.txt\nbash\n2"),
        (PROGRESS, "step 3000 of 3000\n[stderr]\n3000"),
        (r"printf 'caf\xe9'", "caf\ufffd"),
        ("echo out", "out"),
        ("echo err >&2", "[stderr]\nerr"),
        ("echo out; echo err >&2", "out\n[stderr]\nerr"),
        ("echo out; echo err >&2; exit 3", "out\n[stderr]\nerr\n[exit code: 3]"),
        ("exit 1", "[exit code: 1]"),
        ("printf 'a\\n\\n b \\n\\n'", "a\n\n b "),
        ("nosuchprogram 2>/dev/null", "[exit code: 127]"),
    ],
)
async def test_output_errors_and_exit_code_in_this_order(desk: Toolbench, command: str, content: str) -> None:
    desk.write("a.txt", "x")
    assert (await desk.call("bash", command=command)).content == content


async def test_a_command_that_is_killed_has_the_exit_code_of_its_signal(desk: Toolbench) -> None:
    assert (await desk.call("bash", command="kill -9 $$")).content.endswith("[exit code: 137]")


@pytest.mark.requirement("S000-108")
async def test_a_failed_command_is_a_failure_whose_output_the_model_still_reads(desk: Toolbench) -> None:
    result = await desk.call("bash", command="echo made; false")
    assert (result.success, result.error_type) == (False, ErrorType.EXECUTION_FAILED)
    assert result.for_model == "Error: the command ended with exit code 1\nmade\n[exit code: 1]"
    assert result.metadata["exitCode"] == 1


@pytest.mark.requirement("S000-073", "S001-038", "S001-044")
async def test_a_command_out_of_time_is_killed_and_its_output_is_kept(desk: Toolbench) -> None:
    result = await desk.call("bash", command="echo before; sleep 99 & sleep 99; echo after", timeout=1)
    assert (result.success, result.error_type) == (False, ErrorType.TIMEOUT)
    assert result.for_model == (
        "Error: the command was stopped after 1 second, with all that it had started. If it waits for input, "
        "pass the input in the command, or set a longer timeout (at most 600). The output so far:\nbefore"
    )
    assert result.metadata["timedOut"] is True
    assert 1 <= result.metadata["seconds"] < 30


async def test_nothing_that_a_command_started_goes_on_after_it(desk: Toolbench) -> None:
    """The fixture ``nothing_left_behind`` looks for the process; this test makes one."""
    result = await desk.call("bash", command="setsid nohup sleep 99 >/dev/null 2>&1 & echo started")
    assert result.content.startswith("started\n[Processes of the command ended with it: ")


@pytest.mark.requirement("S000-062", "S000-063", "S001-011")
async def test_a_timeout_in_milliseconds_is_clamped_and_reported(desk: Toolbench) -> None:
    result = await desk.call("bash", command="echo hi", timeout=30000)
    assert result.content == "hi\n[timeout: 30000 is more than allowed; 600 seconds were used]"
    assert (await desk.call("bash", command="echo hi", timeout=600)).content == "hi"
    for timeout in (0, -5, None):
        assert (await desk.call("bash", command="echo hi", timeout=timeout)).content == "hi"


@pytest.mark.requirement("S000-062")
def test_the_default_is_two_minutes() -> None:
    assert (BashParams(command="x").timeout, DEFAULT_TIMEOUT, MAX_TIMEOUT) == (120, 120, 600)


def test_the_operator_sets_how_long_a_command_may_take_and_the_model_learns_it() -> None:
    configured = Bash().configured(Settings.load(environ={"DEPUTIZE_SANDBOX_COMMAND_SECONDS": "45"}))
    assert "when its time is over, after 45 seconds at the latest." in " ".join(configured.description.split())
    assert Bash().configured(Settings.load(environ={})).description == Bash().description
    assert [effective_timeout(asked, 45) for asked in (0, 10, DEFAULT_TIMEOUT)] == [(45, ""), (10, ""), (45, "")]
    assert effective_timeout(46, 45) == (45, "[timeout: 46 is more than allowed; 45 seconds were used]")


def test_the_model_learns_which_hosts_commands_may_reach() -> None:
    settings = Settings.load(environ={"DEPUTIZE_SANDBOX_ALLOWED_HOSTS": "example.org,*.example.com"})
    described = " ".join(Bash().configured(settings).description.split())
    assert "reaches example.org, *.example.com, by the proxy in HTTPS_PROXY, and nothing else; there is no" in described
    assert "There is no network, and no input" in " ".join(Bash().description.split())
    assert "whose network reaches example.org only." in system_prompt("/workspace", hosts=("example.org",))


async def test_each_command_starts_anew(desk: Toolbench) -> None:
    await desk.call("bash", command="cd /tmp; export X=1; echo kept > /workspace/kept.txt")
    assert (await desk.call("bash", command="pwd; echo [$X]; cat kept.txt")).content == "/workspace\n[]\nkept"


@pytest.mark.requirement("S000-059", "S000-060")
def test_which_shell_runs_a_command() -> None:
    assert shell("ls", has_bash=True, system="linux") == ["bash", "--noprofile", "--norc", "-c", "ls"]
    assert shell("ls", has_bash=False, system="linux") == ["sh", "-c", "ls"]
    assert shell("ls", has_bash=True, system="win32") == ["powershell.exe", "-NoProfile", "-Command", "ls"]


@pytest.mark.requirement("S002-015")
async def test_the_end_of_the_output_is_live_while_it_runs(desk: Toolbench) -> None:
    running = asyncio.create_task(desk.call("bash", command="echo begun; while ! [ -e go ]; do sleep 0.01; done"))
    await until(lambda: desk.news)
    assert desk.news == [(None, {"output": "begun\n"})]
    desk.write("go")
    assert (await running).content == "begun"


async def test_live_news_are_few_and_short(desk: Toolbench) -> None:
    await desk.call("bash", command="yes whole | head -c 3000000")
    assert len(desk.news) < 20
    assert all(len(fields["output"]) <= 2000 for _, fields in desk.news)
    assert all(fields["output"].startswith("whole\n") for _, fields in desk.news)


@pytest.mark.requirement("S001-041")
async def test_long_output_keeps_both_ends(desk: Toolbench) -> None:
    result = await desk.call("bash", command="echo first; seq 1 20000; echo last; exit 2")
    assert result.content.startswith("first\n1\n2\n")
    assert "\nlast\n[exit code: 2]\n<system_hint" in result.content


async def test_a_flood_is_counted_and_not_kept(desk: Toolbench) -> None:
    result = await desk.call("bash", command="yes | head -c 9000000")
    assert len(result.content) < 9000
    assert "bytes of output exceeded the limit and were dropped]" in result.content


async def test_a_cancelled_command_is_killed(desk: Toolbench) -> None:
    running = asyncio.create_task(desk.call("bash", command="echo begun; sleep 99"))
    await until(lambda: desk.news)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_without_a_sandbox_nothing_runs(bare_desk: Toolbench) -> None:
    result = await bare_desk.call("bash", command="touch ran")
    assert result.error_type is ErrorType.SANDBOX_UNAVAILABLE
    assert not (bare_desk.root / "ran").exists()


async def test_a_nul_character_is_refused(desk: Toolbench) -> None:
    assert (await desk.call("bash", command="echo a\0b")).error_type is ErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("S001-010")
def test_the_description_warns_of_dangerous_commands_and_long_output() -> None:
    said = EVERYTHING["bash"].description
    assert "Dangerous commands (such as rm -rf) may wait for a person's approval" in said
    assert "Over-long output is cut" in said


@pytest.mark.requirement("S004-037")
async def test_colours_are_for_people_and_not_for_the_model(desk: Toolbench) -> None:
    tool = EVERYTHING["bash"]
    coloured = "printf '\\033[1;31mred\\033[0m and plain\\n'; exit 3"
    result = await tool.run(desk.context(), tool.parse({"command": coloured}))
    assert result.content == "red and plain\n[exit code: 3]"
    assert isinstance(result.display, AnsiOutput)
    assert result.display.output == "\x1b[1;31mred\x1b[0m and plain\n[exit code: 3]"
    assert (await desk.call("bash", command="echo plain")).display == ""


@pytest.mark.parametrize("has_bash", [True, False])
async def test_the_text_of_a_command_is_in_no_process_of_the_run(desk: Toolbench, has_bash: bool) -> None:
    line = "pgrep -f uncommon; pkill -f uncommon; cat /proc/[0-9]*/cmdline >all; grep -c uncommon all; echo after"
    done = await desk.sandbox.run(Command(shell(line, has_bash=has_bash), 30))
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"0\nafter\n", b"")


async def test_a_command_inherits_no_descriptor_of_its_text_and_keeps_its_name(desk: Toolbench) -> None:
    shown = await desk.call("bash", command='ls /proc/self/fd; echo "$0 $#"; nosuchprogram')
    assert (
        shown.content
        == "0\n1\n2\n3\nbash 0\n[stderr]\nbash: line 1: nosuchprogram: command not found\n[exit code: 127]"
    )


async def test_the_own_name_of_the_machine_is_known_and_reveals_nothing_of_the_host(desk: Toolbench) -> None:
    assert (await desk.call("bash", command="hostname")).content == HOST
    look_up = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    assert (await desk.call("bash", command=f"python3 -c '{look_up}'")).content == "127.0.0.1"


async def test_git_shows_paths_as_every_tool_takes_them(desk: Toolbench) -> None:
    lines = (
        "git init -q . && mkdir größe && echo x >'größe/日本 1.txt' && git add . && git status --short && git ls-files"
    )
    assert (await desk.call("bash", command=lines)).content == 'A  "größe/日本 1.txt"\ngröße/日本 1.txt'


@pytest.mark.long
async def test_installers_try_once_where_there_is_no_network(desk: Toolbench) -> None:
    failed = await desk.call("bash", command="cd /tmp; npm install --loglevel http nothing-of-this-name; env")
    assert any(reason in failed.content for reason in ("ENOTFOUND", "EAI_AGAIN", "npm: command not found"))
    assert "attempt 2" not in failed.content
    assert {f"{name}={value}" for name, value in OFFLINE.items()} <= {*failed.content.splitlines()}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("curl -sS http://localhost:8000", True),
        ("curl -s http://localhost:8000", True),
        ("(exec 3<>/dev/tcp/127.0.0.1/8000) 2>&1; true", True),
        ("python3 -c 'import socket; socket.create_connection((\"localhost\", 8000))' 2>&1 | tail -1", True),
        ("echo fine", False),
    ],
)
async def test_a_refused_connection_beside_a_background_command_is_explained(
    desk: Toolbench, command: str, said: bool
) -> None:
    alone = await desk.call("bash", command=command)
    await desk.call("bash", command="sleep 1000", run_in_background=True)
    beside = await desk.call("bash", command=command)
    assert ["in one command line: server &" in each.content for each in (alone, beside)] == [False, said]
    alone_text, beside_text = (re.sub(r"after \d+ ms", "after N ms", each.content) for each in (alone, beside))
    assert beside_text.startswith(alone_text)


async def test_what_python_printed_is_known_where_it_is_stopped(desk: Toolbench) -> None:
    done = await desk.call("bash", command="python3 -c \"print('begun'); import time; time.sleep(99)\"", timeout=3)
    assert done.content == "begun"


EMPTY = "[/tmp and the home folder are empty at the start of each command"


@pytest.mark.parametrize(
    ("command", "gone"),
    [
        ("echo 1 >/tmp/a.py", "a.py"),
        ("git config --global user.name A", ".gitconfig"),
        ("mkdir ~/.ssh; touch $HOME/b", "b, .ssh"),
        ("cd ~ && python3 -m venv --without-pip v", "v"),
        ("for n in 1 2 3 4 5 6; do touch /tmp/$n; done", "1, 2, 3, 4, 5, …"),
        ("echo 1 >/tmp/a; rm /tmp/a", None),
        ("python3 -c \"open('/'+'tmp/x', 'w')\"", None),
        ("ls ~ /tmp", None),
    ],
)
async def test_files_that_do_not_last_are_named(desk: Toolbench, command: str, gone: str | None) -> None:
    content = (await desk.call("bash", command=command)).content
    assert (f"{EMPTY}. Gone now: {gone}. Keep in the workspace" in content) == (gone is not None)
    assert (EMPTY in content) == (gone is not None)


async def test_a_later_command_learns_why_its_file_is_missing(desk: Toolbench) -> None:
    assert EMPTY in (await desk.call("bash", command="cat /tmp/a.py")).content
    assert EMPTY in (await desk.call("bash", command="python3 /tmp/a.py")).content
    assert EMPTY not in (await desk.call("bash", command="cat a.py")).content


@pytest.mark.parametrize("command", ["sleep 99", "nohup sleep 99", "setsid sleep 99", "(sleep 99 &)"])
async def test_what_ended_with_its_command_is_named_also_to_a_later_one(desk: Toolbench, command: str) -> None:
    refused = "(exec 3<>/dev/tcp/127.0.0.1/8000) 2>&1; true"
    assert "had started" not in (await desk.call("bash", command=refused)).content
    started = f"{command} & until grep -qs sleep /proc/[0-9]*/comm; do :; done"
    content = (await desk.call("bash", command=started)).content
    assert "[Processes of the command ended with it: sleep. Start a server" in content
    later = (await desk.call("bash", command=refused)).content
    assert "[Processes of earlier commands ended with them: sleep. Start the server" in later
    assert "had started" not in (await desk.call("bash", command="echo fine; sleep 0.01 & wait")).content


@pytest.mark.parametrize(
    "command", ["git status", "git log --oneline | head -3", "git commit -qam x; true", "cd sub && git diff"]
)
@pytest.mark.parametrize("kind", ["link", "file", "none"])
async def test_a_repository_elsewhere_is_named_where_git_fails(desk: Toolbench, command: str, kind: str) -> None:
    desk.write("sub/a.txt", "a")
    if kind == "link":
        (desk.root / ".git").symlink_to("/elsewhere/project.git")
    elif kind == "file":
        desk.write(".git", "gitdir: /elsewhere/project.git\n")
    result = await desk.call("bash", command=command)
    assert "not a git repository" in result.content.lower()
    assert result.content.count("names a repository that lies elsewhere") == (kind != "none")


async def test_a_folder_whose_repository_lies_elsewhere_is_named_too(desk: Toolbench) -> None:
    desk.write("part/.git", "gitdir: ../.git/modules/part\n")
    result = await desk.call("bash", command="git -C part status")
    assert "names a repository that lies elsewhere" in result.content
    quoted = await desk.call("bash", command="echo 'git prints: fatal: not a git repository: x'")
    assert "lies elsewhere" not in quoted.content


async def test_a_command_that_found_the_disk_full_can_be_tried_again(desk: Toolbench) -> None:
    full = "[The disk was full while this ran"
    for done in (Completed(1, b"", b""), Completed(1, b"", b"", found_full_disk=True)):
        hints = command_hints(desk.files, desk.sandbox, "cp a b", done, "cp: b: No space left on device")
        assert (full in hints) is done.found_full_disk
    printed = await desk.call("bash", command="echo 'cp: a: No space left on device' >&2; exit 1")
    assert full not in printed.content
