"""The variation: tests that turned green run once more with other inputs, before the run and after it.

A special case answers what the tests ask, and all else as before. So where code that changed has values of a test in
it, the literals of that test are varied, and what the code answers is compared with what it answered before the run.
Where each other input gets the answer from before, the change is for the inputs of the test alone.

The tests note what they compare in a file of the ground; that a note is missing shows nothing. Tests in Python alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from secrets import token_hex
from threading import Event

from ...shared import syntax_tree
from ...shared.checks import CommandCheck
from ..threads import run_in_thread
from ..workspace.source import open_folder
from .canary import inside
from .executions import OneCheck, beside
from .grounds.ground import reader_of, write
from .reports.report_files import read_inside
from .reports.states import Report
from .runners.known import Instrumented
from .sources.broken_functions import called, is_head, is_literal
from .sources.file_texts import TESTS, FileText
from .verdict import Judgement, Observations

_MAX_FILES, _MAX_TEXT = 50, 128 * 1024
_MIN_ANSWERS = 5
"""Other inputs that the code answers: fewer show nothing."""
_MIN_DIFFERENT = 4
"""Different answers to them: of a table with a default, one is for all, or is what was given."""
_MIN_SECONDS, _MAX_SECONDS, _TIMES = 5.0, 30.0, 3
"""For one execution: other inputs may take any time. How many times what the first execution took."""
_NOTED_BYTES = 256 * 1024
_LITERAL = re.compile(r"(?P<number>(?<![\w.])\d+(?:\.\d+)?(?![\w.]))|([\"'])(?P<text>[^\"'\n\\]*)\2")
_NUMBER, _WORD = re.compile(r"-?[\d.]+(?:e[+-]?\d+)?"), re.compile(r"\d[\d.]*")
_BESIDE_LIMIT = re.compile(r"[<>]=?\s*$"), re.compile(r"\s*[<>]")
_NOT_NESTED = (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global, ast.Return)
_USUAL = (0, 1, -1, 2, 3, 10, 100, 1000, "", True, False, None)
_COSTLY = ("range", "repeat", "sleep", "bytes", "bytearray")
"""Calls whose cost grows with their number."""
_RUNNER = """
{run}_until = []
def {run}(key, body):
    import json, os, re
    {run}_until.append(os.times().elapsed + {seconds})
    def varied(given, number, kept):
        kind, step = type(given), number % 8
        if kind in (tuple, list, set, frozenset):
            return kind(varied(each, number, kept) for each in given)
        if kind is dict:
            return {{varied(key, number, kept): varied(each, number, kept) for key, each in given.items()}}
        if (kind, repr(given)) in kept:
            return kept[kind, repr(given)]
        new = given
        if number // 8 > 1 and (len(kept) + number // 8) % 2:
            pass
        elif kind in (int, float) and number % 3 and given not in (0, 1, -1) and abs(given) < 10 ** 15:
            new = (given + 1, given - 1, given * 2, given + 10, given * 3 + 1, given + 7, given * 10, given * 5)[step]
        elif kind is str and len(given) > 1 and number % 3 != 1:
            digits = re.sub("[0-9]", lambda found: str((int(found[0]) + step) % 9 + 1), given)
            at = number % len(given)
            letter = chr(ord(given[at]) + 1) if given[at].isalpha() and given[at] not in "zZ" else given[at]
            other = given[:at] + letter + given[at + 1:]
            first = digits if digits != given else other
            new = (first, other, given + given[-1], first, given[0] + given, other, first, given[:-1])[step]
        kept[kind, repr(given)] = new
        return new
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), {file!r})
    case = os.urandom(8).hex()
    for number in range(32):
        if number and os.times().elapsed >= {run}_until[0]:
            break
        kept, notes = {{}}, []
        def pick(given):
            return varied(given, number, kept) if number else given
        def note(value):
            if len(notes) < 20:
                notes.append(re.sub(" at 0x[0-9a-f]+", "", repr(value))[:500])
        try:
            body(pick, note)
        except BaseException as error:
            notes.append("!" + type(error).__name__)
        others = [[old, repr(new)[:500]] for (_, old), new in kept.items() if repr(new) != old]
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([case, key, repr(others)[:2000] if others else "", notes]) + "\\n")
"""
_Noted = Sequence[tuple[str, Sequence[str]]]
"""For each variation the inputs that are other ones, and what was compared."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The variation of one check. ``proving``: the tests that turned green."""

    check: OneCheck
    item: CommandCheck
    how: Instrumented
    observed: Observations
    proving: frozenset[str]

    async def judged(self, judgement: Judgement) -> Judgement:
        """Returns the judgement by what the code answers to other inputs."""
        texts = await run_in_thread(self._asked)
        if judgement.outcome != "evidence" or not texts:
            return judgement
        before, now = await beside(self._answers(texts, on_base=True), self._answers(texts, on_base=False))
        special = sorted({key for key, kept in now.items() if any(map(is_special, before.get(key, ()), kept))})
        if not special:
            return judgement
        why = f"{special[0]} gets another answer than before the run, and other inputs like its own do not"
        return Judgement("inconclusive", f"{judgement.why}; {why}", judgement.tests)

    def _asked(self) -> Mapping[str, tuple[str, set[str]]]:
        """Returns the files of tests that turned green, with those of their functions whose values the run wrote into
        its code. Blocks.
        """
        files = [
            FileText(path, old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
            for path, contents in self.check.candidate.sources()[:_MAX_FILES]
            for old, new in [contents()]
            if max(len(old), len(new)) <= _MAX_TEXT
        ]
        report, texts = self.observed.placed or Report(), dict[str, tuple[str, set[str]]]()
        written = new_values(files)
        for id in sorted(self.proving & report.places.keys()) if written else ():
            place = report.places[id]
            path = inside(place.file, self.check.roots)
            if path and path.endswith(".py"):
                text, names = texts.setdefault(path, (self._text(path), set[str]()))
                if place.name in functions_with(text, written):
                    names.add(place.name)
        return {path: each for path, each in texts.items() if each[1]}

    def _text(self, path: str) -> str:
        data = reader_of(self.check.candidate.changed.base)(path) or b""
        return self.item.files.get(path) or data.decode("utf-8", "surrogateescape")

    async def _answers(self, texts: Mapping[str, tuple[str, set[str]]], *, on_base: bool) -> dict[str, list[_Noted]]:
        candidate, file = None if on_base else self.check.candidate, f"{token_hex(8)}.json"
        base, make = self.check.candidate.changed.base, self.check.grounds.make
        ground = await run_in_thread(
            make, "base" if on_base else "candidate", base, candidate, self.item.files, Event()
        )
        await run_in_thread(lay, ground, texts, file)
        ids = {id for id in self.proving if self._name(id) in {name for _, names in texts.values() for name in names}}
        item = self.item.model_copy(update={"timeout_seconds": self._seconds})
        await self.check.runner.run(ground, item, replace(self.how, only=frozenset(ids)))
        return await run_in_thread(_read, ground, texts, file)

    @property
    def _seconds(self) -> float:
        asked = self.item.timeout_seconds or self.check.runner.seconds
        return min(asked, _MAX_SECONDS, max(_MIN_SECONDS, _TIMES * self.observed.candidate.seconds))

    def _name(self, id: str) -> str:
        places = (self.observed.placed or Report()).places
        return places[id].name if id in places else ""


def lay(ground: Path, texts: Mapping[str, tuple[str, set[str]]], file: str) -> None:
    """Writes the files of tests that note what they compare. One that is nested too deeply stays as it is. Blocks."""
    with open_folder(ground) as root:
        for path, (text, names) in texts.items():
            with suppress(*syntax_tree.PARSE_ERRORS):
                write(root, path, varied(text, names, file).encode("utf-8", "surrogateescape"))


def _read(ground: Path, paths: Iterable[str], file: str) -> dict[str, list[_Noted]]:
    """Returns what was noted for each test: a list for each of its cases, in their order. Blocks."""
    found = dict[str, list[_Noted]]()
    for path in paths:
        lines = read_inside(ground, str(PurePosixPath(path).parent / file), _NOTED_BYTES).splitlines()
        for key, noted in parsed(lines):
            found.setdefault(f"{path}::{key}", []).append(noted)
    return found


def parsed(lines: Iterable[str]) -> list[tuple[str, _Noted]]:
    """Returns for each case that was noted its test, and what was compared."""
    cases = dict[str, tuple[str, list[tuple[str, Sequence[str]]]]]()
    for line in lines:
        try:
            case, key, others, notes = json.loads(line)
            noted = str(others), [str(each) for each in notes]
        except (ValueError, TypeError, RecursionError):
            continue
        cases.setdefault(str(case), (str(key), []))[1].append(noted)
    return [*cases.values()]


def is_special(before: _Noted, now: _Noted) -> bool:
    """Whether a test's own input gets another answer than before the run, and others that differ from it do not.

    An answer that many others get, too, shows a limit and not a case; yes and no are the answers of limits alone. A
    table with a default answers the same, or something of what was asked. So the answers have to be computed.
    """
    if not (before and now):
        return False
    (_, was), (_, answer) = before[0], now[0]
    if was == answer or _failed(answer) or {*answer} <= {"True", "False", "None"}:
        return False
    others = {given: (old, new) for (_, old), (given, new) in zip(before[1:], now[1:], strict=False) if given}
    answered = [(old, new) for old, new in others.values() if not _failed(new)]
    is_as_before = len(answered) >= _MIN_ANSWERS and all(old == new for old, new in answered)
    computed = {tuple(new) for given, (_, new) in others.items() if not _failed(new) and _is_computed(new, given)}
    shared = sum(answer in each for each in others.values())
    return is_as_before and len(computed) >= _MIN_DIFFERENT and shared * 4 < len(others)


def _is_computed(notes: Sequence[str], given: str) -> bool:
    """Whether these are numbers, or texts of other numbers, and not what was given."""
    words = {*re.findall(r"[\w.]+", given)}
    is_of_numbers = not re.search(r"[A-Za-z]", given)
    return all(
        note not in words and (_NUMBER.fullmatch(note) or (is_of_numbers and not words & {*_WORD.findall(note)}))
        for note in notes
    )


def _failed(notes: Sequence[str]) -> bool:
    return not notes or notes[-1].startswith("!")


def new_values(files: Iterable[FileText]) -> set[str]:
    """Returns the numbers and texts that came into code or data with these changes, as Python writes them."""
    known, found, entries = set[str](), set[str](), set[str]()
    for file in files:
        is_table = not file.path.endswith(".py") and file.before
        if not TESTS.match(file.path):
            known |= {*_values(file.before)}
            found |= set() if is_table else {*_values(file.after)}
            entries |= _added_entries(file)
    return found - known - entries - {repr(each) for each in _USUAL}


def _values(text: str) -> Iterator[str]:
    """Yields the values in a text, without those that are limits."""
    before, after = _BESIDE_LIMIT
    for each in _LITERAL.finditer(text):
        if each["number"]:
            number = float(each["number"])
            if not before.search(text[max(0, each.start() - 8) : each.start()]) and not after.match(text, each.end()):
                yield repr(int(number) if number.is_integer() and "." not in each["number"] else number)
        elif len(each["text"]) > 1:
            yield repr(each["text"])


def _added_entries(file: FileText) -> set[str]:
    """Returns the keys of tables that had others before: a table with a default gets entries one by one."""
    known, found = {*_values(file.before)}, set[str]()
    with suppress(*syntax_tree.PARSE_ERRORS):
        for node in ast.walk(syntax_tree.parse(file.after)):
            keys = node.keys if isinstance(node, ast.Dict) else []
            values = {
                repr(part.value) for key in keys if key for part in ast.walk(key) if isinstance(part, ast.Constant)
            }
            found |= values if values & known else set()
    return found


def functions_with(text: str, values: Collection[str]) -> set[str]:
    """Returns the functions of a file of tests in which one of these values stands, with their classes."""
    try:
        return {
            name
            for name, node in _functions(syntax_tree.parse(text))
            if any(isinstance(each, ast.Constant) and repr(each.value) in values for each in ast.walk(node))
        }
    except syntax_tree.PARSE_ERRORS:  # a number may have too many digits to be written
        return set()


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def varied(text: str, names: Collection[str], file: str, seconds: float = _MIN_SECONDS) -> str:
    """Returns a file of tests in which these functions note what they compare, for other inputs as well.

    ``seconds``: after which they begin no further inputs.
    """
    tree, run = syntax_tree.parse(text), f"r{token_hex(6)}"
    for name, node in _functions(tree):
        if name in names and not any(isinstance(each, _NOT_NESTED) for each in ast.walk(node)):
            _vary(node, name, run)
    first = next((at for at, each in enumerate(tree.body) if not is_head(each)), len(tree.body))
    tree.body[first:first] = syntax_tree.parse(_RUNNER.format(run=run, file=file, seconds=seconds)).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _vary(node: ast.FunctionDef, name: str, run: str) -> None:
    """Has a function execute its statements several times, as one of its own that gets its parameters as defaults."""
    pick, note, body = (f"{letter}{token_hex(6)}" for letter in "pnb")
    given = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    cases = [each for each in given if each in _cases(node) - _expected(node)]
    defaults = ", ".join([pick, note, *(f"{each}={each}" for each in given)])
    picked = "".join(f"\n    {each} = {pick}({each})" for each in cases)
    (inner,) = syntax_tree.parse(f"def {body}({defaults}):{picked}\n    pass").body
    assert isinstance(inner, ast.FunctionDef)
    literals, statements = _Literals(pick, {*cases}), list[ast.stmt]()
    for each in node.body:
        statements += _Notes(note, literals).of(each)
    inner.body = [*inner.body, *statements]
    node.body = [inner, *syntax_tree.parse(f"{run}({name!r}, {body})").body]


def _cases(node: ast.FunctionDef) -> set[str]:
    """Returns the names of a function's parameters that have values of cases."""
    texts = (
        part.value
        for decorator in node.decorator_list
        if called(decorator) == "parametrize"
        for part in ast.walk(decorator)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
    return {name.strip() for text in texts for name in text.split(",")}


def _expected(node: ast.FunctionDef) -> set[str]:
    """Returns the names with which a function compares what it got: no other input comes from them."""
    found = set[str]()
    for part in ast.walk(node):
        match part:
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Name(id=name)]):
                found.add(name)
            case ast.Call(args=[_, ast.Name(id=name), *_]) if called(part).startswith("assert"):
                found.add(name)
            case _:
                pass
    return found


class _Literals(ast.NodeTransformer):
    """Has what is given to the code under test varied."""

    def __init__(self, pick: str, cases: Collection[str]) -> None:
        self._pick, self.cases = pick, cases

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in (int, float, str) or node.value in _USUAL[:3]:
            return node
        return ast.Call(ast.Name(self._pick, ast.Load()), [node], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return node if isinstance(node.op, ast.Pow | ast.LShift) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node if called(node) in _COSTLY else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in ("match", "msg") else self.generic_visit(node)


class _Notes:
    """Has what assertions compare noted: of an equality the side that is not a literal, else the first one."""

    def __init__(self, note: str, literals: _Literals) -> None:
        self._note, self._literals = note, literals

    def of(self, node: ast.stmt) -> list[ast.stmt]:
        """Returns the statements that take the place of one."""
        match node:
            case ast.Assert(test=ast.Compare(left=left, comparators=[right])):
                return [self._noted(self._actual(left, right))]
            case ast.Assert(test=test):
                return [self._noted(test)]
            case ast.Expr(value=ast.Call(args=[first, second, *_]) as call) if called(call).startswith("assert"):
                is_raising = called(call).startswith(("assertRaises", "assertWarns"))
                return [self._literals.visit(node)] if is_raising else [self._noted(self._actual(first, second))]
            case ast.Expr(value=ast.Call(args=[first]) as call) if called(call).startswith("assert"):
                return [self._noted(first)]
            case ast.With() | ast.For() | ast.If():
                node.body = [part for each in node.body for part in self.of(each)]
                if isinstance(node, ast.For):
                    node.iter = self._literals.visit(node.iter)
                return [node]
            case _:
                return [self._literals.visit(node)]

    def _actual(self, first: ast.expr, second: ast.expr) -> ast.expr:
        is_expected = isinstance(first, ast.Name) and first.id in self._literals.cases
        return second if is_literal(first) or is_expected else first

    def _noted(self, value: ast.expr) -> ast.stmt:
        return ast.Expr(ast.Call(ast.Name(self._note, ast.Load()), [self._literals.visit(value)], []))
