"""Signatures of commits by the operator's key, one of OpenSSH or of GnuPG, in a file that no sandbox shows.

A commit is the same however often it is made, so its signature has to be, too. That of an Ed25519 or RSA key is, if
GnuPG is given the time.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import Misconfigured, RepositoryFailed
from ..settings import Settings
from ..settings.files import secret_bytes
from ..text import clip, visible
from .command import own_environment
from .own import OwnRepository, Patience, written_by

_SECONDS = 30.0
_MAX_SHOWN = 300
_SSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_GNUPG = b"-----BEGIN PGP PRIVATE KEY BLOCK-----"


def made_commit(own: OwnRepository, settings: Settings, at: int, *arguments: str, message: bytes) -> str:
    """Returns the commit that ``commit-tree`` makes, signed where a key is configured. ``at`` is its time.

    Raises as ``OwnRepository.run``, and RepositoryFailed where the key cannot be used.
    """
    if settings.git_signing_key_file is None:
        return own.run("commit-tree", *arguments, input=message).decode().strip()
    try:
        with _signing(settings.git_signing_key_file, at) as variables:
            signing = replace(own, variables={**own.variables, **variables})
            made = [signing.run("commit-tree", "-S", *arguments, input=message) for _ in range(2)]
            # GnuPG does not freeze a time that is the present second, which may have ended before it signed.
            if made[0] != made[1]:
                made = [made[1], signing.run("commit-tree", "-S", *arguments, input=message)]
    except RepositoryFailed as error:
        why = str(error).removeprefix(f"{error.kind}: ")
        raise _refusal(f"{why}; it has to be one for signatures, without a passphrase") from None
    except (Misconfigured, OSError, subprocess.TimeoutExpired) as error:
        raise _refusal(str(error)) from None
    if made[0] != made[1]:
        raise _refusal("each of its signatures is another one, and a commit has to stay the same; use one of Ed25519")
    return made[0].decode().strip()


def check_signing(settings: Settings) -> None:
    """Makes a signed commit in a repository of its own. Raises RepositoryFailed where the key cannot be used."""
    at = int(time.time())
    with TemporaryDirectory(prefix="deputize-signing-") as folder:
        own = OwnRepository(Path(folder, "repository"), Patience())
        own.make()
        tree = own.run("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()
        made_commit(replace(own, variables=written_by(settings.git_author, at)), settings, at, tree, message=b"")


def _refusal(why: str) -> RepositoryFailed:
    return RepositoryFailed("delivery_signature", f"the key of git_signing_key_file cannot sign the commit: {why}")


@contextmanager
def _signing(key: Path, at: int) -> Generator[Mapping[str, str]]:
    """Yields the part of git's environment that names the key. Raises Misconfigured, OSError and RepositoryFailed."""
    begin = secret_bytes(key, "git_signing_key_file").lstrip()
    if begin.startswith(_GNUPG):
        # Its path is short, as those of sockets have to be. The agent that gpg starts ends when its socket is removed.
        with TemporaryDirectory(prefix="deputize-gpg-") as home:
            yield {**_configuration("openpgp", _imported(key, Path(home), at)), "GNUPGHOME": home}
    elif begin.startswith(_SSH):
        yield _configuration("ssh", str(key))
    else:
        raise Misconfigured(f"{key} begins with neither {_SSH.decode()} nor {_GNUPG.decode()}")


def _configuration(format: str, key: str) -> dict[str, str]:
    names = {"GIT_CONFIG_KEY_0": "gpg.format", "GIT_CONFIG_KEY_1": "user.signingKey", "GIT_CONFIG_COUNT": "2"}
    return names | {"GIT_CONFIG_VALUE_0": format, "GIT_CONFIG_VALUE_1": key}


def _imported(key: Path, home: Path, at: int) -> str:
    """Imports a key of GnuPG into an empty home, where it signs at that time. Returns its fingerprint."""
    argv = ["gpg", "--batch", "--with-colons", "--import-options", "import-show", "--import", str(key)]
    env = {**own_environment(), "HOME": str(home), "GNUPGHOME": str(home)}
    done = subprocess.run(argv, check=False, env=env, cwd=home, capture_output=True, timeout=_SECONDS)
    if done.returncode:
        raise Misconfigured(clip(visible(os.fsdecode(done.stderr)), _MAX_SHOWN))
    rows = [line.split(":") for line in os.fsdecode(done.stdout).splitlines()]
    made = max(int(row[5]) for row in rows if row[0] in ("sec", "ssb"))
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(max(at, made)))  # no key signs before it was made
    (home / "gpg.conf").write_text(f"batch\npinentry-mode loopback\nfaked-system-time {moment}!\n")
    return next(row[9] for row in rows if row[0] == "fpr")
