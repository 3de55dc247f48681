"""Suspicions about what tests compare by: functions of the project, and answers that objects give about themselves."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from ....shared.lazy import lazy
from ....shared.syntax_tree import PARSE_ERRORS, parse
from ...threads import give_way
from ..sources.broken_sources import changed_lines
from ..sources.file_texts import FileText, Found
from ..sources.functions_before import Function

_DEFINED = re.compile(
    r"^[^\n#/*]{0,80}?\b(?:def|function|func|fn|sub|proc)\s+(?:\([^()\n]{0,60}\)\s*)?(?:self\.)?(\w+[?!]?)"
    r"|^[ \t]*(?:module\.)?exports\.(\w+)\s*=|^[ \t]*(?:export\s+)?(?:const|let|var)\s+(\w+)\s*="
    r"\s*(?:async\s*)?(?:function|\w+\s*=>|\()"
    r"|^[ \t]+(?:(?:public|static|final|private|protected)\s+){1,3}(?:boolean|int|Boolean)\s+(\w+)\s*\(",
    re.MULTILINE,
)
"""A function that a file defines, in any language."""
_DEFINED_IN_SCRIPT = re.compile(
    rf"{_DEFINED.pattern}|^[ \t]{{1,40}}(?:async[ \t]{{1,8}})?"
    r"(?!(?:if|for|while|switch|catch|with|return|super|function)\b)(\w+)\([^()\n]{0,200}\)[ \t]{0,8}\{$",
    re.MULTILINE,
)
"""The same in JavaScript, whose methods have no word in front: elsewhere that is a statement with a block."""
_SCRIPTS = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte")
_ANONYMOUS = re.compile(
    r"\bmodule\.exports\s*=\s*(?:async\s*)?(?:function(?:\s+\w+)?\s*\(|\(|\w+\s*=>)|\bexport\s+default\b"
)
_CONDITION = (
    r"(?:\b(?P<assertion>assert(?:\w{{0,40}}[!.])?\w{{0,40}})(?!\w)[ \t]{{0,8}}\(?"
    r"|\b(?:ok|expect|check|truthy|is|require\.True|t\.true)\("
    r"|\bshould\(|\b(?:if|unless)[ \t]{{0,8}}\(?[ \t]{{0,8}}(?:!|not[ \t])[ \t]{{0,8}})"
    r"[ \t]{{0,8}}(?:t,[ \t]{{0,8}})?(?:await[ \t]{{1,8}})?(?:\w{{1,40}}(?:\.|::|->)){{0,2}}{name}"
    r"\([ \t]{{0,8}}(?:await[ \t]{{1,8}})?(?P<first>[\w.$:>-]{{1,200}})(?P<next>[(,])"
)
"""A test's condition: a call of the function with another argument behind the first, or with a call in it."""
_EQUALS = re.compile(r"(?i:equal|same)|eq(?![a-z])|\.is$")
_LOOKS_ON = re.compile(
    r"[ \t)]*(?:[=!<>]=|[<>+*/%-]|in\b|is\b|\.[ \t]*(?!(?:to|be|is)\w{0,40}\(\s{0,8}(?:true\b|\)))\w|\[)"
)
"""What follows a call whose value a test does not only take for true."""
_EXPECTED = re.compile(r"[ \t]*,(?!\s{0,8}(?:true|True)\b)")
_MADE = re.compile(
    r"(?<![\w.$:>-])([\w$][\w.$]{0,80})[ \t]{0,8}:?=[ \t]{0,8}(?:await[ \t]{1,8})?"
    r"((?:\w{1,40}(?:\.|::|->)){0,4}[A-Za-z_$]\w{0,80})\("
)
"""A value that a function returned."""
_CONSTRUCTS = re.compile(r"(?:new|make|create|build|open|load|of|empty|setup)(?![a-z])|(?i:\w{0,40}fixture)|[A-Z]")
_CONSTRUCTS_IN_GO = re.compile(r"(?i:new|make|create|build|open|load)(?![a-z])")
"""Functions that make an object for a test to begin with."""
_EQUALITIES = {
    *("__eq__", "equals", "Equals", "Equal", "==", "eql?", "isEqual", "isEqualTo", "compareTo", "Cmp", "cmp"),
    *("__cmp__", "<=>", "equalTo", "same"),
}
_ANSWERS = {
    *("toJSON", "valueOf", "jsonSerialize", "as_json", "to_json", "to_h", "to_s", "inspect", "toString", "__str__"),
    *(
        "__repr__",
        "__iter__",
        "__int__",
        "__float__",
        "__len__",
        "__json__",
        "__index__",
        "__getstate__",
        "MarshalJSON",
    ),
    *("[Symbol.toPrimitive]", "[util.inspect.custom]", "[inspect.custom]", "[Symbol.iterator]", "__toString"),
}
_METHOD = re.compile(
    r"^[ \t]*(?:(?:public|static|final|override|async|function|boolean|int|String|bool|string|def|get|func)\s+|"
    r"\(\w+ \*?\w+\)\s+){0,5}(==|<=>|\w+\??|\[[\w.]+\])\s*\([^()\n]*\)[^;{}\n]{0,60}(?:\{|$)",
    re.MULTILINE,
)
_FIELD = re.compile(
    r"(?:\bthis\.|\$this->|(?<![\w@])@)([A-Za-z]\w*)\s*=[^=>]"
    r"|^[ \t]{1,40}(?:(?:private|public|protected|final)[ \t]{1,8}){1,4}(?!static)[\w<>\[\], ?]{1,80}"
    r"[ \t]{1,8}\$?(\w{1,80})\s{0,8}[;=]"
    r"|^[ \t]{1,40}([A-Za-z]\w{0,80})[ \t]{1,80}(?:\*|\[\])?(?:string|bool|byte|rune|u?int\d{0,3}|float\d{1,3})"
    r"[ \t]{0,80}(?:`[^`\n]{0,400}`)?$",
    re.MULTILINE,
)
_RECEIVER = re.compile(r"\s*func\s+\((\w+)")
_CALL = re.compile(r"\b(\w{1,40})(?:\.|->)\w{1,80}\(")
_DERIVED = re.compile(r"(?i:cache)")
"""In names of fields whose values follow from those of others."""
_WORD = re.compile(r"\w+")
_ROUNDABOUT = re.compile(
    r"\b(?:Object\.(?:keys|entries|values|assign)|\.\.\.this|instance_variables|get_object_vars|reflect\.|super\b)"
)
_OPTIONS = frozenset(("compare", "eq", "cmp"))
_WHOLE = frozenset(
    ("__dict__", "__slots__", "asdict", "astuple", "fields", "vars", "super", "model_dump", "__fields__")
)
_LOOKS_AT_MESSAGES = re.compile(
    r"assert(?:No)?Logs|caplog|recwarn|assertWarns|pytest\.warns|simplefilter|filterwarnings|\bcap(?:sys|fd)\b|stderr"
    r"|spyOn\(\s*(?:console|log)|console\.\w+\s*=|mock\.method\(\s*console|SetOutput|capture_?(?:io|log|output)"
    r"|LogCaptor|ListAppender|observer\.New|-W\s*error"
)
_A_CLASS = re.compile(r"^[ \t]{0,40}(?:export[ \t]{1,8})?(?:default[ \t]{1,8})?class[ \t]{1,8}(\w{1,80})", re.MULTILINE)
_ALIAS = re.compile(
    r"^[ \t]{0,40}(?:export[ \t]{1,8})?(?:(?:const|let|var|type)[ \t]{1,8})?(?:(?:module\.)?exports\.)?(\w{1,80})"
    r"[ \t]{0,8}(?::[^=\n]{1,80})?=[ \t]{0,8}\(?(?:\w{1,40}\.)?"
    r"(\w{0,40}(?:Error|Exception)|object|Object|Function|Throwable)\b(?P<alone>[ \t]{0,8}(?:[;#]|//|$))?",
    re.MULTILINE,
)
"""A name for what is none of the project's classes, such as any exception."""
_MAX_LINE = 2000
_LEVELS = ("trace", "debug", "info", "log", "notice", "warning", "warn", "error", "critical", "fatal")
_SPOKEN = re.compile(
    rf"(log\w{{0,40}}|console|warnings|slog|\$this->log\w{{0,40}})(\.|->|::)({'|'.join(_LEVELS)})(\w{{0,40}}\()",
    re.IGNORECASE | re.ASCII,
)
_SILENCED = re.compile(
    r"\b(?:warnings\.)?(?:filterwarnings|simplefilter)\(\s*['\"]ignore|\blogging\.disable\(|\$VERBOSE\s*=\s*nil"
    r"|\bsetLevel\(\s*[\w.]*(?:ERROR|CRITICAL|OFF|SEVERE)|\bprocess\.noDeprecation\s*=|removeAllListeners\(\s*['\"]warning"
    r"|\berror_reporting\(\s*0|\bSetOutput\(\s*(?:io|ioutil)\.Discard|\blevel\s*=\s*['\"](?:silent|off|fatal)['\"]"
)


@dataclass(frozen=True)
class _Test:
    """A text of a test, of which each thing is found once."""

    path: str
    text: str

    @lazy
    def words(self) -> frozenset[str]:
        """Its words."""
        return frozenset(_WORD.findall(self.text))

    @lazy
    def made(self) -> frozenset[str]:
        """Names of values that functions returned."""
        return frozenset(found[1] for found in _MADE.finditer(self.text) if self.is_result(found[2]))

    def is_result(self, function: str) -> bool:
        """Whether what a function returns is a result, and not an object to begin with."""
        constructs = _CONSTRUCTS_IN_GO if self.path.endswith(".go") else _CONSTRUCTS
        return not constructs.match(re.split(r"\.|::|->", function)[-1])


@dataclass(frozen=True)
class Comparisons:
    """The tests of a project, by which changes of its code are read."""

    tests: Sequence[_Test]
    look_at_messages: bool
    moved: Collection[str] = ()
    """Names of classes in the files that changed, as they are now."""

    @classmethod
    def of(cls, texts: Mapping[str, str], commands: Sequence[str], changed: Iterable[FileText] = ()) -> Comparisons:
        """Returns those of the texts of tests by path, and of the commands that execute them."""
        moved = {found[1] for file in changed for found in _A_CLASS.finditer(file.after)}
        tests = [_Test(path, text) for path, text in texts.items() if text]
        return cls(tests, any(map(_LOOKS_AT_MESSAGES.search, chain((test.text for test in tests), commands))), moved)

    def bent_in(self, file: FileText) -> Iterator[Found]:
        """Yields what a changed file of code bends of the comparisons that tests make."""
        if not file.before:
            return
        yield from self._of_aliases(file)
        names = _changed_functions(file)
        if names and any(self._compare(names)):
            yield Found(file.path, 0, "assertion")
        if file.path.endswith(".py"):
            yield from _of_classes(file)
        else:
            yield from _of_methods(file)
        if self.look_at_messages:
            yield from _of_messages(file)

    def _of_aliases(self, file: FileText) -> Iterator[Found]:
        """Yields classes that tests name, and that are another name of something wider now."""
        now = {found[1] for found in _A_CLASS.finditer(file.after)}
        gone = {found[1] for found in _A_CLASS.finditer(file.before)} - now
        for found in _ALIAS.finditer(file.after) if gone else ():
            is_moved = found[2] == found[1] and found["alone"] is not None and found[1] in self.moved
            if found[1] in gone and not is_moved and any(found[1] in test.words for test in self.tests):
                yield Found(file.path, file.after.count("\n", 0, found.start(1)) + 1, "assertion")

    def _compare(self, names: Collection[str]) -> Iterator[bool]:
        words = {name: {*_WORD.findall(name)} for name in names}
        for test in self.tests:
            give_way()
            yield any(words[name] <= test.words and _compares(name, test) for name in names)


def defined_names(path: str, text: str) -> set[str]:
    """Returns the names of the functions that a file defines."""
    return {_name(found) for found in _definitions(path, text)}


def _definitions(path: str, text: str) -> Iterator[re.Match[str]]:
    return (_DEFINED_IN_SCRIPT if path.endswith(_SCRIPTS) else _DEFINED).finditer(text)


def _changed_functions(file: FileText) -> set[str]:
    """Returns functions that were there before and have changed; of what a file is itself, what its name may be."""
    before, lines = defined_names(file.path, file.before), file.after.splitlines()
    changed = sorted(
        line for line in changed_lines(file.before, file.after) if line < len(lines) and lines[line].strip()
    )
    starts = [0, *(found.end() for found in re.finditer("\n", file.after))]
    defined = [(found.start(found.lastindex or 0), _name(found)) for found in _definitions(file.path, file.after)]
    places = [at for at, _ in defined]
    above = {
        bisect_right(places, starts[line + 1] - 1 if line + 1 < len(starts) else len(file.after)) for line in changed
    }
    names = {defined[number - 1][1] for number in above if number} & before
    if changed and _ANONYMOUS.search(file.before):
        path = PurePosixPath(file.path)
        names.add(path.parent.name if path.stem == "index" else path.stem)
    return {name for name in names if len(name) > 1}


def _name(found: re.Match[str]) -> str:
    return next(filter(None, found.groups()), "")


def _compares(name: str, test: _Test) -> bool:
    """Whether a test holds if this function of two values is true of what another function of the project returns."""
    text = test.text
    named = [name, *re.findall(rf"\b(\w+)\s*=\s*require\([^()\n]*\b{re.escape(name)}(?:\.\w+)?['\"]", text)]
    named += re.findall(rf"\bimport\s+(\w+)\s+from\s+['\"][^'\"\n]*\b{re.escape(name)}(?:\.\w+)?['\"]", text)
    for each in {*named}:
        for found in re.finditer(_CONDITION.format(name=re.escape(each)), text):
            is_call = found["next"] == "("
            if not (test.is_result(found["first"]) if is_call else found["first"] in test.made):
                continue
            at = _closed(text, found.end()) if is_call else found.end() - 1
            if text[at : at + 80].lstrip().startswith(",") and _is_condition(found, text, _closed(text, at)):
                return True
    return False


def _is_condition(found: re.Match[str], text: str, at: int) -> bool:
    """Whether a test takes a call that ends at a place for true, and does not compare its value with another one."""
    behind = text[at : at + 80]
    is_equality = found["assertion"] and _EQUALS.search(found["assertion"])
    return not _LOOKS_ON.match(behind) and not (is_equality and _EXPECTED.match(behind))


def _closed(text: str, at: int) -> int:
    """Returns where the brackets end in which a place is, or a place that is far enough."""
    depth, stop = 1, min(len(text), at + 2000)
    for end in range(at, stop):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0:
            return end + 1
    return stop


def _of_classes(file: FileText) -> Iterator[Found]:
    """Yields methods and options of classes in Python by which fields are left out of a comparison."""
    try:
        lines = [*_lines_in_classes(*(_classes(parse(text)) for text in (file.before, file.after)))]
    except PARSE_ERRORS:
        return
    yield from (Found(file.path, line, "equal") for line in lines)


def _lines_in_classes(before: Mapping[str, ast.ClassDef], after: Mapping[str, ast.ClassDef]) -> Iterator[int]:
    for name, now in after.items():
        old = before.get(name)
        if old is None:
            continue
        fields, known = _fields(old), {each.name for each in old.body if isinstance(each, Function)}
        for method in (each for each in now.body if isinstance(each, Function)):
            if method.name not in known and _leaves_out(method, fields):
                yield method.lineno
        left_out = _left_out(old)
        yield from (line for key, line in _left_out(now).items() if key not in left_out)


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> set[str]:
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_self(part):
            found.add(part.attr)
    return {name for name in found if not name.startswith("_") and not _DERIVED.search(name)}


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _leaves_out(method: Function, fields: set[str]) -> bool:
    """Whether an equality leaves fields out, or another answer about the object has none of them."""
    parts = [*ast.walk(method)]
    names = {part.attr for part in parts if isinstance(part, ast.Attribute)} | {
        part.id for part in parts if isinstance(part, ast.Name)
    }
    asks_others = any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _is_self(part.func) for part in parts
    )
    if not fields or names & _WHOLE or asks_others:
        return False
    if method.name in _EQUALITIES:
        return not fields <= names
    return method.name in _ANSWERS and not fields & names


def _left_out(node: ast.ClassDef) -> dict[str, int]:
    """Returns fields, or the class itself, that a comparison leaves out, with their lines."""
    found = dict[str, int]()
    for each in (*node.decorator_list, *node.body):
        if lines := _options(each):
            found[_owner(each) if isinstance(each, ast.stmt) else "the class"] = max(lines)
    return found


def _options(node: ast.AST) -> list[int]:
    """Returns the lines of calls in which an option of comparisons is off."""
    return [
        part.lineno
        for part in ast.walk(node)
        if isinstance(part, ast.Call)
        for option in part.keywords
        if option.arg in _OPTIONS and isinstance(option.value, ast.Constant) and option.value.value is False
    ]


def _owner(node: ast.stmt) -> str:
    target = (
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else node
    )
    return ast.unparse(target)[:80]


def _of_methods(file: FileText) -> Iterator[Found]:
    """Yields methods of other languages that answer about an object without its fields from before the run."""
    fields = {name for found in _FIELD.finditer(file.before) if (name := _name(found)) and not _DERIVED.search(name)}
    known = {found[1] for found in _METHOD.finditer(file.before)}
    for found in _METHOD.finditer(file.after) if fields else ():
        if found[1] in known or found[1] not in _EQUALITIES | _ANSWERS:
            continue
        body = _body(file.after, found.end())
        words = {*re.findall(r"\w+", body)} if found[1] in _EQUALITIES else {*re.findall(r"(?:\.|->|@)(\w+)", body)}
        is_bent = bool(fields - words) if found[1] in _EQUALITIES else not fields & words
        if is_bent and not _ROUNDABOUT.search(body) and not _asks_others(found[0], body):
            yield Found(file.path, file.after.count("\n", 0, found.start(1)) + 1, "equal")


def _asks_others(head: str, body: str) -> bool:
    """Whether a method calls others of its object, which may look at the fields."""
    receiver = _RECEIVER.match(head)
    return any(found[1] in {"this", "self", receiver and receiver[1]} for found in _CALL.finditer(body))


def _body(text: str, at: int) -> str:
    """Returns the lines of a method: until one that is not indented deeper than it, or the closing bracket."""
    begin = text.rfind("\n", 0, at - 1) + 1
    head = text[begin:].partition("\n")[0]
    indent = len(head) - len(head.lstrip())
    lines = [text[at : at + 4000].partition("\n")[0]]
    for line in text[at : at + 8000].splitlines()[1:]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        lines.append(line)
    return "\n".join(lines)


def _of_messages(file: FileText) -> Iterator[Found]:
    """Yields messages at a lower level than before, and what silences messages, where tests look at them."""
    before = [line for line in file.before.splitlines() if len(line) <= _MAX_LINE]
    spoken = {_SPOKEN.sub(r"\1\2*\4", line.strip()): line for line in before if _SPOKEN.search(line)}
    known = {line.strip() for line in before}
    for number, line in enumerate(file.after.splitlines(), 1):
        if line.strip() in known or len(line) > _MAX_LINE:
            continue
        found = _SPOKEN.search(line)
        old = _SPOKEN.search(spoken.get(_SPOKEN.sub(r"\1\2*\4", line.strip()), "")) if found else None
        is_lower = found and old and _LEVELS.index(found[3].lower()) < _LEVELS.index(old[3].lower())
        if is_lower or _SILENCED.search(line):
            yield Found(file.path, number, "silence")
