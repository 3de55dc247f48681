"""What is suspicious in a file in Python, by its syntax: comments and strings that mean nothing do not count."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import BuiltinFunctionType, FunctionType

from ....shared import syntax_tree
from ..sources.functions_before import Function
from .python_answers import (
    BUILTIN_TYPES,
    DUNDERS,
    EQUALITIES,
    answers_alike,
    invents,
    is_number,
    is_tolerant,
    last_name,
    root_name,
    uses_too_little,
)
from .python_types import casts_to_any, is_any, is_only_for_checkers
from .shadowing import shadowing

TEST_LIBRARIES = frozenset(
    ("pytest", "_pytest", "pluggy", "hypothesis", "nose", "nose2", "unittest2", "mock", "testtools", "assertpy", "sure")
)
"""Libraries of tests: code of a product neither imports nor replaces them."""
RUNNERS = frozenset(("unittest", "pytest", "_pytest", "pluggy", "nose", "nose2", "unittest2", "doctest"))
_OF_RUNNERS = RUNNERS | {"mock"}
_FOLDERS_OF_TESTS = re.compile(r"(?:.*/)?pytest-(?:of-\w*|\d+|)/?|/?pytest_cache")
"""Folders that exist only where tests run, as code compares them with a path that it got."""
_NAMES_OF_RUNNERS = re.compile(r"(?:unittest|pytest|_pytest|pluggy|nose2?)(?:\.[\w.]+)?")
_CALLERS = frozenset(
    (
        *("_getframe", "_getframemodulename", "currentframe", "getouterframes", "getframeinfo", "extract_stack"),
        *("walk_stack", "_current_frames", "f_back", "tb_frame", "f_globals", "f_code", "get_referrers", "get_objects"),
    )
)
_INSPECT = frozenset(("stack", "trace"))
_TESTED = re.compile(
    r"PYTEST_(?:CURRENT_TEST|VERSION|XDIST\w*)|JEST_WORKER_ID|TOX_ENV\w*|NOX_\w+|COVERAGE_RUN|UNITTEST\w*"
)
_PROC = re.compile(r"/proc/(?:self|\d|%|\{)|^/proc/?$|/opt/(?:check|report)")
_TEST_PATH = re.compile(
    r"(?:^|[/\"'*])tests?(?:/|$)|(?:^|/)test_[\w*?]*\.py|_test\.(?:go|py)|conftest\.py|__tests__|\.(?:test|spec)\.|"
    r"(?:^|/)(?:fixtures|expected|golden|snapshots|testdata)(?:/|$)"
)
_WRITERS = frozenset(
    (
        *("write_text", "write_bytes", "rename", "replace", "remove", "unlink", "rmtree", "copy", "copyfile", "move"),
        *("truncate", "symlink_to", "symlink", "touch"),
    )
)
_SKIPS = frozenset(("SkipTest", "skipTest", "skipIf", "skipUnless", "importorskip", "Skipped"))
_ENDS = frozenset(("_exit", "abort", "execv", "execve", "execvp", "execl", "execlp", "raise_signal"))
_MAIN = re.compile(
    r"_*(?:main|cli|run|command|app|quit|exit|usage|help|version|stop|shutdown|handle\w*|on_\w+)\w*", re.I
)
_OF_PROCESS = frozenset(("setswitchinterval", "sched_setaffinity", "tzset"))
"""Functions by which a race, or a time zone, may not show while tests run."""
_FUNCTIONS_OF_SYS = frozenset(name for name, value in vars(sys).items() if isinstance(value, BuiltinFunctionType)) - {
    *("displayhook", "excepthook", "unraisablehook", "breakpointhook"),
}
_HOOKS = ("AssertionError", "excepthook", "unraisablehook", "displayhook")
_OF_TEST_CASES = re.compile(r"assert[A-Z]\w*|runtest|addFailure|addError")
_OF_LIBRARY = frozenset(
    ("time", "random", "os", "json", "re", "math", "datetime", "io", "shutil", "subprocess", "threading", "asyncio")
)
"""Modules of the standard library by whose functions tests decide, with names that few variables have."""
_REPLACEABLE = frozenset(("sys", "logging", "warnings", "typing", "collections", "enum", "dataclasses", "abc", "types"))
"""Modules with parts that programs are meant to set, or whose names are bases of classes."""
_SETTINGS = frozenset(
    (
        *(
            "tempdir",
            "environ",
            "prec",
            "rounding",
            "debuglevel",
            "default_timeout",
            "allow_reuse_address",
            "formatter",
        ),
        *("_create_default_https_context", "daemon_threads", "protocol_version", "stdout", "stderr"),
    )
)
_MAX_CONDITIONS = 8
_PLACES = frozenset(("co_filename", "co_firstlineno", "__code__", "__file__"))


@cache
def stdlib_names() -> frozenset[str]:
    """Names of the standard library's modules, but those that projects use for their own."""
    return frozenset(sys.stdlib_module_names) - {"test", "tests", "this", "code", "platform", "types", "site", "parser"}


@cache
def functions_of_library() -> frozenset[str]:
    """Functions of ``_OF_LIBRARY`` by their names with their modules."""
    found = [(module, *each) for module in _OF_LIBRARY for each in vars(import_module(module)).items()]
    return frozenset(
        f"{module}.{name}" for module, name, value in found if isinstance(value, BuiltinFunctionType | FunctionType)
    )


def of_python(text: str, before: str = "") -> Iterator[tuple[int, str, str]]:
    """Yields lines with kinds of suspicion; of one that skips also its code, with what it depends on.

    A text that Python cannot parse has none: it cannot be executed either.

    Args:
        text: The file.
        before: The file before the run: what it did not name is new, and takes nothing back.
    """
    try:
        tree = syntax_tree.parse(text)
    except syntax_tree.PARSE_ERRORS:
        return
    visitor = _Visitor(writes=writes_files(tree), known=frozenset(re.findall(r"[^\W\d]\w*", before)))
    visitor.collect(tree)
    try:
        visitor.visit(tree)
    except RecursionError:
        visitor.found.add((1, "runner", ""))
    yield from sorted(visitor.found)


def writes_files(tree: ast.AST) -> bool:
    """Whether the file writes, moves or deletes files."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        is_of_str = last_name(node.func) == "replace" and len(node.args) != 1
        if last_name(node.func) in _WRITERS and not isinstance(node.func, ast.Name) and not is_of_str:
            return True
        modes = [*node.args, *(each.value for each in node.keywords)]
        is_open = last_name(node.func) in ("open", "fdopen", "opener")
        if is_open and any(
            isinstance(each, ast.Constant) and re.fullmatch("[rbt]*[wax+][rbtwax+]*", str(each.value)) for each in modes
        ):
            return True
    return False


class _Visitor(ast.NodeVisitor):
    def __init__(self, *, writes: bool, known: frozenset[str]) -> None:
        self.found = set[tuple[int, str, str]]()
        self._known, self._classes = known, list[ast.ClassDef]()
        self._writes, self._functions, self._guarded, self._tests = writes, list[str](), 0, set[str]()
        self._conditions, self._library = list[int](), set[str]()
        self._imported = dict[str, str]()
        self._modules, self._parameters = set[str](), list[set[str]]()
        """Parameters of the functions around that have names of modules, from the outermost one."""

    def collect(self, tree: ast.Module) -> None:
        """Collects the modules that the file imports anywhere: a function may use one before its import's line."""
        library = stdlib_names() - _REPLACEABLE
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {each.asname or each.name.partition(".")[0]: each.name.partition(".")[0] for each in node.names}
                self._library |= {name for name, module in names.items() if module in library}
                self._tests |= {name for name, module in names.items() if module in _OF_RUNNERS}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                is_library = (node.module or "").partition(".")[0] in library
                self._library |= {each.asname or each.name for each in node.names} if is_library else set()
                self._imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        self._modules = self._library | self._tests | _OF_LIBRARY

    def _note(self, node: ast.AST, kind: str) -> None:
        code = ""
        if kind == "skip":  # of pytest's hooks the condition does not matter: the report has what they skip
            is_reported = any(name.startswith("pytest_") for name in self._functions)
            code = f"{ast.unparse(node)} {[] if is_reported else self._conditions[-_MAX_CONDITIONS:]}"
        self.found.add((getattr(node, "lineno", 1), kind, code))

    def visit_Import(self, node: ast.Import) -> None:
        if any(each.name.partition(".")[0] in _OF_RUNNERS for each in node.names):
            self._note(node, "runner")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and (node.module or "").partition(".")[0] in _OF_RUNNERS:
            self._note(node, "runner")
        if node.module in ("inspect", "sys", "traceback", "os", "signal", "gc"):
            for each in node.names:
                if each.name in _CALLERS or (node.module == "inspect" and each.name in _INSPECT):
                    self._note(node, "caller")
                if each.name in _ENDS:
                    self._note(node, "exit")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node)
        self.generic_visit(node)
        self._classes.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        if node.name.startswith("pytest_") or node.name in ("load_tests", "setUpModule", "tearDownModule"):
            self._note(node, "runner")
        if node.name in DUNDERS and (answers_alike(node) or self._is_tolerant(node.name, node.body)):
            self._note(node, "equal")
        if node.name == "__class__" or (node.name == "__getattr__" and invents(node)):
            self._note(node, "equal")
        self._functions.append(node.name)
        self._parameters.append(shadowing(node, self._modules))
        self.generic_visit(node)
        self._parameters.pop()
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_If(self, node: ast.If) -> None:
        is_main = any(isinstance(each, ast.Constant) and each.value == "__main__" for each in ast.walk(node.test))
        is_typing = any(last_name(each) == "TYPE_CHECKING" for each in ast.walk(node.test))
        if is_main:
            self._guarded += 1
        if is_typing:
            for each in node.body:
                if is_only_for_checkers(each, self._known, has_other=bool(node.orelse)):
                    self._note(each, "silence")
        else:
            self.visit(node.test)
            condition = hash(ast.unparse(node.test))
            for sign, part in ((1, node.body), (-1, node.orelse)):
                self._conditions.append(sign * condition)
                for each in part:
                    self.visit(each)
                self._conditions.pop()
        if is_main:
            self._guarded -= 1

    def _is_tolerant(self, name: str, body: Sequence[ast.AST]) -> bool:
        """Whether an equality of numbers, or of objects that were there before, holds of those that differ by little.

        A new class of vectors or amounts may define its own.
        """
        around = self._classes[-1] if self._classes else None
        is_old = around is None or around.name in self._known or is_number(around)
        return name in EQUALITIES and is_old and is_tolerant(body)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assigned(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assigned(node.target, node.value)
        self.generic_visit(node)

    def _assigned(self, target: ast.expr, value: ast.expr | None) -> None:
        name = last_name(target)
        if is_any(value) and name in self._known:
            self._note(target, "silence")
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._assigned(each, value)
        elif name in DUNDERS and isinstance(value, ast.Lambda | ast.Name | ast.Attribute):
            alike = not isinstance(value, ast.Lambda) or uses_too_little(value.args, [value.body])
            alike = alike or self._is_tolerant(name, [value])
            is_base = isinstance(value, ast.Attribute) and root_name(value) in BUILTIN_TYPES
            if alike and not is_base and not (isinstance(value, ast.Name) and value.id in ("None", name)):
                self._note(target, "equal")
        elif name in _HOOKS or (
            isinstance(target, ast.Attribute)
            and (
                self._is_of({"builtins", "__builtins__"} | self._tests, target)
                or _OF_TEST_CASES.fullmatch(name)
                or (_is_function_of_library(target) and not self._is_parameter(target))
                or (self._is_of(self._library, target) and _is_code(name, value))
                or (root_name(target) == "sys" and isinstance(target.value, ast.Name) and name in _FUNCTIONS_OF_SYS)
            )
        ):
            self._note(target, "runner")
        elif name in _PLACES:
            self._note(target, "place")
        elif isinstance(target, ast.Subscript) and last_name(target.value) in (
            "__builtins__",
            "modules",
            "cache",
            "__dict__",
        ):
            kind = {"modules": "shadow", "cache": "place"}.get(last_name(target.value), "runner")
            if kind != "place" or root_name(target.value) == "linecache":
                self._note(target, kind)

    def _is_library_function(self, node: ast.expr) -> bool:
        name = self._imported.get(node.id, "") if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        return name in functions_of_library() and not self._is_parameter(node)

    def _is_of(self, modules: Collection[str], node: ast.expr) -> bool:
        return root_name(node) in modules and not self._is_parameter(node)

    def _is_parameter(self, node: ast.expr) -> bool:
        return any(root_name(node) in names for names in self._parameters)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root = root_name(node)
        if node.attr in _CALLERS or (root == "inspect" and node.attr in _INSPECT) or root in ("linecache",):
            self._note(node, "caller")
        if node.attr in _SKIPS or (root in ("pytest", "unittest") and node.attr in ("skip", "xfail", "exit", "fail")):
            self._note(node, "skip")
        if node.attr in {"settrace", "setprofile", "addaudithook", "pythonapi"} | _OF_PROCESS:
            self._note(node, "runner")
        if root == "signal" and node.attr == "raise_signal":
            self._note(node, "exit")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _SKIPS:
            self._note(node, "skip")

    def visit_Raise(self, node: ast.Raise) -> None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if raised is not None and last_name(raised) == "SystemExit" and self._ends_well(node.exc):
            self._note(node, "exit")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name, root = last_name(node.func), root_name(node.func)
        if casts_to_any(node):
            self._note(node, "silence")
        if name in _ENDS and root in ("os", "signal", "posix", name):
            self._note(node, "exit")
        if any(
            isinstance(each, ast.Attribute) and each.attr in _ENDS and root_name(each) == "os" for each in node.args
        ):
            self._note(node, "exit")
        if name == "exit" and root in ("sys", "exit") and self._ends_well(node):
            self._note(node, "exit")
        if (
            name in ("kill", "killpg")
            and root == "os"
            and any(last_name(getattr(each, "func", each)) in ("getpid", "getppid") for each in node.args)
        ):
            self._note(node, "exit")
        if name in ("setattr", "delattr", "object") and len(node.args) > 1:
            self._set(node)
        if name == "replace" and any(each.arg in _PLACES for each in node.keywords):
            self._note(node, "place")
        if name in ("import_module", "__import__", "find_spec") and any(map(_is_runner, node.args)):
            self._note(node, "runner")
        if (
            name == "get"
            and last_name(getattr(node.func, "value", node)) == "modules"
            and any(map(_is_runner, node.args))
        ):
            self._note(node, "tested")
        self.generic_visit(node)

    def _set(self, node: ast.Call) -> None:
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        value = node.args[2] if len(node.args) > 2 else None
        if self._is_of(self._library, node.args[0]) and isinstance(name, str) and _is_code(name, value):
            self._note(node, "runner")
        if (
            self._is_of({"builtins", "unittest", "pytest"} | self._tests, node.args[0])
            or last_name(node.args[0]) == "TestCase"
        ):
            self._note(node, "runner")
        elif name in DUNDERS:
            self._note(node, "equal")
        elif name in _PLACES:
            self._note(node, "place")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if last_name(node.value) == "modules" and _is_runner(node.slice):
            self._note(node, "runner")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        is_identity = any(isinstance(each, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) for each in node.ops)
        if is_identity and any(map(self._is_library_function, (node.left, *node.comparators))):
            self._note(node, "tested")  # whether it got a clock of its own, as tests give it
        is_membership = any(isinstance(each, ast.In | ast.NotIn) for each in node.ops)
        sides = [node.left, *node.comparators]
        if (
            is_membership
            and any(map(_is_runner, sides))
            and any(last_name(each) in ("modules", "argv") for each in map(_bare, sides))
        ):
            self._note(node, "tested")
        if any("argv" in (last_name(part) for part in ast.walk(side)) for side in sides) and any(
            isinstance(part, ast.Constant) and isinstance(part.value, str) and "test" in part.value
            for side in sides
            for part in ast.walk(side)
        ):
            self._note(node, "tested")
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key in node.keys:
            if isinstance(key, ast.Constant) and key.value in DUNDERS:
                self._note(key, "equal")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str):
            return
        if _TESTED.fullmatch(node.value) or _FOLDERS_OF_TESTS.fullmatch(node.value):
            self._note(node, "tested")
        if _PROC.search(node.value):
            self._note(node, "caller")
        if self._writes and len(node.value) < 200 and _TEST_PATH.search(node.value):
            self._note(node, "tests")

    def _ends_well(self, node: ast.AST | None) -> bool:
        """Whether a call ends the program with success, and not in the function where programs end."""
        if self._guarded or any(map(_MAIN.fullmatch, self._functions)):
            return False
        given = node.args if isinstance(node, ast.Call) else []
        return not given or (isinstance(given[0], ast.Constant) and given[0].value in (0, None, False))


def _is_code(name: str, value: ast.expr | None) -> bool:
    """Whether what gets the place of a part of the standard library is a function or a class."""
    return isinstance(value, ast.Name | ast.Attribute | ast.Lambda | ast.Call) and name not in _SETTINGS


def _is_function_of_library(target: ast.Attribute) -> bool:
    """Whether a function of the standard library is replaced, such as the clock by which a test measures."""
    module = target.value
    return (
        isinstance(module, ast.Name)
        and module.id in _OF_LIBRARY
        and target.attr.islower()
        and not target.attr.startswith("_")
    )


def _bare(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def _is_runner(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_NAMES_OF_RUNNERS.fullmatch(node.value))
    )
