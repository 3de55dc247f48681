"""Whether a file of tests in Python still has all that it had, and what was added cannot reach beyond its own tests.

Statements from before must all be there, in their order. Added ones are tests, fixtures that a test must ask for, and
plain values. They neither assign to anything that was imported, nor take a name that was there, nor write files.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...shared import syntax_tree
from .sources.functions_before import Function
from .suspicions.python_code import of_python, stdlib_names, writes_files

_REACHING = frozenset(
    (
        *("sys", "os", "subprocess", "importlib", "builtins", "gc", "inspect", "ctypes", "atexit", "signal", "shutil"),
        *("types", "runpy", "code", "codeop", "site", "threading", "multiprocessing", "trace", "dis", "linecache"),
    )
)
"""Modules of the standard library by which a test reaches other tests, or its runner."""
_LIBRARIES = frozenset(("pytest", "unittest"))
_CALLS = frozenset(("setattr", "delattr", "globals", "vars", "exec", "eval", "compile", "__import__", "patch", "start"))
_HOOKS = ("pytest_", "setup_", "teardown_", "setUpModule", "tearDownModule", "load_tests", "__")
_OF_PYTEST = frozenset(
    (
        *(
            "cache",
            "capfd",
            "capfdbinary",
            "caplog",
            "capsys",
            "capsysbinary",
            "capteesys",
            "config",
            "doctest_namespace",
        ),
        *("monkeypatch", "pytestconfig", "pytester", "recwarn", "record_property", "request", "subtests", "testdir"),
        *("tmp_path", "tmp_path_factory", "tmpdir", "tmpdir_factory", "mocker", "event_loop"),
    )
)
"""Fixtures that others define: one of the same name would take their place."""
_UNFIT = frozenset(("exit", "place", "caller", "tested", "equal", "shadow"))
"""Kinds of suspicion that no added test has."""


def kept_python(
    path: str, before: str, after: str, own: Collection[str], moved: Mapping[str, str] | None = None
) -> bool:
    """Whether the tests of a file are all there as they were.

    Args:
        path: Its path.
        before: The text before the run; "" for a new file.
        after: The text now.
        own: The names of the project's modules, that tests may import.
        moved: Modules that were moved, with where to: their names in imports may follow. Where it is given, nothing
            may be added: it would help tests that fail without the move.
    """
    try:
        return _is_kept(path, (before, after), own, moved)
    except syntax_tree.PARSE_ERRORS:
        return False


def _is_kept(path: str, texts: tuple[str, str], own: Collection[str], moved: Mapping[str, str] | None) -> bool:
    before, after = texts
    old, new = syntax_tree.parse(before), syntax_tree.parse(after)
    added = _added(old.body, new.body)
    known = {*dir(builtins), *_mentioned(old)}
    if added is None or (added and moved is not None) or not _imports_kept((old, new), known, own, moved or {}):
        return False
    names = [name for node in added for name in _bound(node)]
    if known & {*names} or len({*names}) < len(names):
        return False
    file = path.rpartition("/")[2]
    is_shared = file == "conftest.py"
    if not before and not (is_shared or file.startswith("test_") or file.endswith("_test.py")) and after.strip():
        return False  # it may take the place of a module of the project
    if not all((_is_fixture if is_shared else _is_test)(node) for node in added):
        return False
    return not added or not (
        any(_reaches(node, is_shared) for node in added)
        or writes_files(ast.Module(added, []))
        or any(kind in _UNFIT for _, kind, _ in of_python(ast.unparse(ast.Module(added, []))))
    )


def reaches_further(before: str, after: str) -> bool:
    """Whether a changed file of tests has a hook, or a kind of suspicion, that it did not have."""
    try:
        found, known = ({*_steering(text)} for text in (after, before))
    except syntax_tree.PARSE_ERRORS:
        return True
    return bool(found - known)


def _steering(text: str) -> Iterator[str]:
    yield from (kind for _, kind, _ in of_python(text) if kind in _UNFIT)
    yield from (name for node in syntax_tree.parse(text).body for name in _bound(node) if name.startswith(_HOOKS))


def fixtures_of(text: str) -> set[str]:
    """Returns the names of the functions of a file that all tests share; none where it cannot be parsed."""
    try:
        return {name for node in syntax_tree.parse(text).body if isinstance(node, Function) for name in _bound(node)}
    except syntax_tree.PARSE_ERRORS:
        return set()


def _added(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """Returns the statements that are new, but for imports; None where one from before is gone or another one."""
    left = [ast.dump(node) for node in reversed(old) if not isinstance(node, ast.Import | ast.ImportFrom)]
    added = list[ast.stmt]()
    for node in new:
        if left and ast.dump(node) == left[-1]:
            left.pop()
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            added.append(node)
    return None if left else added


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]] | None:
    """Returns what the imports bind, by name, each with its module and its name there.

    Returns None for ``*``, and for a name that is bound to several: what stands between would see another one.
    """
    found = dict[str, tuple[str, str]]()
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for each in node.names:
            origin = (each.name, "")
            if isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or ""), each.name
            if each.name == "*" or found.setdefault(each.asname or each.name, origin) != origin:
                return None
    return found


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Yields the names that a file binds or uses, also those of fixtures."""
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield node.id
            case ast.arg():
                yield node.arg
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0]
            case ast.Constant(value=str(text)):
                yield text
            case _:
                pass


def _imports_kept(
    trees: tuple[ast.Module, ast.Module], known: Collection[str], own: Collection[str], moved: Mapping[str, str]
) -> bool:
    before, now = map(_imported, trees)
    if before is None or now is None:
        return False
    for name, (module, inner) in before.items():
        if now.get(name) not in ((module, inner), (moved.get(module, module), inner)):
            return False
    added = [(name, module) for name, (module, _) in now.items() if name not in before]
    return all(name.partition(".")[0] not in known and _may_import(module, own) for name, module in added)


def _may_import(module: str, own: Collection[str]) -> bool:
    top = module.partition(".")[0]
    if module in _LIBRARIES:
        return True
    return top in own or (top in stdlib_names() and top not in _REACHING | _LIBRARIES)


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for each in targets for part in ast.walk(each) if isinstance(part, ast.Name))
        case _:
            pass


def _is_test(node: ast.stmt) -> bool:
    """Whether an added statement is a test, a helper of its own, or a plain value."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not node.name.startswith(_HOOKS) and all(map(_is_mark, node.decorator_list))
        case ast.ClassDef():
            is_of_tests = node.name.startswith("Test") or any(_name(base) == "TestCase" for base in node.bases)
            return is_of_tests and not node.keywords and not node.decorator_list and all(map(_is_of_class, node.body))
        case _:
            return _is_value(node)


def _is_of_class(node: ast.stmt) -> bool:
    if isinstance(node, Function):
        return not node.name.startswith(("__", "pytest_", "run")) and all(map(_is_mark, node.decorator_list))
    return _is_value(node)


def _is_value(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Assign) or not all(isinstance(each, ast.Name) for each in node.targets):
        return False
    try:
        ast.literal_eval(node.value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return not any(name.startswith(("pytest", "collect_", *_HOOKS)) for name in _bound(node))


def _is_mark(node: ast.expr) -> bool:
    text = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    return text.startswith("pytest.mark.") or text in ("staticmethod", "classmethod") or _is_asked_fixture(node)


def _is_asked_fixture(node: ast.expr) -> bool:
    """Whether it is the decorator of a fixture that has no effect unless a test asks for it by its function's name."""
    if isinstance(node, ast.Call):
        options = {each.arg for each in node.keywords}
        return _is_asked_fixture(node.func) and not node.args and options <= {"params", "ids", "scope"}
    return ast.unparse(node) == "pytest.fixture"


def _is_fixture(node: ast.stmt) -> bool:
    """Whether an added statement of a file that all tests share is a fixture for those that ask for it."""
    if not isinstance(node, Function) or node.name in _OF_PYTEST or node.name.startswith(_HOOKS):
        return _is_value(node) if isinstance(node, ast.Expr) else False
    asked = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
    return bool(node.decorator_list) and all(map(_is_asked_fixture, node.decorator_list)) and not asked & _OF_PYTEST


def _reaches(node: ast.stmt, is_shared: bool) -> bool:
    """Whether it may change what other tests see."""
    for part in ast.walk(node):
        if isinstance(part, ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
            return True
        if isinstance(part, ast.Call) and _name(part.func) in _CALLS:
            return True
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load) and not _is_own(part):
            return True
        if isinstance(part, ast.Attribute) and part.attr.startswith("__"):
            return True
        if is_shared and part is not node and isinstance(part, ast.Lambda | ast.ClassDef | Function):
            return True
    return False


def _is_own(target: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
