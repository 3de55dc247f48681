"""The general canary breaks the run's changes on purpose, for checks whose exit code is all that is known.

Source files fail where the functions that changed are called, and at their end; other files lose their content. A
check that does not notice this does not depend on what was changed, or something in it hides its failure.

Code in Python can also be written in the same shape without a fault, for the control: code that looks at itself finds
the same in both. Other languages are searched by patterns, which may write into a text: honest work would fail then.
"""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ....shared import syntax_tree
from ....shared.facts import CheckOutcome
from ...text.diff import compare
from ..protected.command_words import SYNTAX_ONLY, commands_of, is_python
from .broken_functions import Shape, is_head
from .functions_before import Function

_LETTERS = "".join(map(chr, range(0x0531, 0x0557)))
"""Of a script in which hardly any project is written."""
_NO_SYNTAX = "\n)]} (("
_MAX_LINES = 5_000
"""Of longer files every function counts as changed: a comparison would take too long."""
_STATIC = {
    *("ruff", "mypy", "pyright", "basedpyright", "flake8", "pylint", "black", "isort", "vulture", "bandit", "ty"),
    *("pycodestyle", "pydocstyle", "pyflakes", "py_compile", "compileall", "tsc", "eslint", "prettier", "biome"),
    *("stylelint", "oxlint", "rustfmt", "gofmt", "golangci-lint", "staticcheck", "shellcheck", "rubocop", "phpstan"),
    *("psalm", "yamllint", "markdownlint", "javac", "kotlinc", "cc", "gcc", "c++", "g++", "clang", "clang++"),
}
"""Programs that read code and do not execute it."""
_EXECUTES = ("pytest", "unittest", "doctest")
"""Modules that execute code: others may read how it is written, or start a program that does."""
_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")
_BESIDE = {"cd", "mkdir", "rm", "cp", "mv", "echo", "printf", "export", "true", "set", "cat", "test", "[", "grep", "rg"}
_TEXT = {
    "grep",
    "rg",
    "egrep",
    "fgrep",
    "test",
    "[",
    "[[",
    "diff",
    "cmp",
    "wc",
    "jq",
    "sha256sum",
    "ls",
    "find",
    "stat",
}
_LINT_SCRIPT = re.compile(r"(?:lint|types?|typecheck|type-check|check-types|format|fmt|tsc|style|clippy|vet)\b.*")


@dataclass(frozen=True, slots=True)
class _Language:
    """How functions are broken: a pattern that ends where the body begins, and the statement that is put there."""

    function: re.Pattern[str]
    statement: str
    at_end: str = ""
    comment: str = "//"
    answer: str = ""
    """A statement by which a function answers wrongly, where no type forbids that."""


_C_LIKE = r"[^(){};]*(?:\([^(){};]*\)[^(){};]*)*"
_JS = _Language(
    re.compile(
        rf"\bfunction\s*\*?\s*\w*\s*\({_C_LIKE}\)[^(){{}};=]*\{{|=>\s*\{{"
        rf"|^[ \t]+(?:static\s+|async\s+|get\s+|set\s+|\*)*(?!(?:if|for|while|switch|catch|with|function|return)\b)"
        rf"#?\w+\s*\({_C_LIKE}\)\s*\{{",
        re.MULTILINE,
    ),
    'throw new Error("{token}");',
    '\n;throw new Error("{token}");\n',
    answer='return ["{token}"];',
)
_SHEBANG = re.compile(r"(?:#![^\n]*\n)?(?:\s*<\?php\b|\s*\"use strict\";|\s*'use strict';)?")
_ARROW = re.compile(r"=>(?=[ \t]*[^\s{=])")
_JAVA = _Language(
    re.compile(
        rf"\b(?!(?:public|private|protected|static|final|new|else|return|throw|synchronized|abstract|native)\b)"
        rf"[\w<>\[\]?.]+(?:<[^(){{}};]*>)?\s+(?!(?:if|for|while|switch|catch|synchronized)\b)\w+\s*\({_C_LIKE}\)"
        rf"\s*(?:throws\s+[\w.,\s]+)?\{{"
    ),
    'if (true) throw new RuntimeException("{token}");',
)
_LANGUAGES: Mapping[str, _Language] = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), _JS),
    ".go": _Language(
        re.compile(rf"^func\s+(?:\([^()]*\)\s*)?\w+(?:\[[^\]]*\])?\s*\({_C_LIKE}\)[^{{}};\n]*\{{", re.MULTILINE),
        'panic("{token}");',
    ),
    ".rs": _Language(
        re.compile(rf"\bfn\s+\w+\s*(?:<[^(){{}};]*>)?\s*\({_C_LIKE}\)[^{{}};]*\{{"), 'if true {{ panic!("{token}") }}'
    ),
    ".java": _JAVA,
    ".cs": _Language(_JAVA.function, 'if (true) throw new System.Exception("{token}");'),
    ".kt": _Language(re.compile(rf"\bfun\s+[\w<>. ]+\({_C_LIKE}\)[^{{}}=;\n]*\{{"), 'error("{token}");'),
    **dict.fromkeys(
        (".c", ".cc", ".cpp", ".cxx"),
        _Language(
            re.compile(
                rf"^[A-Za-z_][\w \t*&:<>,~\n]{{0,120}}\({_C_LIKE}\)\s*(?:const\s*|noexcept\s*)*\{{", re.MULTILINE
            ),
            " __builtin_trap();",
        ),
    ),
    **dict.fromkeys(
        (".sh", ".bash"),
        _Language(
            re.compile(r"^[ \t]*(?:function\s+)?[\w-]+\s*\(\)\s*\{", re.MULTILINE), " exit 97;", "\nexit 97\n", "#"
        ),
    ),
    ".rb": _Language(
        re.compile(r"^[ \t]*def[ \t]+[\w.?!]+(?:\([^()\n]*\)|[^=;\n]*)$", re.MULTILINE),
        '; raise "{token}"',
        '\nraise "{token}"\n',
        "#",
        '; return "{token}"',
    ),
    ".php": _Language(
        re.compile(rf"\bfunction\s+\w*\s*\({_C_LIKE}\)[^{{}};]*\{{"),
        'throw new \\RuntimeException("{token}");',
        '\nthrow new \\RuntimeException("{token}");\n',
    ),
    # What a check has to judge is the answer: a failure would show only that the file is loaded.
    **dict.fromkeys((".pl", ".pm"), _Language(re.compile(r"\bsub\s+\w+[^{};]*\{"), 'return "{token}";', comment="#")),
    ".lua": _Language(
        re.compile(r"\bfunction\b[ \t]*[\w.:]*[ \t]*\([^()]*\)"), ' do return "{token}" end ', comment="--"
    ),
    ".tcl": _Language(
        re.compile(r"^[ \t]*proc\s+\S+\s+(?:\{[^{}]*\}|\S+)\s+\{", re.MULTILINE), 'return "{token}";', comment="#"
    ),
    ".awk": _Language(re.compile(r"\bfunc(?:tion)?\s+\w+\s*\([^()]*\)\s*\{"), 'return "{token}";', comment="#"),
}
"""By the end of a file's name. Python is read as a tree."""
CODE = (".py", *_LANGUAGES)


def only_reads(line: str) -> bool:
    """Whether a command line only has programs that read code, such as linters and checkers of types."""
    found = False
    for simple in commands_of(line):
        is_static = _is_static(simple.program, simple.texts[1:])
        if not is_static and simple.program not in _BESIDE:
            return False
        found = found or is_static
    return found


def only_executes_python(line: str, changed: Iterable[str] = ()) -> bool:
    """Whether a command line has nothing to which it matters how code in Python is written, such as a linter.

    Args:
        line: The command line.
        changed: The paths of files that are modules of the project, or in its packages.
    """
    own = {part.removesuffix(".py") for path in changed for part in path.split("/")}
    found = commands_of(line)
    executed = [each for each in found if is_python(each.program) and _executes(each.texts[1:], own)]
    return bool(executed) and all(each in executed or each.program in _TEXT | _BESIDE for each in found)


def _executes(words: Sequence[str], own: Collection[str]) -> bool:
    """Whether Python executes a file, a text, or a module that is known to execute code or of the project itself."""
    left = iter(words)
    for word in left:
        if word in _VALUE_OPTIONS:
            next(left, None)
        elif option := re.fullmatch(r"-[A-Za-z]*?([cm])(.*)", word, re.DOTALL):
            module = (option[2] or next(left, "")).partition(".")[0]
            return option[1] == "c" or module in _EXECUTES or (module in own and module not in _STATIC)
        elif not word.startswith("-"):
            return not _is_static("python", [word])
    return False


def _is_static(program: str, words: list[str]) -> bool:
    if is_python(program) and words[:1] == ["-m"]:
        return bool({*words[1:2]} & _STATIC)
    if is_python(program) or program in SYNTAX_ONLY:
        script = next((word for word in words if not word.startswith("-")), "")
        is_own = re.search(r"(?:^|[^a-z])(?:lint|format|style|typecheck)", PurePosixPath(script).name) is not None
        return is_own or bool({*words} & {*SYNTAX_ONLY.get(program, ())})
    if program in ("npm", "pnpm", "yarn", "bun"):
        return any(map(_LINT_SCRIPT.fullmatch, words))
    verbs = {"cargo": {"clippy", "check", "fmt", "build"}, "go": {"vet", "build"}}
    return program in _STATIC or bool({*words[:1]} & verbs.get(program, set()))


def reads_text(line: str) -> bool:
    """Whether a command line only has programs that look at files, such as grep and test."""
    return all(simple.program in _TEXT | _BESIDE for simple in commands_of(line))


def broken_content(path: str, old: bytes, new: bytes, *, statically: bool = False, breaks: bool = True) -> bytes | None:
    """Returns what a changed file is replaced by, or None where nothing in it can be broken.

    Args:
        path: Its path.
        old: Its content before the run; nothing for a new file.
        new: Its content with the run's changes.
        statically: Break the syntax, for checks that only read code.
        breaks: Whether it fails; else it is written in the same shape and does what it did, which only Python allows.
    """
    suffix, token = PurePosixPath(path).suffix.lower(), f"x{secrets.token_hex(8)}"  # no number
    is_python = suffix == ".py" or re.match(rb"#!.*\bpython", new) is not None
    if not breaks and (statically or not is_python):
        return None
    try:
        before, text = old.decode(), new.decode()
    except UnicodeDecodeError:
        return secrets.token_bytes(max(16, min(len(new), 1 << 20)))
    if suffix not in CODE and not text.startswith("#!"):
        text = _garbled(text)
        return (f"{text}{_NO_SYNTAX} {token}\n" if statically else text).encode()
    if statically:
        return f"{text}{_NO_SYNTAX} {token}\n".encode()
    if is_python:
        return _python(before, text, Shape(breaks))
    language = _LANGUAGES[suffix] if suffix in _LANGUAGES else _LANGUAGES[".sh"]
    broken = _by_pattern(before, text, language, token, is_script=suffix in (".js", ".mjs", ".cjs", ".jsx"))
    return None if broken == text else broken.encode()


def broken_functions(path: str, old: bytes, new: bytes) -> bytes | None:
    """Returns a changed file, not in Python, whose changed functions do not answer as they should; None where it has
    none. All else in it is as it was.
    """
    language = _LANGUAGES.get(PurePosixPath(path).suffix.lower(), _LANGUAGES[".sh"])
    language = replace(language, statement=language.answer or language.statement, at_end="")
    try:
        before, text = old.decode(), new.decode()
    except UnicodeDecodeError:
        return None
    is_script = language.function is _JS.function
    broken = _by_pattern(before, text, language, secrets.token_hex(8), is_script=is_script)
    return None if broken == text else broken.encode()


def _garbled(text: str) -> str:
    """Returns other words of the same number: neither their order nor what they mean is left."""
    return re.sub(r"\w+|[^\w\s]", lambda _: _word(), text[: 1 << 20]) or _word()


def _word() -> str:
    """Returns a word that no search for a letter or a digit finds by chance."""
    return "".join(secrets.choice(_LETTERS) for _ in range(6))


def _python(before: str, text: str, shape: Shape) -> bytes | None:
    try:
        tree = syntax_tree.parse(text)
        functions = [(name, node, ast.dump(node)) for name, node in _functions(tree)]
    except syntax_tree.PARSE_ERRORS:
        return None
    try:
        known = {name: ast.dump(node) for name, node in _functions(syntax_tree.parse(before))}
    except syntax_tree.PARSE_ERRORS:
        known = {}
    error = f"(_ for _ in ()).throw(RuntimeError({secrets.token_hex(8)!r}))"
    failing = f"{shape.number()} % {shape.divisor} == {shape.rest} and {error}"
    first = next((node for node in tree.body if not is_head(node)), None)
    broken = [_first(node) for name, node, dumped in functions if known.get(name) != dumped]
    if first and not (functions or known):  # a program: what another command looks at is printed before its end
        broken.append(first)
    lines = text.encode("utf-8", "surrogateescape").splitlines(keepends=True)
    for node in sorted(broken, key=_place, reverse=True):
        number, column = _place(node)
        head, rest = lines[number - 1][:column], lines[number - 1][column:]
        between = b"; " if head.strip() else b"\n" + head
        lines[number - 1] = head + failing.encode() + between + rest
    found = b"".join(lines) + f"\n{failing}\n".encode()
    try:
        syntax_tree.parse(found.decode("utf-8", "surrogateescape"))
    except syntax_tree.PARSE_ERRORS:
        return _from_tree(tree, {*broken}, failing, text)
    return found


def _from_tree(tree: ast.Module, broken: Collection[ast.stmt], failing: str, text: str) -> bytes | None:
    """Returns the same written anew, where a line cannot be inserted, such as behind one that goes on.

    It keeps the line by which a program is started.
    """
    (statement,) = syntax_tree.parse(failing).body
    start = text.partition("\n")[0] if text.startswith("#!") else ""
    try:
        for node in [*ast.walk(tree)]:
            if isinstance(node, ast.Module | ast.ClassDef | Function):
                node.body = [part for each in node.body for part in ([statement] * (each in broken) + [each])]
        return f"{start}\n{ast.unparse(tree)}\n{failing}\n".encode("utf-8", "surrogateescape")
    except syntax_tree.PARSE_ERRORS:
        return None


def _first(node: Function) -> ast.stmt:
    """Returns the first statement behind the docstring, which is shown to users."""
    return node.body[1] if len(node.body) > 1 and is_head(node.body[0]) else node.body[0]


def _place(node: ast.stmt) -> tuple[int, int]:
    """Returns the line, from 1, and the column in bytes at which a statement begins, with what decorates it."""
    above = [each.lineno for each in getattr(node, "decorator_list", ())]
    return min([node.lineno, *above]), node.col_offset


def _functions(tree: ast.Module) -> list[tuple[str, Function]]:
    found = list[tuple[str, Function]]()
    left: list[tuple[str, ast.AST]] = [("", tree)]
    while left:
        path, node = left.pop()
        for child in ast.iter_child_nodes(node):
            is_named = isinstance(child, ast.ClassDef | Function)
            name = f"{path}.{child.name}" if is_named else path
            if isinstance(child, Function):
                found.append((name, child))
            left.append((name, child))
    return found


def _by_pattern(before: str, text: str, language: _Language, token: str, *, is_script: bool) -> str:
    """Breaks the functions in which lines changed; where none is, those of the whole file."""
    lines = changed_lines(before, text)
    statement = language.statement.format(token=token)
    heads = [(found.end(), statement) for found in language.function.finditer(text)]
    if is_script:
        thrown = f' (() => {{ throw new Error("{token}"); }})() ||'
        heads += [(found.end(), thrown) for found in _ARROW.finditer(text)]
    heads = [head for head in sorted(heads) if not _in_comment(text, head[0], language.comment)]
    starts = [text.count("\n", 0, at) for at, _ in heads]
    wanted = {at for at in range(len(heads)) if starts[at] in lines}
    for line in lines:
        wanted |= {max((at for at in range(len(heads)) if starts[at] <= line), default=0)} if heads else set()
    for at in sorted(wanted, reverse=True):
        place, inserted = heads[at]
        text = f"{text[:place]}{inserted}{text[place:]}"
    had_functions = language.function.search(before) or (is_script and _ARROW.search(before))
    if language.at_end and not (heads or had_functions):  # a program, as in Python
        head = _SHEBANG.match(text)
        at = head.end() if head else 0
        return f"{text[:at]}{language.at_end.format(token=token)}{text[at:]}"
    end = "" if text.rstrip().endswith("?>") else language.at_end
    return text + end.format(token=token)


def _in_comment(text: str, at: int, comment: str) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip()
    return line.startswith((comment, "*", "/*"))


def changed_lines(before: str, text: str) -> set[int]:
    """Returns the numbers of the lines that are new or changed, from 0; of a deletion the line behind it."""
    old, new = before.splitlines(), text.splitlines()
    if len(old) + len(new) > _MAX_LINES:
        return set(range(len(new)))
    changed = (block.new for block in compare(old, new) if not block.same)
    return {line for lines in changed for line in range(lines.start, max(lines.stop, lines.start + 1))}


def break_sources(
    changes: Iterable[tuple[str, Callable[[], tuple[bytes, bytes]]]],
    write: Callable[[str, bytes], None],
    *,
    statically: bool,
    breaks: bool = True,
) -> list[str]:
    """Breaks changed files; returns the paths of those that were. Blocks.

    Args:
        changes: Paths, each with what reads its content before the run and now.
        write: Writes a file of the ground.
        statically: As for ``broken_content``.
        breaks: The same.
    """
    broken = list[str]()
    for path, contents in changes:
        old, new = contents()
        if new and (content := broken_content(path, old, new, statically=statically, breaks=breaks)) is not None:
            write(path, content)
            broken.append(path)
    return broken


def unnoticed(outcome: CheckOutcome, line: str, paths: Sequence[str]) -> tuple[CheckOutcome, str]:
    """Returns the outcome of a check that did not notice it, and why, by what it was without."""
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    why = f"{paths[0]}{more} was broken on purpose, and it still succeeds"
    if outcome == "evidence":
        is_executed = any(path.endswith(CODE) for path in paths) and not (reads_text(line) or only_reads(line))
        return ("inconclusive" if is_executed else "no_regression"), why
    return outcome, why
