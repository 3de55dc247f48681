"""Signed commits: git accepts the signature, it is the same each time, and a key that cannot sign is an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deputize.shared.errors import RepositoryFailed
from deputize.shared.ids import first_id
from tests.network.git_server import GitServer, git, make_repository
from tests.shared.git.cloning import settings
from tests.shared.git.delivering import FILES, branches, changed, deliver, delivery
from tests.shared.git.keys import WHO, gpg, gpg_key, ssh_key


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES)


def test_a_commit_is_signed_by_an_ssh_key_and_is_the_same_each_time(
    server: GitServer, source: Path, tmp_path: Path
) -> None:
    key = ssh_key(tmp_path / "key")
    (tmp_path / "allowed").write_text(f"deputize@localhost {key.with_suffix('.public').read_text()}")
    (tmp_path / "none").write_text("")
    asked = delivery(server.add(source), git(source, "rev-parse", "HEAD"), changed(source), branch="one")
    done = deliver(settings(tmp_path / "here", server, git_signing_key_file=key), asked)
    assert deliver(settings(tmp_path / "elsewhere", server, git_signing_key_file=key), asked) == done
    served, verify = server.root / "project.git", ("verify-commit", str(done.commit))
    git(served, "-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'allowed'}", *verify)
    with pytest.raises(subprocess.CalledProcessError):
        git(served, "-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'none'}", *verify)
    assert (
        git(served, "log", "-1", "--format=%an <%ae>|%(trailers)", "one").strip() == f"{WHO}|Deputize-Run: {asked.id}"
    )


@pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not on this machine")
def test_a_commit_is_signed_by_a_key_of_gnupg_and_is_the_same_each_time(
    server: GitServer, source: Path, tmp_path: Path
) -> None:
    home, program = tmp_path / "g", tmp_path / "verify"
    key = gpg_key(tmp_path / "key", home)
    (row,) = [line.split(":") for line in gpg(home, "--with-colons", "--list-keys").splitlines() if line[:3] == "pub"]
    program.write_text(f'#!/bin/sh\nGNUPGHOME="{home}" gpg "$@" | tee "{tmp_path}/status"\n')
    program.chmod(0o755)
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    later = 2_000_000_000
    for at, signed_at in ((0, int(row[5])), (later, later)):
        id = first_id(datetime.fromtimestamp(at, UTC))
        asked = delivery(url, base, patch, id=id, branch=f"at-{at}")
        done = deliver(settings(tmp_path / "here", server, git_signing_key_file=key), asked)
        assert deliver(settings(tmp_path / "elsewhere", server, git_signing_key_file=key), asked) == done
        git(server.root / "project.git", "-c", f"gpg.program={program}", "verify-commit", str(done.commit))
        assert f" {signed_at} " in (tmp_path / "status").read_text()
    locked = gpg_key(tmp_path / "locked", tmp_path / "l", "hunter2")
    with pytest.raises(RepositoryFailed, match="delivery_signature"):
        deliver(settings(tmp_path / "here", server, git_signing_key_file=locked), asked)


@pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not on this machine")
def test_a_signature_that_took_the_clock_of_its_machine_is_made_again(
    server: GitServer, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, programs = gpg_key(tmp_path / "key", tmp_path / "g"), tmp_path / "programs"
    asked = delivery(server.add(source), git(source, "rev-parse", "HEAD"), changed(source), branch="one")
    done = deliver(settings(tmp_path / "here", server, git_signing_key_file=key), asked)
    programs.mkdir()
    first = f'case "$*" in *-bsau*) mkdir "{programs}/late" 2> /dev/null;; *) false;; esac'
    late = f'if {first}; then set -- --faked-system-time 2000000000! "$@"; fi'
    (programs / "gpg").write_text(f'#!/bin/sh\n{late}\nexec {shutil.which("gpg")} "$@"\n')
    (programs / "gpg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert deliver(settings(tmp_path / "elsewhere", server, git_signing_key_file=key), asked) == done
    assert (programs / "late").exists()


def test_a_key_that_cannot_sign_is_an_error_and_nothing_is_pushed(
    server: GitServer, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ssh_key(tmp_path / "key")
    text = key.read_text()
    opened, other, cut, block = (tmp_path / name for name in ("opened", "other", "cut", "block"))
    of_gnupg = "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nx\n"
    for path, content in ((opened, text), (other, f"x{text}"), (cut, text[:200]), (block, of_gnupg)):
        path.touch(mode=0o600)
        path.write_text(content)
    opened.chmod(0o640)
    wrong = {
        tmp_path / "none": "does not exist",
        tmp_path: "does not exist",
        opened: "other users may read .*; chmod 600",
        other: "begins with neither",
        key.with_suffix(".public"): "other users may read",
        cut: "git commit-tree failed",
        block: "gpg",
        ssh_key(tmp_path / "locked", passphrase="hunter2"): "passphrase",
        ssh_key(tmp_path / "ecdsa", "ecdsa"): "another one.*Ed25519",
    }
    asked = delivery(server.add(source), git(source, "rev-parse", "HEAD"), changed(source), branch="one")
    for path, why in wrong.items():
        with pytest.raises(RepositoryFailed, match=f"the key of git_signing_key_file cannot sign.*{why}") as failed:
            deliver(settings(tmp_path / "home", server, git_signing_key_file=path), asked)
        assert (failed.value.kind, text[60:80] in str(failed.value)) == ("delivery_signature", False)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with pytest.raises(RepositoryFailed, match="ssh-keygen") as failed:
        deliver(settings(tmp_path / "home", server, git_signing_key_file=key), asked)
    monkeypatch.undo()
    assert (failed.value.kind, branches(server)) == ("delivery_signature", ["main"])
