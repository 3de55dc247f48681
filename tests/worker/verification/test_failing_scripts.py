"""Programs of tests that are made to fail: each prints its word and fails, behind what it loads."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from deputize.worker.verification.sources.failing_scripts import failing, make_fail

PROGRAMS = {
    "run.sh": ("sh", 'failed=0\nis() {\n    echo "$1"\n}\nif true; then\n    is a\nfi\nexit $failed\n'),
    "check": ("sh", "#!/bin/sh\nfor each in a b; do\n  echo $each\ndone\nexit 0\n"),
    "a.t": ("perl", 'use strict;\nprint "1..1\\n";\nprint "ok 1\\n";\n__END__\nexit 0;\n'),
    "check.py": (
        "python3",
        "import sys\n\ndef main():\n    return 0\n\nif __name__ == '__main__':\n    sys.exit(main())\n",
    ),
    "test.js": (
        "node",
        "const main = async () => {\n  return 0;\n};\nmain().then((code) => {\n  process.exit(code);\n});\n",
    ),
}
PRINT = {
    "text.sh": ("sh", "#!/bin/sh\ncat <<'EOF'\nAll is\ngood\nEOF\n"),
    "expanded.sh": ("sh", "#!/bin/sh\ncat <<EOF\nAll is\ngood\nEOF\n"),
    "lines.sh": ("sh", 'echo "all\nis fine"\n'),
    "text.py": ("python3", 'n = 3\nprint(f"""All {n}\nok\n""")\n'),
    "text.js": ("node", "console.log(`All\nis fine\n`)\n"),
    "text.pl": ("perl", "print <<EOF;\nAll is\ngood\nEOF\n"),
    "text.rb": ("ruby", "puts <<EOF\nAll is\ngood\nEOF\n"),
    "text.lua": ("lua", "print([[All\nis fine]])\n"),
    "text.php": ("php", '<?php\necho "All\nis fine";\n'),
    "text.tcl": ("tclsh", 'puts "All\nis fine"\n'),
}
"""Programs that print a text whose last line seems to be a statement."""
LEFT = {
    "all.awk": "END { exit 0 }\n",
    "main.go": "package main\nfunc main() {}\n",
    "one.sh": "exit 0\n",
    "lib.c": "int f(void) {\n  return 1;\n}\n",
    "data.json": "{}\n",
}


@pytest.mark.parametrize("path", PROGRAMS)
def test_a_program_prints_its_word_and_fails_behind_what_it_loads(tmp_path: Path, path: str) -> None:
    program, text = PROGRAMS[path]
    if not shutil.which(program):
        pytest.skip(f"needs {program}")
    changed = failing(path, text, "xword")
    assert changed is not None
    assert changed.startswith(text.partition("\n")[0])
    (tmp_path / path).write_text(changed)
    done = subprocess.run([program, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "xword" in done.stdout


@pytest.mark.parametrize("path", PRINT)
def test_a_program_does_not_print_its_word_where_the_statement_is_in_a_text(tmp_path: Path, path: str) -> None:
    program, text = PRINT[path]
    changed = failing(path, text, "xword")
    assert changed is not None
    assert "xword" not in changed
    if shutil.which(program):
        (tmp_path / path).write_text(changed)
        done = subprocess.run([program, path], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "xword" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", LEFT)
def test_what_has_no_end_that_can_fail_is_left(path: str) -> None:
    assert failing(path, LEFT[path], "xword") is None


@pytest.mark.parametrize("head", ["int main(void) {", "int\nmain (int argc, char *argv[])\n{"])
def test_main_in_c_fails_at_its_last_return(tmp_path: Path, head: str) -> None:
    start = f"#include <stdio.h>\nstatic int bad(void);\n{head}\n  if (bad()) {{\n    return 1;\n  }}\n"
    text = f"{start}  return 0;\n}}\nstatic int bad(void) {{\n  return 0;\n}}\n"
    changed = failing("test.c", text, "xword")
    assert changed
    assert changed.startswith(start)
    assert changed.index("return 3") < changed.index("static int bad(void) {")
    if shutil.which("cc"):
        (tmp_path / "test.c").write_text(changed)
        subprocess.run(["cc", "test.c", "-o", "test"], cwd=tmp_path, check=True)
        done = subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, "xword\n")


def test_a_file_in_c_that_begins_many_functions_is_read_in_linear_time() -> None:
    def cost(times: int) -> float:
        text = "int main(\n" * times
        began = time.thread_time()
        assert failing("test.c", text, "xword") is None
        return time.thread_time() - began

    assert min(cost(20_000) for _ in range(3)) < 20 * min(cost(2_000) for _ in range(3)) + 0.05


@pytest.mark.parametrize(
    ("named", "made"),
    [
        ({"tests/run.sh"}, {"tests/run.sh"}),
        ({"src/lib.sh", "Makefile"}, {"src/lib.sh"}),
        (set[str](), {"tests/run.sh", "tests/more.sh"}),
    ],
)
def test_programs_that_the_command_names_are_made_to_fail_else_all_tests(named: set[str], made: set[str]) -> None:
    files: dict[str, bytes] = dict.fromkeys(
        ("tests/run.sh", "tests/more.sh", "src/lib.sh", "Makefile"), b"a=1\nexit $a\n"
    )
    words = make_fail([*files], named, files.get, files.__setitem__)
    assert {*words} == made
    halves = {path: (word[: len(word) // 2], word[len(word) // 2 :]) for path, word in words.items()}
    assert all(f"{one} {two}".encode() in files[path] for path, (one, two) in halves.items())
    assert len({*words.values()}) == len(words)
