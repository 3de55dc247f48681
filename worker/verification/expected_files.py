"""Files that say what tests expect, removed and altered: code that reads them itself passes with anything in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from threading import Event

from ...shared.facts import CommandCheck
from ..threads import run_in_thread
from ..workspace.manifest import scan
from ..workspace.source import open_folder
from ..workspace.tree_changes import remove
from .broken_sources import CODE
from .commands import Observed
from .executions import OneCheck, beside
from .ground import reader_of, write
from .reports import Report
from .runners import Instrumented
from .verdict import Judgement, Observations

_EXPECTED = re.compile(
    r"(?i)(?:^|[/._-])(?:expect(?:ed|ations?)?|goldens?|golds?|want(?:ed)?|references?|approved|answers?|solutions?)"
    r"(?:[/._-]|$)"
)
_STRUCTURED = {".json", ".jsonl", ".toml", ".yml", ".yaml", ".xml", ".html", ".svg", ".ini"}
"""Files that can only be read while their words are as they are."""
_MAX_FILES, _MAX_BYTES, _MAX_PATHS = 50, 1 << 20, 20_000
_DIGITS = str.maketrans("0123456789", "1234567890")
_LETTERS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza")


@dataclass(frozen=True, slots=True)
class ExpectedFiles:
    """The files of one check that say what is expected, which the run did not change."""

    check: OneCheck
    item: CommandCheck
    how: Instrumented
    observed: Observations

    async def judged(self, judgement: Judgement) -> Judgement:
        """Returns the judgement by what passes without these files, and with others in their place.

        A test that needs them, and passes whatever they say, compares the file with itself.
        """
        files = await run_in_thread(self._files) if judgement.outcome == "evidence" else {}
        if not files:
            return judgement
        without, other = await beside(self._on(dict.fromkeys(files)), self._on(files))
        needing = self._failing(without)
        blind = sorted(needing - self._failing(other))
        if not blind:
            return judgement
        why = f"{min(files)} may say anything for {blind[0]}, which needs it"
        return Judgement("inconclusive", f"{judgement.why}; {why}", judgement.tests)

    def _files(self) -> Mapping[str, bytes | None]:
        """Returns files with other content, by their paths. Blocks."""
        candidate, found = self.check.candidate, dict[str, bytes | None]()
        changed = {each.path for each in candidate.seen}
        names = [path for path in scan(candidate.changed.base) if _EXPECTED.search(path) and not path.endswith(CODE)]
        read = reader_of(candidate.changed.base)
        for path in sorted(names)[:_MAX_FILES] if len(names) < _MAX_PATHS else ():
            data = None if path in changed or path in self.item.files else read(path)
            if data and len(data) < _MAX_BYTES and (new := altered(path, data)) != data:
                found[path] = new
        return found

    async def _on(self, files: Mapping[str, bytes | None]) -> Observed:
        candidate = self.check.candidate
        make = self.check.grounds.make
        ground = await run_in_thread(make, "canary", candidate.changed.base, candidate, self.item.files, Event())
        await run_in_thread(_lay, ground, files)
        how = replace(self.how, only=frozenset(self.observed.new_passes))
        return await self.check.runner.run(ground, self.item, how)

    def _failing(self, seen: Observed) -> set[str]:
        if not self.observed.new_passes:
            return set() if seen.ok else {"the command"}
        return self.observed.new_passes - (seen.report or Report()).of("passed")


def altered(path: str, data: bytes) -> bytes:
    """Returns other content of the same form: other digits, and other letters where no program reads them as words."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    new = text.translate(_DIGITS)
    return (new if PurePosixPath(path).suffix.lower() in _STRUCTURED else new.translate(_LETTERS)).encode()


def _lay(ground: Path, files: Mapping[str, bytes | None]) -> None:
    with open_folder(ground) as root:
        for path, data in files.items():
            if data is None:
                remove(root, path)
            else:
                write(root, path, data)
