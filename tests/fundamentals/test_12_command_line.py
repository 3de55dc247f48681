"""12. Command line: results on stdout, progress on stderr, and an exit code that shows how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deputize.orchestrator.home import StackInfo
from tests.orchestrator.command_line import PROGRAM, Done
from tests.orchestrator.command_line import deputize as run_program
from tests.runs.bench import call, say, script

WRITE = call("write_file", path="a.txt", content="a\n")
Deputize = Callable[..., Awaitable[Done]]


@pytest.fixture
def deputize(stack: StackInfo, tmp_path: Path) -> Deputize:
    """Runs `deputize` as a process of its own."""

    async def run(*arguments: str, stdin: str | None = None) -> Done:
        return await run_program(
            *arguments, stdin=stdin, cwd=tmp_path, DEPUTIZE_URL=stack.url, DEPUTIZE_TOKEN=stack.token
        )

    return run


async def test_run_prints_the_summary_on_stdout_and_progress_on_stderr(deputize: Deputize, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], [say("It is written.")])
    done = await deputize("run", "Write a file.", "--model", model)
    assert (done.code, done.out) == (0, "It is written.\n")
    progress = re.sub(r"[0-9.]+ s, [0-9]+ tokens", "1 s, 100 tokens", done.err.replace(model, "a script"))
    progress = re.sub(r"dlg_[0-9a-z]+", "dlg_…", progress.replace(PROGRAM, "deputize"))
    progress = re.sub(r"txt  [0-9.]+ s", "txt  0.1 s", progress)
    assert progress.splitlines()[4:] == [
        "note: a script answers here (a script), not a language model",
        "turn 1  ✓ write a.txt  0.1 s",
        "✓ succeeded (completed): 2 turns, 1 tool call, 1 s, 100 tokens, –",
        "  created a.txt (+1 -0)",
        "  to fetch its files: deputize pull dlg_…",
    ]


async def test_a_limit_ends_with_5_and_what_was_found_so_far(deputize: Deputize, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], [WRITE], summary="One turn was not enough.")
    done = await deputize("run", "Write twice.", "--model", model, "--max-turns", "1")
    assert (done.code, done.out) == (5, "One turn was not enough.\n")


async def test_for_programs_json_has_the_whole_result_on_one_line(deputize: Deputize, tmp_path: Path) -> None:
    done = await deputize("run", "Say hello.", "--json", "--model", script(tmp_path, [say("Hello.")]))
    (line,) = done.out.splitlines()
    assert {name: json.loads(line)[name] for name in ("status", "summary", "errors")} == {
        "status": "succeeded",
        "summary": "Hello.",
        "errors": [],
    }


async def test_detach_prints_an_id_and_watch_and_show_take_it(deputize: Deputize, tmp_path: Path) -> None:
    started = await deputize("run", "Write a file.", "--detach", "--model", script(tmp_path, [WRITE], [say("Done.")]))
    id = started.out.strip()
    watched, patch = await deputize("watch", id), await deputize("show", id, "--patch")
    assert (started.code, watched.code, patch.code) == (0, 0, 0)
    assert patch.out.splitlines()[3:] == ["--- /dev/null", "+++ b/a.txt", "@@ -0,0 +1 @@", "+a"]


async def test_steps_show_what_they_changed_and_a_retry_begins_with_any_turn(
    deputize: Deputize, tmp_path: Path
) -> None:
    more = [call("bash", command="echo b >> a.txt; echo c > c.txt"), call("bash", command="rm c.txt")]
    model = script(tmp_path, [WRITE], more, [say("Done.")])
    id = json.loads((await deputize("run", "Write.", "--json", "--model", model)).out)["delegationId"]
    shown = [line.strip() for line in (await deputize("show", id, "--steps")).out.splitlines()]
    assert {"created a.txt (+1 -0)", "modified a.txt (+1 -0)", "created c.txt (+1 -0)", "deleted c.txt (+0 -1)"} <= {
        *shown
    }
    assert "    +b" in (await deputize("show", id, "--transcript")).out.splitlines()
    for turn, text in ((1, "a\nb\n"), (2, "a\nb\n"), (3, "a\nb\n")):
        again = json.loads((await deputize("retry", id, "--from-turn", str(turn), "--json")).out)
        assert again["filesModified"] == ["a.txt"], again
        assert again["toolCallCount"] == (3, 2, 0)[turn - 1]
        await deputize("pull", again["delegationId"], "--into", str(tmp_path / f"{turn}"))
        assert (tmp_path / f"{turn}" / "a.txt").read_text() == text


async def test_batch_reads_a_request_per_line_and_writes_a_result_per_line(deputize: Deputize, tmp_path: Path) -> None:
    model = script(tmp_path, [say("Done: {{task /one|two/}}.")])
    lines = "".join(json.dumps({"task": task, "model": model}) + "\n" for task in ("one", "two"))
    done = await deputize("batch", "-", "--json", stdin=lines)
    results = sorted(map(json.loads, done.out.splitlines()), key=lambda result: result["line"])
    assert [(result["line"], result["summary"]) for result in results] == [(1, "Done: one."), (2, "Done: two.")]


async def test_wrong_usage_ends_with_2_and_names_what_was_meant(deputize: Deputize) -> None:
    done = await deputize("run", "Say hello.", "--max-turn", "3")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == (
        "Error: No such option '--max-turn'; did you mean --max-turns or --from-turn or --max-tokens?"
    )
