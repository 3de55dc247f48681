"""What a clone of ours lacks of a clone by git: it is named, and files are what the repository stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.git_server import GitServer, git, make_repository
from tests.shared.git.cloning import cloned, settings

FILES = {"app.py": "one\n", "docs/guide.md": "# Guide\n"}


@pytest.mark.parametrize(
    ("tag", "depth", "is_named"), [("HEAD", 1, True), ("HEAD~1", 1, False), ("HEAD~1", 2, True), (None, 2, False)]
)
def test_tags_that_git_would_bring_are_named(
    server: GitServer, tmp_path: Path, tag: str | None, depth: int, is_named: bool
) -> None:
    source = make_repository(tmp_path / "source", FILES, commits=3)
    if tag:
        git(source, "tag", "-a", "v1", "-m", "v1", tag)
    sentence = "tags of the repository were not fetched, so git describe finds none"
    with cloned(settings(tmp_path, server), server.add(source), "main", depth=depth) as clone:
        assert clone.not_copied == [sentence] * is_named
        assert git(clone.files, "tag") == ""


def test_files_are_what_the_repository_stores(server: GitServer, tmp_path: Path) -> None:
    files = {
        ".gitattributes": "*.txt text eol=crlf\n*.id ident\n*.bin filter=lfs diff=lfs\n*.x filter=shady\n",
        "a.txt": "one\ntwo\n",
        "b.id": "$Id$\n",
        "c.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    }
    source = make_repository(tmp_path / "attributed", files)
    (source / "d.u").write_bytes("text\n".encode("utf-16"))
    with (source / ".gitattributes").open("a") as attributes:
        attributes.write("*.u working-tree-encoding=UTF-16\n")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "encoded")
    url = server.add(source)
    with cloned(settings(tmp_path, server), url) as clone:
        assert (clone.files / "a.txt").read_bytes() == b"one\ntwo\n"
        assert (clone.files / "b.id").read_bytes() == b"$Id$\n"
        assert (clone.files / "c.bin").read_text() == files["c.bin"]
        assert (clone.files / "d.u").read_bytes() == b"text\n"
        assert git(clone.files, "status", "--short") == ""
        assert clone.not_copied == [
            "files of Git LFS were not copied, only its pointers to them",
            "files with eol=crlf were copied as the repository stores them",
            "files with filter=shady were copied as the repository stores them",
            "files with ident were copied as the repository stores them",
            "files with working-tree-encoding=UTF-16 were copied as the repository stores them",
        ]


def test_submodules_are_named_and_nothing_is_fetched_from_them(server: GitServer, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "with-modules", FILES)
    commit = git(source, "rev-parse", "HEAD")
    modules = [f"m{number:02}" for number in range(22)]
    for name in modules:
        git(source, "update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")
    urls = ("ext::sh -c touch% /tmp/never", f"http://{server.host}/other.git")
    text = "".join(
        f'[submodule "{name}"]\n\tpath = {name}\n\turl = {urls[at % 2]}\n' for at, name in enumerate(modules)
    )
    (source / ".gitmodules").write_text(text)
    git(source, "add", ".gitmodules")
    git(source, "commit", "-q", "-m", "modules")
    with cloned(settings(tmp_path, server), server.add(source)) as clone:
        assert clone.not_copied[0] == "m00 is a submodule and was not copied"
        assert clone.not_copied[-1] == "2 more submodules were not copied"
        assert [*(clone.files / "m00").iterdir()] == []
    assert [path for _, path, _ in server.requests if path.startswith("/other.git")] == []
