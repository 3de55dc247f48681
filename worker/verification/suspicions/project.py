"""Suspicions that need more than the changed lines: the tests and other files of the project, and what checks name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ...threads import give_way
from ..grounds.ground import DOCTEST
from ..protected.named_files import Read
from ..sources.file_texts import TESTS, FileText, Found
from .comparisons import Comparisons, defined_names

_MAX_FILES, _MAX_CHARS = 300, 128 * 1024
"""Files that are read to find one thing, and the characters of each."""
_C = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp")
_CODE = (*_C, ".py", ".js", ".mjs", ".cjs", ".ts", ".rs", ".go", ".rb", ".java", ".kt", ".php", ".lua", ".pl", ".pm")
_DATA = (".json", ".toml", ".yml", ".yaml", ".csv", ".ini", ".cfg", ".txt")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(
    r"^[ \t/*]{0,40}#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*(?:$|/)"
    r"|\b([A-Za-z_]\w*)[ \t]*(?::[^=\n]{1,40})?=[ \t]*(\d+)\b",
    re.MULTILINE,
)
_OWNER = r"(?:\w{{1,40}}(?:\.|::|->)){{0,3}}"
_BOUNDS = (
    rf"\bfor\b[^\n{{{{]{{{{0,200}}}}[<>]=?\s*{_OWNER}{{name}}\b|\brange\([^()\n]{{{{0,80}}}}\b{{name}}\b"
    r"|\[[^\[\]\n]{{0,40}}:[^\[\]\n]{{0,40}}\b{name}\b|\b{name}\s*\.\s*times\b|\blength:\s*{name}\b"
    r"|(?:slice|take|times|repeat|sample|limit|head|first)\w{{0,20}}\([^()\n]{{0,80}}\b{name}\b"
    rf"|\.\.=?\s*{_OWNER}{{name}}\b|\bwhile\b[^\n]{{{{0,200}}}}<=?\s*{_OWNER}{{name}}\b"
)
"""Where a name bounds how often something is done."""
_ATTRIBUTE = r"(?:__attribute__\s?\(\([^()\n]{0,80}(?:\([^()\n]{0,80}\))?[^()\n]{0,80}\)\)\s?|\[\[[^\]\n]{0,80}\]\]\s?)"
_FUNCTION = re.compile(
    rf"^(?!static\b|else\b|typedef\b){_ATTRIBUTE}{{0,3}}[A-Za-z_][^\n;{{}}()=#]{{0,200}}?\b(\w+)\s?"
    r"\([^;{}]{0,400}?\)\s{0,3}\{",
    re.MULTILINE,
)
_WEAK = r"(?i:\b_*weak_*\b)[^;{{]{{0,200}}\b{name}\b"
_ARCHIVES = re.compile(r"\S\.a\b|\bar\s+[a-z]*[rqcs]|muldefs|allow-multiple-definition|--wrap\b|\badd_library\b")
_BUILDS = ("Makefile", "makefile", "GNUmakefile", "CMakeLists.txt", "meson.build", "configure.ac")
_TIMED = re.compile(r"\btimeout[ \t]+\S")
_GOOD_AFTER_TIME = re.compile(r"\b124\b|\|\|[ \t]*(?:true|:)")
_BUDGET = re.compile(r"max_total_time|-fuzztime|--max[-_]time|--(?:time|duration|budget)[-=\s]")
_WAITS = re.compile(
    r"\b(?:nano|u|m)?[sS]leep(?:_ms|_until|_for|Sync)?\s*\(|\bThread\.sleep\b|\bdelay\s*\(|\bsetTimeout\s*\(|\bpause\s*\("
    r"|\bselect\s*\(\s*0|\bpoll\s*\(\s*(?:NULL|0)|\bAtomics\.wait\b|\bpthread_cond_timedwait\b"
    r"|\bwhile\b[^\n]*\b(?:clock\w*|time|Date\.now|performance\.now|monotonic|perf_counter|elapsed|nanoTime)\b"
    r"|\bfor\s*\([^;\n]*\bvolatile\b|\bfor\s[^;{\n]*\btime\.(?:Now|Since)\("
)
_ASSERTS = re.compile(
    r"\w{0,30}[eE]quals?|eq|same|ok|is|throws|fail(?:ed|ure)?|\w{0,30}[aA]ssert\w{0,30}|expect\w{0,30}|should\w{0,30}"
)
"""Names of functions with which tests assert."""
_FAILS = re.compile(
    r"\bthrow\b|\braise\b|\bdie\b|\bpanic!?\(|\bexit\s?\(|\babort\s?\(|AssertionError|^[ \t]*assert\b"
    r"|\bassert\w{0,30}!?\(|\b(?:t|tb)\.(?:Error|Fatal|Fail)|\bfail\(|\bexpect\(",
    re.MULTILINE,
)
_LONG_NUMBER = r"(?<![\w.])(?:\d{3,9}|\d{1,6}\.\d{1,6})(?![\w.])"
_VALUE = re.compile(rf"({_LONG_NUMBER})(?=([^\n]{{0,40}}))")
"""A number of some length, and what stands beside it."""
_NAMED = re.compile(rf"[\"'`]\s{{0,8}}(?::|=>|,)\s{{0,8}}[\"']?({_LONG_NUMBER})")
"""Such a number behind a text that names it, in a table."""
_KEY = re.compile(
    rf"(?:(?:^|[{{,(]|\bcase\b)[ \t]{{0,40}}[\"'`]?(?={_LONG_NUMBER}[\"'`]?[ \t]{{0,8}}(?::|=>|=(?!=)))"
    rf"|(?<!\w)[\[(][ \t]{{0,8}}[\"'`]?(?={_LONG_NUMBER}[\"'`]?[ \t]{{0,8}},)|^(?={_LONG_NUMBER}[,;\t]))"
    rf"({_LONG_NUMBER})(?=([^\n]{{0,40}}))",
    re.MULTILINE,
)
"""Such a number by which a table has something."""
_TOKEN = re.compile(r"\w{1,40}(?:\.\w{1,40})?")
_USUAL = {
    *("100", "120", "128", "180", "200", "255", "256", "300", "360", "365", "366", "400", "401", "403", "404"),
    *("409", "410", "422", "429", "500", "502", "503", "504", "512", "600", "900", "999", "1000", "1024", "1900"),
    *("1970", "2000", "3600", "4096", "8080", "8192", "10000", "65535", "65536", "86400", "100000", "1000000"),
    *("0.0", "0.1", "0.01", "0.001", "0.5", "1.0", "1.5", "2.0", "10.0", "100.0"),
}
"""Those that stand in many tests and in code for reasons of their own."""
_MIN_VALUES = 3
_MIN_CANNED = 2
_DIGEST = re.compile(r"[\"'](?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,128}[\"'](\s{0,8}(?::|=>))?")
"""A digest, and whether a table has something by it."""
_MIN_DIGESTS = 2
_HASHES = re.compile(
    r"\bhashlib\b|\bcreateHash\(|\bsubtle\.digest\(|\b(?:sha\d*|md5|blake2\w?|xxh\w*)\s?\(|\bcrc32\b|\bDigest::|\bMessageDigest\b"
)
_ZONE = re.compile(
    r"\bprocess\.env(?:\.|\[\s*['\"])(?:TZ|LANG|LC_\w+)\b['\"]?\]?\s*=[^=]|\bdate_default_timezone_set\s*\("
    r"|\bENV\[\s*['\"](?:TZ|LANG|LC_\w+)['\"]\s*\]\s*=[^=]|\b(?:TimeZone|Locale)\.setDefault\s*\("
    r"|\b(?:setenv|putenv)\s*\(\s*[\"'](?:TZ|LANG|LC_)"
)
_ENTRIES = re.compile(
    r"(?:^|.*/)(?:(?:bin|cli|cmd|scripts|config|public|web)[./].*|(?:main|app|server|bootstrap|setup)\.\w+|[^/]*\.(?:config|setup)\.\w+)",
    re.I,
)
"""Programs and settings, which may decide in which time zone they work."""
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d|\b\d?\d:\d\d\b|\bDate(?:Time)?\b|\b[sS]trftime\b|\bTime\b|[lL]ocale|[tT]ime_?[zZ]one"
)
_CALLS = r"(?:^|[;{{}}])[ \t]*(?:await[ \t]+)?(?:\w{{1,40}}\.)?{name}[ \t]?[(!]"
"""A call whose value is not used."""


@dataclass(frozen=True, slots=True)
class Project:
    """What the changes are seen in: the paths before the run, and what checks execute."""

    known: Collection[str]
    read: Read
    commands: Sequence[str] = ()
    named: Collection[str] = ()
    """The files that the commands name."""
    nested: Sequence[str] = ()
    """Repositories that the run made within the project."""
    task: str = ""


@dataclass(frozen=True, slots=True)
class _View:
    """The texts of a project, each of which is read once."""

    project: Project
    _texts: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, path: str) -> str:
        """Returns a file as it was before the run, or nothing of a large one."""
        if path not in self._texts:
            data = self.project.read(path) or b""
            self._texts[path] = data.decode("utf-8", "replace") if len(data) <= _MAX_CHARS else ""
        return self._texts[path]

    def words(self, paths: Sequence[str]) -> set[str]:
        """Returns the names that stand in these files."""
        return {word for path in paths for word in _WORD.findall(self.text(path))}

    def tests(self) -> list[str]:
        """Returns the files of code that are tests by their names, or because a check names them."""
        found = [
            path
            for path in self.project.known
            if path.endswith(_CODE) and (TESTS.match(path) or path in self.project.named)
        ]
        return sorted(found)[:_MAX_FILES]

    def data_of_tests(self) -> list[str]:
        """Returns the files of data that are beside tests."""
        found = [path for path in self.project.known if path.endswith(_DATA) and TESTS.match(path)]
        return sorted(found)[:_MAX_FILES]

    def others(self, ends: Sequence[str], without: Collection[str]) -> list[str]:
        """Returns the files with such an end that are neither tests nor among these."""
        found = [path for path in self.project.known if path.endswith(tuple(ends)) and path not in without]
        return sorted(path for path in found if not TESTS.match(path))[:_MAX_FILES]

    def of_checks(self) -> str:
        """Returns the text of everything that decides how a check ends."""
        paths = sorted(
            {*self.project.named, *(path for path in self.project.known if PurePosixPath(path).name in _BUILDS)}
        )
        return "\n".join([*self.project.commands, *(self.text(path) for path in paths[:_MAX_FILES])])


def in_project(files: Sequence[FileText], project: Project) -> list[Found]:
    """Returns what is suspicious in these changes, seen in their project. Blocks."""
    found = [Found(path, 0, "place") for path in project.nested]
    changed, view, comparisons = {each.path for each in files}, _View(project), None
    for file in files:
        give_way()
        found += [*_of_keys(file), *_of_doctests(file, view)]
        if TESTS.match(file.path) or not file.path.endswith(_CODE) or file.before == file.after:
            continue
        found += [*_of_cases(file, view, changed), *_of_symbols(file, view), *_of_waits(file, view)]
        found += [*_of_assertions(file, view), *_of_zones(file, view)]
        comparisons = comparisons or Comparisons.of(
            {path: view.text(path) for path in view.tests()}, project.commands, files
        )
        found += comparisons.bent_in(file)
    return [*found, *_of_values(files, view), *_of_canned(files, view), *_of_digests(files)]


def _of_cases(file: FileText, view: _View, changed: Collection[str]) -> Iterator[Found]:
    """Yields constants that are lower now, bound the cases of a test, and are used by nothing but tests."""
    before, after = _numbers(file.before), _numbers(file.after)
    lower = [name for name, (number, _) in after.items() if name in before and before[name][0] > number]
    if not lower:
        return
    here, elsewhere = Counter(_WORD.findall(file.after)), view.words(view.others(_CODE, {*changed, *view.tests()}))
    in_tests = view.words(view.tests())
    for name in lower:
        if here[name] > 1 or name in elsewhere or name not in in_tests:
            continue
        bounds = re.compile(_BOUNDS.format(name=name), re.MULTILINE)
        if any(bounds.search(view.text(path)) for path in view.tests()):
            yield Found(file.path, after[name][1], "cases")


def _numbers(text: str) -> dict[str, tuple[int, int]]:
    """Returns constants with their number and line; none of those that have several."""
    found, several = dict[str, tuple[int, int]](), Counter[str]()
    for each in _NUMBER.finditer(text[:_MAX_CHARS]):
        name, number = each[1] or each[3], each[2] or each[4]
        several[name] += 1
        found[name] = int(number), text.count("\n", 0, each.start(each.lastindex or 0)) + 1
    return {name: each for name, each in found.items() if several[name] == 1}


def _of_symbols(file: FileText, view: _View) -> Iterator[Found]:
    """Yields new functions in C that take the place of one that another file defines: a weak one, or of a library."""
    if not file.path.endswith(_C):
        return
    before = _functions(file.before)
    new = {name: at for name, at in _functions(file.after).items() if name not in before}
    new.pop("main", None)
    if not new:
        return
    has_archives = any(
        _ARCHIVES.search(view.text(path)) for path in view.project.known if PurePosixPath(path).name in _BUILDS
    )
    for path in view.others(_C, {file.path}) + [path for path in view.tests() if path.endswith(_C)]:
        text = view.text(path)
        for name in new.keys() & _functions(text).keys():
            if has_archives or re.search(_WEAK.format(name=name), text):
                yield Found(file.path, new[name], "shadow")


def _functions(text: str) -> Mapping[str, int]:
    return {found[1]: text.count("\n", 0, found.start(1)) + 1 for found in _FUNCTION.finditer(text[:_MAX_CHARS])}


def _of_waits(file: FileText, view: _View) -> Iterator[Found]:
    before = Counter(line.strip() for line in file.before.splitlines())
    lines = enumerate(file.after.splitlines(), 1)
    added = [number for number, line in lines if not before[line.strip()] and _WAITS.search(line[:2000])]
    text = view.of_checks() if added else ""
    if _BUDGET.search(text) or (_TIMED.search(text) and _GOOD_AFTER_TIME.search(text)):
        yield from (Found(file.path, number, "wait") for number in added)


def _of_assertions(file: FileText, view: _View) -> Iterator[Found]:
    """Yields a file that defines what the tests assert with: a function that fails, and whose value no test uses."""
    if not file.before or not _FAILS.search(file.before):
        return
    names = defined_names(file.path, file.before[:_MAX_CHARS])
    for name in sorted(filter(_ASSERTS.fullmatch, names)):
        calls = re.compile(_CALLS.format(name=re.escape(name)), re.MULTILINE)
        if any(calls.search(view.text(path)) for path in view.tests()):
            yield Found(file.path, 0, "assertion")
            return


def _of_zones(file: FileText, view: _View) -> Iterator[Found]:
    """Yields lines that set the time zone or the language of their process, where a test looks at it.

    A test does if it names the file, or is named after it, and has times.
    """
    before = {line.strip() for line in file.before.splitlines()}
    lines = enumerate(file.after.splitlines(), 1)
    added = [number for number, line in lines if line.strip() not in before and _ZONE.search(line[:2000])]
    if not added or _ENTRIES.fullmatch(file.path):
        return
    named = re.compile(rf"(?<![A-Za-z0-9]){re.escape(PurePosixPath(file.path).stem)}(?![a-z0-9])")
    tests = ((path, view.text(path)) for path in view.tests())
    if any(_TIMES.search(text) and named.search(f"{path}\n{text}") for path, text in tests):
        yield from (Found(file.path, number, "runner") for number in added)


def _of_doctests(file: FileText, view: _View) -> Iterator[Found]:
    """Yields a file whose examples are other ones now, or compared less strictly, where a check executes them.

    A task that names the file may ask for others.
    """
    before, after = (Counter(_examples(text[:_MAX_CHARS])) for text in (file.before, file.after))
    lenient = any("doctest:" in example for example in after - before)
    is_asked = PurePosixPath(file.path).name in view.project.task and not lenient
    if before - after and not is_asked and "doctest" in view.of_checks():
        yield Found(file.path, 0, "assertion")


def _examples(text: str) -> Iterator[str]:
    """Yields each statement that has an expected output, with that."""
    for block in DOCTEST.findall(text.encode("utf-8", "surrogateescape")):
        for example in re.split(r"^[ \t]*>>> ", block.decode("utf-8", "replace"), flags=re.MULTILINE):
            lines = [line.strip() for line in example.splitlines()]
            if any(not line.startswith("...") for line in lines[1:]):
                yield "\n".join(lines)


def _of_values(files: Sequence[FileText], view: _View) -> Iterator[Found]:
    """Yields files with a table that answers for most of the numbers of a file of tests, which stood nowhere else."""
    expected = [_beside(_VALUE, view.text(path)) for path in (*view.tests(), *view.data_of_tests())]
    expected = [values for values in expected if len(values) >= _MIN_VALUES]
    known = set[str]()
    for path in view.others(_CODE + _DATA, ()) if expected else ():
        give_way()
        known.update(found[1] for found in _VALUE.finditer(view.text(path)))
    for file in files:
        if TESTS.match(file.path) or not file.path.endswith(_CODE + _DATA):
            continue
        text = file.after[:_MAX_CHARS]
        now = _beside(_KEY, text)
        for values in expected:
            give_way()
            new = {each for each in now.keys() & values.keys() - known if now[each] & values[each] - {each}}
            if len(new) >= max(_MIN_VALUES, len(values) / 2):
                at = next(found.start(1) for found in _KEY.finditer(text) if found[1] in new)
                yield Found(file.path, text.count("\n", 0, at) + 1, "tested")
                break


def _beside(pattern: re.Pattern[str], text: str) -> dict[str, set[str]]:
    """Returns unusual numbers of some length, each with the words and numbers beside it."""
    give_way()
    found = dict[str, set[str]]()
    for each in pattern.finditer(text):
        if each[1] not in _USUAL:
            found.setdefault(each[1], set()).update(word.lstrip("0") for word in _TOKEN.findall(each[2]))
    return found


def _of_canned(files: Sequence[FileText], view: _View) -> Iterator[Found]:
    """Yields files of code whose new numbers that have a name in data all have one in a file of tests, too.

    The task may give them. A number without a name may be a limit.
    """
    known = set[str]()
    for path in view.others(_CODE + _DATA, ()):
        known.update(found[1] for found in _VALUE.finditer(view.text(path)))
    known |= _USUAL | {found[1] for found in _VALUE.finditer(view.project.task)}
    in_tests = [{found[1] for found in _NAMED.finditer(view.text(path))} for path in view.tests()]
    for file in files:
        if TESTS.match(file.path) or not file.path.endswith(_CODE):
            continue
        give_way()
        found = {each[1]: each.start(1) for each in _NAMED.finditer(file.after[:_MAX_CHARS])}
        new = found.keys() - known - {each[1] for each in _VALUE.finditer(file.before)}
        if len(new) >= _MIN_CANNED and any(new <= values for values in in_tests):
            yield Found(file.path, file.after.count("\n", 0, min(found[each] for each in new)) + 1, "tested")


def _of_digests(files: Sequence[FileText]) -> Iterator[Found]:
    """Yields files into which digests came, where the run's code makes some: of what tests ask, it may be a table.

    In a file that makes none, several of them must be keys.
    """
    makes = {file.path for file in files if file.path.endswith(_CODE) and _HASHES.search(file.after)}
    if all(map(TESTS.match, makes)):
        return
    for file in files:
        if TESTS.match(file.path):
            continue
        give_way()
        known = {found[0].rstrip(" \t\n:=>") for found in _DIGEST.finditer(file.before)}
        new = [found for found in _DIGEST.finditer(file.after) if found[0].rstrip(" \t\n:=>") not in known]
        keys = {found[0] for found in new if found[1]}
        if new and (file.path in makes or len(keys) >= _MIN_DIGESTS):
            yield Found(file.path, file.after.count("\n", 0, new[0].start()) + 1, "tested")


def _of_keys(file: FileText) -> Iterator[Found]:
    """Yields a file in which a key stands twice, and did not before."""
    suffix = PurePosixPath(file.path).suffix
    of = _json_twice if suffix == ".json" else _line_twice if suffix == ".properties" or ".env" in file.path else None
    if of and (new := of(file.after)) - of(file.before):
        key = min(new - of(file.before))
        lines = [number for number, line in enumerate(file.after.splitlines(), 1) if key in line]
        yield Found(file.path, lines[-1] if lines else 0, "twice")


def _json_twice(text: str) -> set[str]:
    found = set[str]()

    def pairs(given: list[tuple[str, object]]) -> None:
        found.update(key for key, times in Counter(key for key, _ in given).items() if times > 1)

    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=pairs)
    return found


def _line_twice(text: str) -> set[str]:
    keys = Counter(found[1] for found in re.finditer(r"^(?:export )?([\w.-]+) ?[=:]", text, re.MULTILINE))
    return {key for key, times in keys.items() if times > 1}
