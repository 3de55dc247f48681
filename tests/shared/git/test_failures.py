"""What git writes of a failure, as kinds by which a program can decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import RepositoryFailed
from deputize.shared.git.own import failure_of
from tests.network.git_server import GitServer, git
from tests.shared.git.cloning import cloned, settings

KINDS = {
    "repository_unreachable": (
        *("fatal: unable to access 'U': Could not resolve host: h", "fatal: the remote end hung up unexpectedly"),
        *("error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502", "fatal: early EOF", ""),
        *("fatal: unable to access 'U': Failed to connect to h port 443", "fatal: U: Operation timed out after 9 s"),
        *("error: RPC failed; curl 56 Recv failure: Connection reset by peer", "fatal: index-pack failed"),
    ),
    "repository_never": (
        *("fatal: unable to access 'U': The requested URL returned error: 301", "fatal: something that is not known"),
        *("fatal: mismatched algorithms: client sha1; server sha256", "fatal: dumb http transport is not able"),
        *("fatal: unable to access 'U': SSL certificate problem: self-signed certificate", "fatal: bad object 12"),
    ),
    "repository_rejected": (
        *(
            "!\trefs/heads/a:refs/heads/b\t[remote rejected] (pre-receive hook declined)",
            " ! [rejected] a -> b (stale)",
        ),
        "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413",
    ),
    "repository_forbidden": ("fatal: unable to access 'U': The requested URL returned error: 403",),
}


@pytest.mark.parametrize(("kind", "words"), [(kind, words) for kind in KINDS for words in KINDS[kind]])
def test_words_of_git_are_kinds_and_those_of_a_server_none(kind: str, words: str) -> None:
    written = f"remote: fatal: early EOF, error: 403\nhint: error: 404\n{words}\nremote: Over quota\n"
    failed = failure_of("push", "https://h/r", written)
    assert failed.kind == kind
    assert "the server wrote: fatal: early EOF, error: 403 Over quota" in str(failed)


def test_a_repository_of_sha_256_is_refused_with_the_reason(server: GitServer, tmp_path: Path) -> None:
    source = tmp_path / "sha256"
    source.mkdir()
    git(source, "init", "-q", "--object-format=sha256")
    git(source, "commit", "-q", "--allow-empty", "-m", "one")
    for url in (server.add(source), str(source)):
        chosen, why = settings(tmp_path / "home", server), "names of SHA-256, which is not supported"
        with pytest.raises(RepositoryFailed, match=why) as failed, cloned(chosen, url):
            pass
        assert failed.value.kind == "repository_never"
