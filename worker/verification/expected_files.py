"""Files that say what tests expect, removed and altered: code that reads them itself passes with anything in them.

A test may also need such a file, and compare only a part of it or nothing. So a file counts only where lines that the
run wrote into code name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any

from ...shared.checks import CommandCheck
from ..threads import run_in_thread
from ..workspace.manifest import scan
from ..workspace.source import open_folder
from ..workspace.tree_changes import remove
from .executions import OneCheck, beside
from .grounds.ground import reader_of, write
from .reports.states import Report
from .runners.execution import Observed
from .runners.known import Instrumented
from .sources.broken_sources import CODE
from .sources.file_texts import TESTS
from .verdict import Judgement, Observations

_EXPECTED = re.compile(
    r"(?i)(?:^|[/._-])"
    r"(?P<word>expect(?:ed|ations?)?|goldens?|golds?|want(?:ed)?|references?|approved|answers?|solutions?)"
    r"(?:[/._-]|$)"
)
_IN_CODE = r"(?i)[./]{0}\b(?!\()|\b{0}[./]\w|[_-]{0}\.\w|[\"'`]{0}[\"'`]"
"""A part of a path in code."""
_VALUES = {
    **dict.fromkeys((".yml", ".yaml", ".toml", ".ini"), re.compile(r"(?m)(?<=[:=] )[^\n]+|(?<=- )[^\n:]+$|=[^\n]+")),
    **dict.fromkeys((".xml", ".html", ".svg"), re.compile(r">[^<]+<")),
}
"""What differs in files that can only be read while their other words are as they are."""
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
        candidate, found, written = self.check.candidate, dict[str, bytes | None](), self._written()
        changed = {each.path for each in candidate.seen}
        names = [path for path in scan(candidate.changed.base) if is_named(path, written)] if written else []
        read = reader_of(candidate.changed.base)
        for path in sorted(names)[:_MAX_FILES] if len(names) < _MAX_PATHS else ():
            data = None if path in changed or path in self.item.files else read(path)
            if data and len(data) < _MAX_BYTES and (new := altered(path, data)) != data:
                found[path] = new
        return found

    def _written(self) -> str:
        """Returns the lines that the run wrote into code."""
        lines = list[str]()
        for path, contents in self.check.candidate.sources()[:_MAX_FILES]:
            if path.endswith(CODE) and not TESTS.match(path):
                old, new = (data[:_MAX_BYTES].decode("utf-8", "replace").splitlines() for data in contents())
                lines += {*new} - {*old}
        return "\n".join(lines)

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


def is_named(path: str, code: str) -> bool:
    """Whether the name of a file stands for what is expected, and code has that part of it."""
    found = None if path.endswith(CODE) else _EXPECTED.search(path)
    return found is not None and re.search(_IN_CODE.format(found["word"]), code) is not None


def altered(path: str, data: bytes) -> bytes:
    """Returns other content of the same form: other digits, and other letters where no program reads them as words."""
    suffix = PurePosixPath(path).suffix.lower()
    try:
        text = data.decode()
        if suffix == ".json":
            return json.dumps(_other(json.loads(text))).encode()
    except (ValueError, RecursionError):
        return data
    if values := _VALUES.get(suffix):
        return values.sub(lambda found: _shifted(found[0]), text).encode()
    return _shifted(text).encode()


def _other(value: Any) -> Any:
    """Returns other values below the same keys."""
    match value:
        case dict():
            return {key: _other(each) for key, each in value.items()}
        case list():
            return [_other(each) for each in value]
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return _shifted(value)
        case _:
            return value


def _shifted(text: str) -> str:
    return text.translate(_DIGITS).translate(_LETTERS)


def _lay(ground: Path, files: Mapping[str, bytes | None]) -> None:
    with open_folder(ground) as root:
        for path, data in files.items():
            if data is None:
                remove(root, path)
            else:
                write(root, path, data)
