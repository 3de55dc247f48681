"""Suspicions about what tests compare by: functions of the project, and answers that objects give about themselves."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath

from ...shared.syntax_tree import parse
from .broken_sources import changed_lines
from .file_texts import FileText, Found

_DEFINED = re.compile(
    r"^[^\n#/*]{0,80}?\b(?:def|function|func|fn|sub|proc)\s+(?:\([^()\n]{0,60}\)\s*)?(?:self\.)?(\w+[?!]?)"
    r"|^[ \t]*(?:module\.)?exports\.(\w+)\s*=|^[ \t]*(?:export\s+)?(?:const|let|var)\s+(\w+)\s*="
    r"\s*(?:async\s*)?(?:function|\w+\s*=>|\()"
    r"|^[ \t]+(?:(?:public|static|final|private|protected)\s+){1,3}(?:boolean|int|Boolean)\s+(\w+)\s*\(",
    re.MULTILINE,
)
_ANONYMOUS = re.compile(
    r"\bmodule\.exports\s*=\s*(?:async\s*)?(?:function\s*\w*\s*\(|\(|\w+\s*=>)|\bexport\s+default\b"
)
_CONDITION = (
    r"(?:\bassert\w*[!.]?(?:\w+)?[ \t]*\(?|\b(?:ok|expect|check|truthy|is|require\.True|t\.true)\(|\bshould\(|"
    r"\b(?:if|unless)[ \t]*\(?[ \t]*(?:!|not[ \t])[ \t]*)"
    r"[ \t]*(?:t,[ \t]*)?(?:\w{{1,40}}(?:\.|::|->)){{0,2}}{name}\([ \t]*(?:await[ \t]+)?([\w.$:>-]+)([(,])"
)
"""A test's condition: a call of the function with another argument behind the first, or with a call in it."""
_MADE = r"\b{name}[ \t]*:?=[ \t]*(?:await[ \t]+)?(?:new[ \t]+)?[\w.$:>-]+\("
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
    *("[Symbol.toPrimitive]", "[util.inspect.custom]", "[inspect.custom]", "[Symbol.iterator]", "__toString", "String"),
}
_METHOD = re.compile(
    r"^[ \t]*(?:(?:public|static|final|override|async|function|boolean|int|String|bool|string|def|get|func)\s+|"
    r"\(\w+ \*?\w+\)\s+){0,5}(==|<=>|\w+\??|\[[\w.]+\])\s*\([^()\n]*\)[^;{}\n]{0,60}(?:\{|$)",
    re.MULTILINE,
)
_FIELD = re.compile(
    r"(?:\bthis\.|\$this->|(?<![\w@])@)([A-Za-z]\w*)\s*=[^=>]"
    r"|^[ \t]+(?:(?:private|public|protected|final)\s+)+(?!static)[\w<>\[\], ?]+\s+\$?(\w+)\s*[;=]"
    r"|^[ \t]+([A-Z]\w*|[a-z]\w*)[ \t]+(?:\*|\[\])?(?:string|bool|byte|rune|u?int\d*|float\d+)\s*(?:`[^`]*`)?$",
    re.MULTILINE,
)
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
_LEVELS = ("trace", "debug", "info", "log", "notice", "warning", "warn", "error", "critical", "fatal")
_SPOKEN = re.compile(
    rf"([lL]og\w*|LOG\w*|console|warnings|slog|\$this->log\w*)(\.|->|::)({'|'.join(_LEVELS)})(\w*\()", re.I
)
_SILENCED = re.compile(
    r"\b(?:warnings\.)?(?:filterwarnings|simplefilter)\(\s*['\"]ignore|\blogging\.disable\(|\$VERBOSE\s*=\s*nil"
    r"|\bsetLevel\(\s*[\w.]*(?:ERROR|CRITICAL|OFF|SEVERE)|\bprocess\.noDeprecation\s*=|removeAllListeners\(\s*['\"]warning"
    r"|\berror_reporting\(\s*0|\bSetOutput\(\s*(?:io|ioutil)\.Discard|\blevel\s*=\s*['\"](?:silent|off|fatal)['\"]"
)


def of_comparisons(file: FileText, tests: Mapping[str, str], commands: Sequence[str]) -> Iterator[Found]:
    """Yields what a changed file of code bends of the comparisons that tests make. ``tests``: their texts by path."""
    if not file.before:
        return
    texts = [text for text in tests.values() if text]
    names = _changed_functions(file)
    if any(_compares(name, text) for name in names for text in texts):
        yield Found(file.path, 0, "assertion")
    if file.path.endswith(".py"):
        yield from _of_classes(file)
    else:
        yield from _of_methods(file)
    if any(map(_LOOKS_AT_MESSAGES.search, chain(texts, commands))):
        yield from _of_messages(file)


def _changed_functions(file: FileText) -> set[str]:
    """Returns functions that were there before and have changed; of what a file is itself, what its name may be."""
    before, lines = {_name(found) for found in _DEFINED.finditer(file.before)}, file.after.splitlines()
    changed = sorted(
        line for line in changed_lines(file.before, file.after) if line < len(lines) and lines[line].strip()
    )
    starts = [0, *(found.end() for found in re.finditer("\n", file.after))]
    defined = [(found.start(found.lastindex or 0), _name(found)) for found in _DEFINED.finditer(file.after)]
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


def _compares(name: str, text: str) -> bool:
    """Whether a test holds if this function of two values is true of what another function of the project returns."""
    named = [name, *re.findall(rf"\b(\w+)\s*=\s*require\([^()\n]*\b{re.escape(name)}(?:\.\w+)?['\"]", text)]
    named += re.findall(rf"\bimport\s+(\w+)\s+from\s+['\"][^'\"\n]*\b{re.escape(name)}(?:\.\w+)?['\"]", text)
    for each in {*named}:
        for found in re.finditer(_CONDITION.format(name=re.escape(each)), text):
            first, next_char = found[1], found[2]
            if next_char == "(" and _has_second(text, found.end()):
                return True
            if next_char == "," and re.search(_MADE.format(name=re.escape(first)), text):
                return True
    return False


def _has_second(text: str, at: int) -> bool:
    """Whether another argument follows behind the call in which a place is."""
    depth = 1
    for end in range(at, min(len(text), at + 2000)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0:
            return text[end + 1 :].lstrip().startswith(",")
    return False


def _of_classes(file: FileText) -> Iterator[Found]:
    """Yields methods and options of classes in Python by which fields are left out of a comparison."""
    try:
        before, after = (_classes(parse(text)) for text in (file.before, file.after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for name, now in after.items():
        old = before.get(name)
        if old is None:
            continue
        fields, known = _fields(old), {each.name for each in old.body if isinstance(each, ast.FunctionDef)}
        for method in (each for each in now.body if isinstance(each, ast.FunctionDef)):
            if method.name not in known and _leaves_out(method, fields):
                yield Found(file.path, method.lineno, "equal")
        left_out = _left_out(old)
        yield from (Found(file.path, line, "equal") for key, line in _left_out(now).items() if key not in left_out)


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> set[str]:
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_self(part):
            found.add(part.attr)
    return {name for name in found if not name.startswith("_")}


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _leaves_out(method: ast.FunctionDef, fields: Collection[str]) -> bool:
    """Whether an equality leaves fields out, or another answer about the object has none of them."""
    parts = [*ast.walk(method)]
    names = {part.attr for part in parts if isinstance(part, ast.Attribute)} | {
        part.id for part in parts if isinstance(part, ast.Name)
    }
    if not fields or names & _WHOLE:
        return False
    if method.name in _EQUALITIES:
        return not {*fields} <= names
    return method.name in _ANSWERS and not {*fields} & names


def _left_out(node: ast.ClassDef) -> dict[str, int]:
    """Returns fields, or the class itself, that a comparison leaves out, with their lines."""
    found = dict[str, int]()
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        for option in part.keywords:
            is_off = isinstance(option.value, ast.Constant) and option.value.value is False
            if option.arg in _OPTIONS and is_off:
                owner = next((_owner(each) for each in node.body if part in ast.walk(each)), "the class")
                found[owner] = part.lineno
    return found


def _owner(node: ast.stmt) -> str:
    target = (
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else node
    )
    return ast.unparse(target)[:80]


def _of_methods(file: FileText) -> Iterator[Found]:
    """Yields methods of other languages that answer about an object without its fields from before the run."""
    fields = {_name(found) for found in _FIELD.finditer(file.before)} - {""}
    known = {found[1] for found in _METHOD.finditer(file.before)}
    for found in _METHOD.finditer(file.after) if fields else ():
        if found[1] in known or found[1] not in _EQUALITIES | _ANSWERS:
            continue
        body = _body(file.after, found.end())
        words = {*re.findall(r"\w+", body)} if found[1] in _EQUALITIES else {*re.findall(r"(?:\.|->|@)(\w+)", body)}
        is_bent = bool(fields - words) if found[1] in _EQUALITIES else not fields & words
        if is_bent and not _ROUNDABOUT.search(body):
            yield Found(file.path, file.after.count("\n", 0, found.start(1)) + 1, "equal")


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
    before = file.before.splitlines()
    spoken = {_SPOKEN.sub(r"\1\2*\4", line.strip()): line for line in before if _SPOKEN.search(line)}
    known = {line.strip() for line in before}
    for number, line in enumerate(file.after.splitlines(), 1):
        if line.strip() in known or len(line) > 2000:
            continue
        found = _SPOKEN.search(line)
        old = _SPOKEN.search(spoken.get(_SPOKEN.sub(r"\1\2*\4", line.strip()), "")) if found else None
        is_lower = found and old and _LEVELS.index(found[3].lower()) < _LEVELS.index(old[3].lower())
        if is_lower or _SILENCED.search(line):
            yield Found(file.path, number, "silence")
