"""Tests that the run wrote itself, and when they are evidence: red on the code from before, green now.

Alone, red on that code proves little: a test may look for a file that the run made, ask git, or import a module that
was not there. So a test counts only where it also fails with everything as the run left it but the functions, which are
those from before. It must be loaded there and fail itself: a name that is missing on the base then is one of a function
on whose answers the test depends. In a language whose functions cannot be put back, those that changed are broken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from ...shared.text import count
from ..workspace.source import open_folder
from .grounds.ground import Candidate, write
from .protected.paths import Protection
from .reports.states import Report
from .runners.execution import Observed
from .sources.broken_sources import CODE, broken_functions
from .sources.functions_before import functions_in, source_of, with_functions_before
from .suspicions.scan import in_own_tests
from .verdict import Judgement, of_files


class CodeBefore(Protection):
    """Leaves out changes of code outside of tests: all else is as the run left it.

    Args:
        tests: What is protected by default, tests among it.
        files: The files of tests elsewhere.
    """

    def __init__(self, tests: Protection, files: Collection[str]) -> None:
        super().__init__([])
        self._tests, self._files = tests, files

    def holds(self, path: str, contents: Callable[[], tuple[bytes, bytes]]) -> bool:
        return super().holds(path, contents) or self.is_code(path, contents)

    def is_code(self, path: str, contents: Callable[[], tuple[bytes, bytes]]) -> bool:
        is_code = path.endswith(CODE) or any(text.startswith(b"#!") for text in contents())
        return is_code and path not in self._files and not self._tests.holds(path, contents)


def own_tests(base: Report, now: Report, changed: Collection[str]) -> set[str]:
    """Returns the tests that pass and that only the run can have written: in files that it changed, where these are
    known. A test that was there before is not among them, whatever the run made of it.
    """
    new = now.of("passed") - base.tests.keys()
    placed = {id for id in new & now.places.keys() if now.places[id].name}
    could_load = all(place.name for id, place in base.places.items() if base.tests.get(id) == "failed")
    unknown = {id for id in placed if not now.places[id].file and could_load}
    return (placed & of_files(now, changed)) | unknown


def lay_functions_before(ground: Path, candidate: Candidate, code: CodeBefore) -> bool:
    """Puts the functions from before the run into the code of a ground. Returns whether any differs. Blocks."""
    changes = [
        (each, candidate.contents(each))
        for each in candidate.seen
        if code.is_code(each.path, lambda each=each: candidate.contents(each))
    ]
    texts = [old.decode("utf-8", "surrogateescape") for each, (old, _) in changes if each.path.endswith(".py")]
    gone = {text: functions_in(text).keys() for text in texts}
    differs = False
    with open_folder(ground) as root:
        for each, (old, new) in changes:
            if each.new and (content := _before(each.path, old, new, gone)) is not None:
                write(root, each.path, content)
                differs = True
    return differs


def _before(path: str, old: bytes, new: bytes, gone: Mapping[str, Collection[str]]) -> bytes | None:
    if PurePosixPath(path).suffix != ".py":
        return broken_functions(path, old, new)
    text = new.decode("utf-8", "surrogateescape")
    before = old.decode("utf-8", "surrogateescape") if old else source_of(text, gone)
    content = with_functions_before(before, text)
    return None if content is None else content.encode("utf-8", "surrogateescape")


def judged_by_own(
    judgement: Judgement, own: Collection[str], base: Observed, before: Observed, again: Observed
) -> Judgement:
    """Returns the judgement with the run's own tests as evidence, where they are.

    Args:
        judgement: What it is without them.
        own: The tests that passed.
        base: The command with the run's tests on the code from before.
        before: With all of the run's changes, but the functions from before.
        again: Once more with all of them.
    """
    on_base, on_before, once_more = (each.report or Report() for each in (base, before, again))
    unread = {
        place.file for id, place in on_base.places.items() if not place.name and on_base.tests.get(id) == "failed"
    }
    unread |= {""} if base.report is None and base.state == "red" else set()
    proving = {
        id
        for id in own
        if once_more.tests.get(id) == "passed"
        and on_before.tests.get(id) == "failed"
        and (on_base.tests.get(id) == "failed" or (id not in on_base.tests and once_more.places[id].file in unread))
    }
    if not proving:
        return judgement
    words = f"{count(len(proving), 'test')} that the run wrote {'fails' if len(proving) == 1 else 'fail'}"
    why = f"{words} on the code from before the run, and {'passes' if len(proving) == 1 else 'pass'} now"
    return Judgement("evidence", why, judgement.tests | {"fixed": proving}, own=True)


def suspected(
    candidate: Candidate, report: Report, own: Collection[str], accepted: Collection[str]
) -> tuple[str, set[str]]:
    """Returns what makes tests suspicious that the run wrote, and those that are not. Blocks."""
    why, good = "", set(own)
    for path, contents in candidate.sources():
        of_file = {id for id in of_files(report, [path]) if id in good}
        if not of_file:
            continue
        before, text = (each.decode("utf-8", "replace") for each in contents())
        open_ones = [each for each in in_own_tests(path, before, text) if each.kind not in accepted]
        if open_ones:
            why = (
                why or f"{path}:{open_ones[0].line} looks at more than the behaviour of the code ({open_ones[0].kind})"
            )
            good -= of_file
    return why, good
