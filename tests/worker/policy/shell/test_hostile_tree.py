"""Each line that is judged to only read runs in a tree that does all it can to be changed by that, and is not."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from deputize.worker.policy.shell import Decision, classify_line
from deputize.worker.policy.shell.programs import PROGRAMS
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import owner
from deputize.worker.sandbox.project_tools import ProjectTools
from tests.worker.policy.shell.bash_grammar import THAT_CHANGED_FILES
from tests.worker.sandbox.sandboxes import bash, sandbox_over

pytestmark = pytest.mark.system

SEED = 22
LINES = 500
EVIL = '#!/bin/sh\necho "$0 $*" >> /workspace/pwned\ncat 2>/dev/null\n'
KEYS = (
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.alternateRefsCommand", "diff.external",
    "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
    "gpg.program", "gpg.ssh.program", "interactive.diffFilter", "pager.log", "pager.diff", "alias.log", "alias.x",
)  # fmt: skip
"""What git starts programs by."""
MAKE_TREE = """
set -e
git init -q .; git config user.email a@b; git config user.name x
mkdir -p src sub .venv/bin node_modules/.bin; echo hi > src/a.py; echo x > f; echo y > 'a b'
echo 'a[$(touch pwned)]' > g
for name in -delete --output=pwned -rf --pre=evil.sh 'a[$(touch pwned)]' x=1 '$(touch pwned)' '|touch pwned'; do
    echo x > "./$name"
done
for name in $NAMES; do
    cp evil.sh ".venv/bin/$name"; cp evil.sh "node_modules/.bin/$name"; cp evil.sh "$name"
done
echo '* filter=evil diff=evil' > .gitattributes
git add -A; git commit -qm one; echo more >> f; echo more >> src/a.py; git commit -qam two
git tag v1; echo more >> f; git stash -q
git init -q inner; git -C inner -c user.email=a@b -c user.name=x commit -q --allow-empty -m x
git update-index --add --cacheinfo "160000,$(git -C inner rev-parse HEAD),inner"
printf '[submodule "inner"]\\n\\tpath = inner\\n\\turl = ./inner\\n\\tignore = none\\n' > .gitmodules
git -C inner config core.fsmonitor /workspace/evil.sh
cp .git/HEAD HEAD; cp .git/config config; mkdir -p refs/heads objects; cp -r .git/objects/. objects
git config --file config core.bare false; git config --file config core.worktree .
for key in $KEYS; do
    for file in .git/config config; do git config --file "$file" "$key" "/workspace/evil.sh $key"; done
done
git config --file .git/config log.showSignature true; git config --file .git/config filter.evil.required true
git config --file .git/config diff.ignoreSubmodules none
echo changed >> f
"""
_OPERANDS = ("f", "src/a.py", "src", ".", "g", "src/*", "HEAD", "HEAD~1", "x", "1", "'a b'", "v1", "inner",
             "-delete", "--output=pwned", "'a[$(touch pwned)]'", "--", "s/a/b/", "'{print $1}'", "+%s")  # fmt: skip
_OPTIONS = ("-n", "-a", "-p", "-r", "-i", "-e", "-f", "-s", "-1", "-5", "-S", "-G", "-o", "-c", "-z", "-C",
            "--ext-diff", "--textconv", "--output=pwned", "--output", "-O./evil.sh", "--pre=./evil.sh", "-exec",
            "-delete", "--stat", "--format=%G?", "-name", "-type", "-v", "-w", "--all")  # fmt: skip


def random_line(random: Random) -> str:
    """A line of programs that the table knows, with options of which some are in it."""
    words = [random.choice(_NAMES)]
    for _ in range(random.randint(0, 4)):
        known = [name for name in PROGRAMS[words[0]].options if "#" not in name] if words[0] in PROGRAMS else []
        choices = [_OPERANDS, _OPTIONS, known or _OPERANDS, known or _OPTIONS]
        words.append(random.choice(random.choice(choices)))
    return " ".join(words)


_NAMES = [*PROGRAMS, "find", "test", "[", "timeout 5 ls", "env git status"] + [
    name for name in PROGRAMS if "git" in name
]


def state(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every file with its mode and content."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = str(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else b""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


NAMES = sorted({each.split()[0] for each in PROGRAMS} | {"find", "sh", "bash", "env"} - {":"})
"""Programs of which the tree has its own, also of those that the system lacks."""


async def make_tree(sandbox: Bubblewrap, folder: Path) -> None:
    (folder / "evil.sh").write_text(EVIL)
    (folder / "evil.sh").chmod(0o755)
    if ids := owner():
        os.chown(folder / "evil.sh", *ids)
    done = await sandbox.run(bash(f"KEYS='{' '.join(KEYS)}'; NAMES='{' '.join(NAMES)}'\n{MAKE_TREE}", 150))
    assert done.exit_code == 0, done.stderr


async def run_reading(sandbox: Bubblewrap, lines: Sequence[str]) -> None:
    """Runs lines as one of the class allow is run."""
    programs = tuple({each.words[0] for line in lines for each in classify_line(line).commands})
    script = "".join(
        f"/usr/bin/timeout -s KILL 3 /bin/bash --noprofile --norc -c {_quoted(line)} </dev/null >/dev/null 2>&1\n"
        for line in lines
    )
    done = await sandbox.run(bash(f"{script}true", 150, reads=programs))
    assert done.exit_code == 0, done.stderr


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


async def tried(tmp_path: Path, lines: Sequence[str]) -> Counter[str]:
    reading = [line for line in lines if classify_line(line).decision is Decision.ALLOW]
    tools = ProjectTools(path=("/workspace/.venv/bin", "/workspace/node_modules/.bin", "/workspace"))
    folder = tmp_path / "ws"
    with sandbox_over(folder, tools=tools) as sandbox:
        await make_tree(sandbox, folder)
        before = state(folder)
        for begin in range(0, len(reading), 50):
            batch = reading[begin : begin + 50]
            await run_reading(sandbox, batch)
            changed = {name for name, _ in state(folder).items() ^ before.items()}
            assert changed == set(), (batch, (folder / "pwned").read_text() if (folder / "pwned").exists() else "")
    return Counter({"tried": len(lines), "reading": len(reading)})


@pytest.mark.costly
async def test_no_line_that_is_judged_to_only_read_changes_a_hostile_tree(tmp_path: Path, is_thorough: bool) -> None:
    random = Random(SEED)
    count = LINES if is_thorough else LINES // 4
    lines = [*THAT_CHANGED_FILES, *(random_line(random) for _ in range(count))]
    counts = await tried(tmp_path, lines)
    assert counts["reading"] > count / 8


@pytest.mark.long
async def test_in_the_same_tree_a_command_that_may_do_more_starts_what_it_names(tmp_path: Path) -> None:
    """Otherwise the test above would see nothing."""
    tools, folder = ProjectTools(path=("/workspace/.venv/bin",)), tmp_path / "ws"
    with sandbox_over(folder, tools=tools) as sandbox:
        await make_tree(sandbox, folder)
        for line in ("ls", "/usr/bin/git status", "/usr/bin/git diff"):
            await sandbox.run(bash(f"/usr/bin/timeout -s KILL 1 {line}"))
            (folder / "pwned").unlink()
