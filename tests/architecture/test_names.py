"""The tree explains itself: what lies at the top, and no file named for nothing in particular."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT, is_ours, name, python_files

AT_THE_TOP = {
    "LICENSE",
    "Makefile",
    "README.md",
    "docker-compose.yml",
    "orchestrator",
    "pyproject.toml",
    "requirements.lock",
    "shared",
    "tests",
    "worker",
}
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "types"}


def test_the_top_level_holds_only_what_the_design_shows() -> None:
    entries = {path.name for path in ROOT.iterdir() if is_ours(path) and not path.name.startswith(".")}
    assert entries - AT_THE_TOP == set()


def test_no_module_or_folder_has_a_name_that_says_nothing() -> None:
    paths = [Path(name(path)) for path in python_files(*PACKAGES, "tests")]
    assert [str(path) for path in paths if SAYS_NOTHING & {*path.parent.parts, path.stem}] == []


def test_every_module_opens_with_a_sentence() -> None:
    silent = []
    for path in python_files(*PACKAGES):
        text = path.read_text("utf-8").lstrip()
        if text and not text.startswith(('"""', 'r"""')):
            silent.append(name(path))
    assert silent == []
