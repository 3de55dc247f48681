"""Keys for signatures, made for a test by the programs that users make theirs with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHO = "deputize <deputize@localhost>"


def ssh_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Makes a key. Returns the path of its private part, which lies without its public one."""
    asked = "-q", "-t", kind, "-N", passphrase, "-C", "deputize", "-f", path
    subprocess.run(["ssh-keygen", *asked], check=True, stdin=subprocess.DEVNULL)
    path.with_suffix(".pub").rename(path.with_suffix(".public"))
    return path


def gpg(home: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GNUPGHOME": str(home)}
    return subprocess.run(["gpg", "--batch", *arguments], env=env, capture_output=True, text=True, check=True).stdout


def gpg_key(path: Path, home: Path, passphrase: str = "") -> Path:
    """Makes a key. Returns the path of its private part; the home has the public one."""
    home.mkdir(mode=0o700)
    (home / "gpg-agent.conf").write_text("s2k-count 65536\n")  # else it measures for seconds how slow it should be
    secret = "--passphrase", passphrase, "--pinentry-mode", "loopback"
    gpg(home, *secret, "--quick-gen-key", WHO, "ed25519", "sign", "never")
    path.touch(mode=0o600)
    path.write_text(gpg(home, *secret, "--armor", "--export-secret-keys"))
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    return path
