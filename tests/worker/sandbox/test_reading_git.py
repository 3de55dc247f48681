"""The git of lines that only read starts nothing, whatever the settings of a repository name.

The settings are those that the installed git documents, so that those of a later version are tried, too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over

pytestmark = pytest.mark.system

EVIL = '#!/bin/sh\necho "${KEY-program}" >> /workspace/pwned\ncat 2>/dev/null\n'
MAKE_TREE = """
set -e
git init -qb main .; git config user.email a@b; git config user.name x
echo '* merge=evil diff=evil filter=evil' > .gitattributes; echo one > f; git add -A; git commit -qm one
git checkout -qb other; echo two > f; git commit -qam two
git checkout -q main; echo three > f; git commit -qam three
git merge -q other >/dev/null || { echo both > f; git commit -qam merge; }
signature='gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n x\\n -----END PGP SIGNATURE-----'
git cat-file commit HEAD | sed "/^committer/a $signature" |
    git hash-object -t commit -w --stdin | xargs git reset -q --hard
git clone -q . inner 2>/dev/null; git -C inner config core.fsmonitor 'KEY=inner /workspace/evil.sh'
echo '* diff=evil' > inner/.git/info/attributes
printf '[submodule "inner"]\\n\\tpath = inner\\n\\turl = ./inner\\n\\tignore = none\\n' > .gitmodules
git add .gitmodules inner 2>/dev/null; git -c core.hooksPath=/dev/null commit -qm inner
echo four > inner/f; git -C inner -c core.fsmonitor=false -c user.email=a@b -c user.name=x commit -qam four
echo more > inner/f
git remote add origin ./inner; git update-ref refs/remotes/origin/main HEAD
git config branch.main.remote origin; git config branch.main.merge refs/heads/main
echo changed >> f; rm -f pwned
"""
SWITCHES = {
    "log.diffMerges": "remerge", "log.showSignature": "true", "diff.submodule": "diff", "diff.ignoreSubmodules": "none",
    "status.submoduleSummary": "true", "submodule.recurse": "true",
}  # fmt: skip
"""With these git starts more."""
LINES = (
    *("git status -vv", "git diff HEAD", "git log -m -p", "git log -m --stat", "git log -1 --format=%G? HEAD~1"),
    *("git show -m HEAD~1", "git blame f", "git grep -n e", "git ls-files -m", "git branch -vv", "git stash list"),
    *("git shortlog -s HEAD", "git reflog", "git rev-parse HEAD"),
)
NAMING = re.compile(
    r"cmd|command|program|helper|driver|textconv|external|editor|pager|hook|tool|ssh|fsmonitor|clean|smudge|process"
    r"|pack$|vcs|gitproxy|askpass|alias|browser",
    re.IGNORECASE,
)
STARTED = {
    *("core.fsmonitor", "diff.external", "diff.evil.textconv", "filter.evil.clean", "merge.evil.driver", "gpg.program"),
    "inner",
}
"""What plain git starts in these lines, among others; the last are those of a submodule."""
KEEP_ACCEPTED = """
mapfile -d '' -t entries < entries
works() {
    for line in 'log -1' 'diff --cached --quiet'; do
        timeout 5 git $line </dev/null >/dev/null 2>&1
        [ $? -lt 128 ] || return 1
    done
}
try() {
    local before=$(< .git/config)
    printf '%s' "${entries[@]:$1:$2}" >> .git/config
    if works; then return; fi
    printf '%s\\n' "$before" > .git/config
    if [ "$2" -gt 1 ]; then try "$1" $(($2 / 2)); try $(($1 + $2 / 2)) $(($2 - $2 / 2)); fi
}
cp .git/config base
try 0 ${#entries[@]}
mv .git/config every; cp base .git/config
"""
"""Makes a configuration of all the settings with which git still works: halves with one that ends it are halved."""


def entry(key: str) -> str:
    """The lines of a configuration that set it to a program."""
    section, _, rest = key.partition(".")
    name, _, variable = rest.rpartition(".")
    head = f'[{section} "{name}"]' if name else f"[{section}]"
    return f"{head}\n\t{variable} = /workspace/evil.sh\n"


def settings() -> list[str]:
    """Every setting that git documents, with names in the place of what each may be about."""
    documented = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout
    names = {"<driver>": "evil", "<name>": "origin", "<cmd>": "log", "<command>": "log", "<format>": "ssh", "*": "x"}
    found = {re.sub(r"<[^>]+>|\*", lambda each: names.get(each[0], "x"), line) for line in documented.split()}
    further = {"filter.evil.process", "pager.diff", "alias.log", "diff.evil.command", "merge.evil.recursive"}
    return sorted(each for each in found | further if re.fullmatch(r"[\w-]+\.(?:.*\.)?[\w-]+", each))


def test_git_documents_settings_that_name_programs() -> None:
    known = settings()
    assert len(known) > 400
    assert set(known) > STARTED - {"inner"}


async def make_tree(sandbox: Bubblewrap, folder: Path) -> None:
    (folder / "evil.sh").write_text(EVIL)
    (folder / "evil.sh").chmod(0o755)
    done = await sandbox.run(bash(MAKE_TREE, 150))
    assert done.exit_code == 0, done.stderr
    for key, value in SWITCHES.items():
        await said(sandbox, f"git config --file .git/config {key} {value}")


async def started(sandbox: Bubblewrap, folder: Path, *, reads: bool) -> set[str]:
    """Runs the lines; returns the settings whose programs were started."""
    script = "\n".join(f"/usr/bin/timeout -s KILL 5 {line} </dev/null >/dev/null 2>&1" for line in LINES)
    await sandbox.run(bash(script, 150, reads=("git",) if reads else ()))
    found = (folder / "pwned").read_text().split() if (folder / "pwned").exists() else []
    (folder / "pwned").unlink(missing_ok=True)
    return set(found)


async def configure(sandbox: Bubblewrap, key: str) -> None:
    """Sets the one setting to a program, without a variable before it: git starts some of them without a shell."""
    await said(sandbox, f"cp base .git/config; git config --file .git/config '{key}' /workspace/evil.sh")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.costly
async def test_no_setting_of_git_starts_a_program_in_a_line_that_only_reads(tmp_path: Path, is_thorough: bool) -> None:
    """First all settings that do not end each command, then those one by one that may name a program."""
    folder, plain = tmp_path / "ws", set[str]()
    with sandbox_over(folder) as sandbox:
        await make_tree(sandbox, folder)
        (folder / "entries").write_text("\0".join(entry(key) for key in settings() if key not in SWITCHES))
        await said(sandbox, KEEP_ACCEPTED, timeout=400)
        (folder / "pwned").unlink(missing_ok=True)
        assert (folder / "every").read_text().count("\n") > 200
        await said(sandbox, "cp .git/config base; cp every .git/config")
        assert await started(sandbox, folder, reads=False)
        assert await started(sandbox, folder, reads=True) == set()
        for key in sorted(key for key in settings() if NAMING.search(key))[:: 20 if is_thorough else 90]:
            await configure(sandbox, key)
            assert await started(sandbox, folder, reads=True) == set(), key
        for key in sorted(STARTED - {"inner"}):
            await configure(sandbox, key)
            plain |= {key if each == "program" else each for each in await started(sandbox, folder, reads=False)}
            assert await started(sandbox, folder, reads=True) == set(), key
        assert plain >= STARTED


@pytest.mark.costly
async def test_what_git_reads_of_a_repository_is_what_plain_git_reads(tmp_path: Path) -> None:
    """Also in a worktree, in a folder below, and without a repository."""
    lines = (
        *(
            "git status -sb",
            "git log --oneline --decorate --all",
            "git diff --stat",
            "git remote -v",
            "git merge-base HEAD main",
        ),
        *(
            "git stash list",
            "git reflog",
            "git rev-parse HEAD --git-dir",
            "git worktree list",
            "git blame HEAD f",
            "git tag",
        ),
        *(
            "git describe --all",
            "git for-each-ref",
            "git cat-file -p HEAD",
            "git config --get user.name",
            "git ls-files",
        ),
    )
    setup = """
    git init -qb main .; git config user.email a@b; git config user.name 'A "B" \\ c'; mkdir sub
    echo one > f; echo x > sub/g; git add -A; git commit -qm one; git tag v1
    echo two >> f; git stash -q; echo three >> f
    git remote add origin https://example.org/x; git update-ref refs/remotes/origin/main HEAD
    git config branch.main.remote origin; git config branch.main.merge refs/heads/main
    git worktree add -q wt -b other; echo four >> wt/f; echo wt >> .git/info/exclude; mkdir -p /workspace/none
    """
    with sandbox_over(tmp_path / "ws") as sandbox:
        await said(sandbox, setup)
        for folder in ("", "sub", "wt"):
            script = f"cd ./{folder}\n" + "\n".join(lines)
            plain, reading = await said(sandbox, script), await said(sandbox, script, reads=("git",))
            assert reading == plain
            assert plain.count("\n") > 20
        nowhere = "cd none; GIT_CEILING_DIRECTORIES=/workspace git status; ls /tmp"
        assert (await said(sandbox, nowhere, reads=("git",))).startswith("fatal: not a git repository")
