"""Finding and loading skills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shared.log import log
from worker.skills.skill import SKILL_FILE, Skill, read_skill

MAX_SKILLS = 200
_DEPTH = 3
_PACKAGE = Path(__file__).parents[1]


class SkillLoader:
    """The skills below a directory, read once. An invalid one is left out, with a warning.

    A directory that does not exist has none; raises OSError for one that cannot be read.
    """

    def __init__(self, skills_dir: Path) -> None:
        self.skills_dir = skills_dir
        self._skills: dict[str, Skill] = {}
        for file in _skill_files(skills_dir, _DEPTH) if skills_dir.exists() else ():
            if len(self._skills) == MAX_SKILLS:
                log.warning("only %d skills are loaded; the others in %s are left out", MAX_SKILLS, skills_dir)
                break
            self._load(file)

    def get_skill(self, name: str) -> Skill | None:
        return self._skills.get(name)

    def list_skills(self) -> list[str]:
        """Returns the names, sorted."""
        return sorted(self._skills)

    def _load(self, file: Path) -> None:
        try:
            skill = read_skill(file)
        except (OSError, ValueError) as error:
            log.warning("the skill %s is left out: %s", file, error)
            return
        if skill.name in self._skills:
            log.warning("the skill %s is left out: there is one of that name already", file)
            return
        self._skills[skill.name] = skill


def find_skills_dir(given: Path, home: Path, *, named: bool = True) -> Path:
    """Returns the directory of the skills. An absolute path is used as it is; a relative one is searched below the
    working directory, ``home`` (``DEPUTIZE_HOME``) and this package, in this order. The default path, not ``named`` by
    the operator, is not searched in the working directory, whose files may be untrusted.

    Returns the first that exists, as an absolute path, or the path unchanged if none exists.
    """
    if given.is_absolute():
        return given
    places = (*([Path.cwd() / given] if named else []), home / given, _PACKAGE / given)
    return next((place.resolve() for place in places if place.exists()), given)


def _skill_files(folder: Path, depth: int) -> Iterator[Path]:
    """Yields each SKILL.md below the folder; a skill's own directories are not searched."""
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        try:
            if (folder / name / SKILL_FILE).is_file():
                yield folder / name / SKILL_FILE
            elif depth:
                yield from _skill_files(folder / name, depth - 1)
        except OSError as error:
            log.warning("skills in %s cannot be read: %s", folder / name, error)
