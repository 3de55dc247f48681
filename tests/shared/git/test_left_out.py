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


def test_a_clone_by_digits_serves_no_request_by_tag(server: GitServer, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source", FILES)
    git(source, "tag", "v1")
    chosen, url, digits = settings(tmp_path, server), server.add(source), git(source, "rev-parse", "HEAD")
    with cloned(chosen, url, digits) as by_digits, cloned(chosen, url, "v1") as by_tag:
        assert (by_digits.not_copied, len(by_tag.not_copied)) == ([], 1)


def test_a_host_that_ends_after_the_fetch_loses_no_clone(server: GitServer, tmp_path: Path) -> None:
    server.most_lists = 2
    url = server.add(make_repository(tmp_path / "source", FILES))
    with cloned(settings(tmp_path, server), url, "main") as clone:
        assert (clone.files / "app.py").read_text() == "one\n"
        assert clone.not_copied == ["tags of the repository were not fetched, so git describe finds none"]


def test_every_conversion_is_named_and_counted(server: GitServer, tmp_path: Path) -> None:
    named = ["filter=a:b", "filter=caf\u00e9", "filter=team/secret", "working-tree-encoding=latin/1"]
    nothing = ["working-tree-encoding=UTF-8", "working-tree-encoding=utf8", "-filter", "!ident"]
    lines = [f"*.x {each}\n" for each in (*named, *nothing)]
    source = make_repository(tmp_path / "few", {".gitattributes": "".join(lines)})
    with cloned(settings(tmp_path, server), server.add(source, "few.git")) as clone:
        assert clone.not_copied == [f"files with {each} were copied as the repository stores them" for each in named]
    lines += [f"*.x filter=a{number:02}\n" for number in range(20)]
    source = make_repository(tmp_path / "many", {".gitattributes": "".join(lines)})
    with cloned(settings(tmp_path, server), server.add(source, "many.git")) as clone:
        assert len(clone.not_copied) == 21
        assert clone.not_copied[-1] == "files with 4 more conversions were copied as the repository stores them"


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
