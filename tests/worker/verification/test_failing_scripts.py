"""Programs of tests that are made to fail: each prints its word and fails, behind what it loads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deputize.worker.verification.failing_scripts import failing, make_fail

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


@pytest.mark.parametrize("path", LEFT)
def test_what_has_no_end_that_can_fail_is_left(path: str) -> None:
    assert failing(path, LEFT[path], "xword") is None


def test_main_in_c_fails_at_its_last_return() -> None:
    text = "int main(void) {\n  if (bad()) {\n    return 1;\n  }\n  return 0;\n}\n"
    changed = failing("test.c", text, "xword")
    assert changed
    assert changed.index("return 1") < changed.index("xword") < changed.index("return 3") < changed.index("return 0")


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
    assert all(word.encode() in files[path] for path, word in words.items())
    assert len({*words.values()}) == len(words)
