"""Another author's folder: a git repository whose configuration, hooks and files name a program wherever one can start.

The program writes the name under which it was started into a log, so that a test can ask what ran.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

HOOKS = """
applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
post-rewrite pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase prepare-commit-msg
push-to-checkout reference-transaction sendemail-validate
"""
ALIASES = ("cat-file", "check-ignore", "config", "ls-files", "merge-file", "status", "diff", "log", "rev-parse")
"""Commands that git may take from the configuration."""
COMMAND_KEYS = """
core.fsmonitor core.sshCommand core.gitProxy core.pager core.editor core.askPass core.alternateRefsCommand
sequence.editor diff.external diff.planted.command diff.planted.textconv filter.planted.clean filter.planted.smudge
filter.planted.process merge.planted.driver mergetool.planted.cmd mergetool.planted.path difftool.planted.cmd
remote.planted.uploadpack remote.planted.receivepack remote.helper.vcs uploadpack.packObjectsHook credential.helper
gpg.program gpg.ssh.program gpg.ssh.defaultKeyCommand gpg.x509.program interactive.diffFilter trailer.planted.command
trailer.planted.cmd browser.planted.cmd man.planted.cmd gc.recentObjectsHook tar.planted.command imap.tunnel
guitool.planted.cmd sendemail.smtpServer hook.planted.command init.templateDir pager.cat-file pager.ls-files
pager.config pager.status
"""
"""Keys whose value git runs, or passes to a shell."""
MODULES = ("json", "asyncio", "subprocess", "click", "sitecustomize", "usercustomize", "conftest", "deputize")
PROGRAMS = ("git", "python3", "rg", "bwrap", "shfmt", "du", "rm", "redis-server", "valkey-server")


@dataclass(frozen=True, slots=True)
class Planted:
    """``folder`` is the repository, ``bare`` a folder in it that has itself the layout of a repository."""

    folder: Path
    log: Path
    blob: str
    """A content that the repository has, and ``missing`` one that it would fetch."""
    missing: str

    @property
    def bare(self) -> Path:
        return self.folder / "bare"

    def ran(self) -> list[str]:
        return sorted(set(self.log.read_text().split())) if self.log.exists() else []


def plant(folder: Path, outside: Path) -> Planted:
    """Makes the repository; ``outside`` is a folder for the program and its log."""
    folder.mkdir(parents=True)
    outside.mkdir()
    log, program = outside / "log", outside / "program"
    _script(program, f'echo "$1" >> {log}; cat >/dev/null 2>&1 </dev/null; exit 1')
    (folder / "file.txt").write_text("one\n")
    (folder / "gone.txt").write_text("two\n")
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    blob, missing = (_git(folder, "rev-parse", f"HEAD:{name}") for name in ("file.txt", "gone.txt"))
    (folder / f".git/objects/{missing[:2]}/{missing[2:]}").unlink()
    planted = Planted(folder, log, blob, missing)
    _make_bare(planted)
    for state in (folder / ".git", planted.bare):
        _configure(state, program, log)
    (folder / ".gitattributes").write_text("* diff=planted filter=planted merge=planted\n")
    for module in MODULES:
        (folder / f"{module}.py").write_text(f"open({str(log)!r}, 'a').write('module:{module}\\n')\n")
    (folder / ".venv/bin").mkdir(parents=True)
    for name in PROGRAMS:
        for place in (folder, folder / ".venv/bin"):
            _script(place / name, f"echo program:{name} >> {log}; exit 1")
    return planted


def _configure(state: Path, program: Path, log: Path) -> None:
    values = [(key, f"{program} {key}") for key in COMMAND_KEYS.split()]
    values += [(f"alias.{name}", f"!{program} alias.{name}") for name in ALIASES]
    hooks, included = state / "planted-hooks", state / "included"
    values += [
        ("core.hooksPath", str(hooks)),
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "planted"),
        ("extensions.worktreeConfig", "true"),
        ("remote.planted.url", str(state)),
        ("remote.planted.promisor", "true"),
        ("remote.ext.url", f"ext::{program} remote.ext"),
        ("protocol.allow", "always"),
        ("protocol.ext.allow", "always"),
        ("submodule.planted.update", f"!{program} submodule.update"),
        ("merge.tool", "planted"),
        ("diff.tool", "planted"),
        ("include.path", str(included)),
        (f"includeIf.gitdir:{state}/.path", str(included)),
    ]
    included.write_text(f"[core]\n\tfsmonitor = {program} included\n[diff]\n\texternal = {program} included\n")
    (state / "config.worktree").write_text(f"[core]\n\tfsmonitor = {program} config.worktree\n")
    for where in (hooks, state / "hooks"):
        where.mkdir(exist_ok=True)
        for name in HOOKS.split():
            _script(where / name, f"echo hook:{name} >> {log}")
    with (state / "config").open("a") as config:  # a hundred starts of git would take a quarter of a second
        config.writelines(_setting(key, value) for key, value in values)


def _setting(key: str, value: str) -> str:
    """A setting as it stands in a file of git's configuration."""
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    head = f'{section} "{subsection}"' if subsection else section
    return f'[{head}]\n\t{name} = "{value}"\n'


def _make_bare(planted: Planted) -> None:
    (planted.bare / "objects").mkdir(parents=True)
    (planted.bare / "refs").mkdir()
    (planted.bare / "objects/kept").write_text("")
    (planted.bare / "HEAD").write_text("ref: refs/heads/main\n")
    (planted.bare / "config").write_text("[core]\n\tbare = true\n")
    (planted.bare / "file.txt").write_text("one\n")


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _git(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()
