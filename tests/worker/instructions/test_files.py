"""Which files have a project's instructions, and what of them is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from deputize.worker.instructions.files import MAX_BYTES, MAX_NESTED, Instructions, instructions_of, nested

NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")


class Project:
    """The files before a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def put(self, path: str, content: str | bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content.encode() if isinstance(content, str) else content)

    def read(self, directory: str = "") -> Instructions | None:
        return instructions_of(self.descriptor, directory, NAMES)

    def paths(self) -> list[str]:
        found = self.read()
        return [each.path for each in found.files] if found else []

    def text(self) -> str:
        found = self.read()
        return found.text if found else ""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    os.close(project.descriptor)


def test_the_first_of_the_names_counts(project: Project) -> None:
    assert project.read() is None
    for name in reversed(NAMES):
        project.put(name, f"words of {name}\n")
        (file,) = (project.read() or Instructions("", ())).files
        assert (file.path, file.sha256) == (name, sha256(f"words of {name}\n".encode()).hexdigest())
        assert project.text() == f"## {name}\n\nwords of {name}"


def test_a_directory_below_has_its_own(project: Project) -> None:
    project.put("web/CLAUDE.md", "Tabs.")
    assert project.read() is None
    found = project.read("web")
    assert found
    assert (found.text, [each.path for each in found.files]) == ("## web/CLAUDE.md\n\nTabs.", ["web/CLAUDE.md"])


def test_what_is_no_file_is_passed_over(project: Project) -> None:
    (project.folder / "AGENTS.md").mkdir()
    os.mkfifo(project.folder / "CLAUDE.md")
    assert project.read() is None
    project.put("GEMINI.md", "words")
    assert project.paths() == ["GEMINI.md"]


def test_a_link_within_the_project_is_followed_and_one_that_leads_out_is_not(project: Project, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.md"
    outside.write_text("secret")
    for target in (outside, Path("../outside.md"), Path("/proc/self/environ"), Path("nowhere")):
        link = project.folder / "AGENTS.md"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert project.read() is None
    link.unlink()
    link.symlink_to("docs/agents.md")
    project.put("docs/agents.md", "words")
    assert project.text() == "## AGENTS.md\n\nwords"


def test_imports_are_read_once_and_not_those_of_imports(project: Project) -> None:
    project.put("AGENTS.md", "See @docs/style.md, (@docs/git.md) and @docs/style.md again.\n@README\n- @./Makefile\n")
    project.put("docs/style.md", "Short. @docs/more.md @more.md")
    project.put("docs/more.md", "More.")
    project.put("docs/git.md", "Small commits.")
    project.put("README", "Read me.")
    project.put("Makefile", "all:")
    assert project.paths() == ["AGENTS.md", "docs/style.md", "docs/git.md", "README", "Makefile"]
    assert "## docs/git.md\n\nSmall commits." in project.text()


def test_an_import_is_relative_to_the_file_that_names_it(project: Project) -> None:
    project.put("web/AGENTS.md", "@style.md @../root.md")
    project.put("web/style.md", "near")
    project.put("style.md", "far")
    project.put("root.md", "root")
    found = project.read("web")
    assert found
    assert [each.path for each in found.files] == ["web/AGENTS.md", "web/style.md", "root.md"]


@pytest.mark.parametrize(
    "words",
    [
        "mail a@secret.md",
        "`@secret.md`",
        "```\n@secret.md\n```",
        "@missing.md @types/node @someone",
        "@../outside.md @/etc/hostname @~/x",
        "@folder",
        "@link.md",
        "@AGENTS.md",
    ],
)
def test_other_words_import_nothing(project: Project, words: str) -> None:
    (project.folder.parent / "outside.md").write_text("outside")
    (project.folder / "folder").mkdir()
    (project.folder / "link.md").symlink_to("/etc/hostname")
    project.put("secret.md", "secret")
    project.put("AGENTS.md", words)
    assert project.paths() == ["AGENTS.md"]


def test_more_than_the_bound_is_cut_with_a_note(project: Project) -> None:
    project.put("AGENTS.md", f"@more.md @last.md {'a' * 20_000}")
    project.put("more.md", "b" * 20_000)
    project.put("last.md", "c")
    assert project.paths() == ["AGENTS.md", "more.md"]
    assert project.text().endswith("b\n[cut: of a directory 32 KiB are read]")
    assert project.text().count("a" * 100) == 200
    assert len(project.text()) < MAX_BYTES + 200
    project.put("AGENTS.md", "x" * 10_000_000)
    assert len(project.text()) < MAX_BYTES + 200
    assert (project.read() or Instructions("", ())).files[0].sha256 == sha256(b"x" * MAX_BYTES).hexdigest()


def test_control_characters_and_other_bytes_are_shown(project: Project) -> None:
    project.put("AGENTS.md", b"a\x1b[2Jb\x00\xff\r\n\tc\xe2\x80\xae")
    assert project.text() == "## AGENTS.md\n\na\\x1b[2Jb\\x00\ufffd\n\tc\\u202e"


def test_directories_with_instructions_are_found_by_their_paths() -> None:
    paths = ["AGENTS.md", "a/b/CLAUDE.md", "a/AGENTS.md", "a/AGENTS.md.txt", "z/agents.md", "b/GEMINI.md/x"]
    assert nested(paths, NAMES) == ["a", "a/b"]
    many = [f"d{number:04}/AGENTS.md" for number in range(MAX_NESTED + 50)]
    assert nested(many, NAMES) == [path.removesuffix("/AGENTS.md") for path in many[:MAX_NESTED]]
