"""Scripts of awk and sed, with the real programs as judges: one that starts something is never taken for harmless."""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from deputize.worker.policy.shell.scripts import script_of

SED = (
    *("e mark", "emark", "1emark", "s/x/mark/e", "s/x/mark/ep", "s,x,mark,2e", "s|[|]||e", "s/[/]e/x/", "s/\\//x/"),
    *(
        "p",
        "1,/x/p",
        "/[/]/p",
        "/e/!{",
        "}",
        "a e mark",
        "i\\\ne mark",
        "c\\",
        "w e mark",
        "r e",
        "y/e/x/",
        "b e",
        ":e",
    ),
    *(
        "s/x/\\\ne mark/",
        "s/[^/]/e/",
        "s/[]/]/x/",
        "s/[\\/]/e/",
        "#e mark",
        "$!N",
        "q5",
        "h;G",
        "1~2d",
        "s/a/b/w e mark",
    ),
    *("e", "1", "/x/", "!", "{e mark", "\\,x,p", "x;s/$/mark/;e", "se[e]emarke", "s e.e.e"),
)
AWK = (
    *('system("mark")', 'system("ma" "rk")', 'print "x" | "mark"', '"mark" | getline', 'x = "ma" "rk"; x | getline'),
    *("/|/", '/"/', "/[/]/", '/[/"]/', "x = 4 /2", "y /2", 'if (1) /"/', 'print /"/', '"\\""', '"|"', "x || y", "#"),
    *('print "a" "mark"', 'x = y ? /"/ : 1', "length /2", 'print "mark" | "sh"', 'return /"/', '($1)/"/', "x++ /2"),
    *('print 1 | "ma" "rk"', "{", "}", "BEGIN {", "(", ")", '"', "/", "\\", "system", '("mark")', "|", "z[1]/2", "end"),
)
STARTED = "mark"


def ran(folder: Path, program: list[str], scripts: list[str]) -> set[int]:
    """The numbers of those scripts with which the program starts the command."""
    (folder / "bin").mkdir()
    (folder / "bin/mark").write_text('#!/bin/sh\necho "$NUMBER" >> "$RAN"\n')
    (folder / "bin/mark").chmod(0o755)
    (folder / "f").write_text("x\nmark\nx x\n")
    for number, script in enumerate(scripts):
        env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "NUMBER": str(number), "RAN": str(folder / "ran")}
        with suppress(subprocess.TimeoutExpired):  # some go on for ever
            subprocess.run([*program, script, "f"], cwd=folder, env=env, capture_output=True, timeout=1, stdin=-3)
    found = folder / "ran"
    return {int(line) for line in found.read_text().split()} if found.exists() else set()


@pytest.mark.parametrize(
    ("name", "parts", "joints"), [("sed", SED, (";", "\n", " ", "")), ("awk", AWK, ("; ", "\n", " "))]
)
def test_no_script_that_starts_something_is_taken_for_harmless(
    tmp_path: Path, name: str, parts: tuple[str, ...], joints: tuple[str, ...]
) -> None:
    chance = random.Random(37)
    whole = "BEGIN { x = 1; %s }" if name == "awk" else "%s"
    mixed = [
        "".join(f"{chance.choice(parts)}{chance.choice(joints)}" for _ in range(chance.randint(1, 4)))
        for _ in range(160)
    ]
    scripts = [*(whole % each for each in (*parts, *mixed)), *mixed[:80]]
    started = ran(tmp_path, [name], scripts)
    assert len(started) > 20
    for number in started:
        script = script_of(name, [scripts[number], "f"], "")
        assert script, scripts[number]
        assert script.starts_others or {"mark", "sh"} & {*script.text.split()}, scripts[number]


def test_other_programs_have_no_script() -> None:
    assert script_of("cat", ["e"], "") is None


@pytest.mark.parametrize("name", ["awk", "sed"])
def test_reading_a_script_takes_linear_time(name: str) -> None:
    """The test of growth measures whole lines; here each part of a script is repeated."""
    for part in (*AWK, *SED, "s/", "[", "\\", '"', "|", "system", "(", "a\\\n", "1,", "/x", "b"):
        script_of(name, [part * (40_000 // len(part))], "")
