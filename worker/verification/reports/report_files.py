"""Reports that runners of tests leave in files: JUnit XML, TAP, and whatever a check names as its report."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

from ....shared.libc import beneath, closing_fd
from ...workspace.file_entries import read_all
from ...workspace.source import open_folder
from ...workspace.tree_changes import FILE, remove
from .states import MAX_REPORT_BYTES, Place, Report, TestState, of_go, of_jest, of_lines

_OF_BUILDS = re.compile(r"(?:(.*)/)?(?:target/(?:surefire|failsafe)-reports/TEST-[^/]*|build/test-results/.*)\.xml")
"""Where Maven and Gradle leave the reports of a module."""
_NOT_ENTERED = {"node_modules", ".git", ".venv", "venv"}
_TAP = re.compile(
    r"^(not ok|ok)\b[ \t]*(\d*)[ \t]*(?:-[ \t]*)?([^#\n]*)(#\s*(?:skip|todo)\b.*)?", re.IGNORECASE | re.MULTILINE
)
Stamp = tuple[int, int, int]
_PLAN = re.compile(r"^1\.\.(\d+)", re.MULTILINE)


def read_inside(folder: Path, path: str, most: int = MAX_REPORT_BYTES) -> str:
    """Returns the text of a regular file below a folder, "" for all else. No link is followed: it may lead outside."""
    try:
        with open_folder(folder) as root, closing_fd(beneath(root, path, FILE, links=False)) as fd:
            if modes.S_ISREG(os.fstat(fd).st_mode):
                return read_all(fd, most).decode("utf-8", "replace")
    except OSError:
        pass
    return ""


def of_junit(text: str, module: str = "") -> Report | None:
    """Reads JUnit XML; ``module`` keeps tests of equal names apart. None where it is none."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - without declarations, so nothing expands
    except (ElementTree.ParseError, ValueError):
        return None
    if root.tag not in ("testsuite", "testsuites"):
        return None
    report = Report()
    for case in root.iter("testcase"):
        names = [case.get("classname", ""), case.get("name", "")]
        file = case.get("file", "")
        parts = (module, file if file not in names[0] else "", *names)
        report.add("::".join(filter(None, parts)), _state(case), Place("", names[1]))
    for suite in root.iter("testsuite"):
        if suite.find("testcase") is None and _number(suite.get("errors")) > 0:
            report.add("::".join(filter(None, (module, suite.get("name", "")))), "failed", Place("", ""))
    return report


def _state(case: ElementTree.Element) -> TestState:
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") in ("fail", "failed"):
        return "failed"
    return "skipped" if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled") else "passed"


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def of_tap(text: str, file: str = "") -> Report | None:
    """Reads TAP without its nested parts. None where it is none. A file that ends before its plan has failed."""
    plan = _PLAN.search(text)
    if plan is None:
        return None
    report, count = Report(), 0
    for count, found in enumerate(_TAP.finditer(text), 1):
        state: TestState = "skipped" if found[4] else "passed" if found[1].lower() == "ok" else "failed"
        name = found[3].strip() or found[2] or str(count)
        report.add(f"{file}::{name}" if file else name, state, Place("", name))
    if count != int(plan[1]):
        report.add(file or "plan", "failed", Place("", ""))
    return report


def of_text(text: str) -> Report | None:
    """Reads the report that a check names, in any form that is known."""
    if text.lstrip().startswith("<"):
        return of_junit(text)
    if '"testResults"' in text:
        return of_jest(text)
    lines = text.splitlines()
    return of_lines(lines) or of_tap(text) or of_go(lines)[0]


def merged(reports: Sequence[Report]) -> Report | None:
    """Returns one report of all; None where there is none."""
    whole = Report()
    for each in reports:
        for id, state in each.tests.items():
            whole.add(id, state, each.places.get(id))
        whole.places |= each.places
        whole.finished = whole.finished and each.finished
        whole.stopped = whole.stopped or each.stopped
        whole.bent |= each.bent
    whole.of_runner = any(each.of_runner for each in reports)
    return whole if reports else None


def of_builds(ground: Path) -> list[Report]:
    """Returns the reports that Maven and Gradle left below a ground, each with its module."""
    found = [(path, match) for path in _files(ground) if (match := _OF_BUILDS.fullmatch(path))]
    reports = [of_junit(read_inside(ground, path), match[1] or "") for path, match in sorted(found)[:10_000]]
    return [report for report in reports if report]


def remove_old(ground: Path, named: str | None) -> None:
    """Deletes reports that came with the files: they are of an earlier run."""
    old = [path for path in _files(ground) if path == named or _OF_BUILDS.fullmatch(path)]
    with open_folder(ground) as root:
        for path in old:
            remove(root, path)


def of_tap_folder(folder: Path) -> list[Report]:
    """Returns what prove has left, a file for each program."""
    reports = [of_tap(read_inside(folder, path), path) for path in sorted(_files(folder))]
    return [report for report in reports if report]


def stamps(folder: Path) -> dict[str, Stamp]:
    """Returns for each file what differs after it was written or replaced."""
    found = dict[str, Stamp]()
    for path in _files(folder):
        with suppress(OSError):
            status = (folder / path).lstat()
            found[path] = status.st_ino, status.st_ctime_ns, status.st_size
    return found


def _files(folder: Path) -> Iterator[str]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_ENTERED]
        for name in names:
            yield str((Path(at) / name).relative_to(folder))
