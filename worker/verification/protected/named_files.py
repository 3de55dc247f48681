"""The files that the command lines of checks name as programs of their own: scripts, recipes, tests, settings.

Such a file decides whether a check succeeds, so it is protected like a test. A program is the work itself where another
command judges its output in some line, or where the task names it; unless its name is that of a test.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .command_words import SHELLS, SYNTAX_ONLY, Simple, commands_of, is_python, path_in

_MAX_DEPTH = 3
"""How far what is named leads on: from the line to a script of package.json, to a recipe, to a script."""
_MAX_TEXT = 200_000
_OF_TEST = re.compile(
    r"(?i)(?:^|[^a-z])(?:run_?)?(?:tests?|specs?|checks?|checker|verif(?:y|ier)|validat(?:e|or)|ci|lint|qa|grad(?:e|er)"
    r"|judge|eval|assert(?:s|ions?)?|smoke|e2e|bench)(?:[^a-z]|$)|^manage\.py$|^run_?tests?"
)
_INTERPRETERS = {
    **dict.fromkeys(SHELLS, ("-o", "+o", "-O", "--rcfile", "--init-file")),
    "python": ("-W", "-X", "--check-hash-based-pycs"),
    "node": ("-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file"),
    **dict.fromkeys(("nodejs", "tsx", "ts-node"), ("-r", "--require", "-P", "--project", "--import")),
    "bun": ("-r", "--preload"),
    "deno": ("-c", "--config", "--import-map"),
    "perl": ("-I", "-M"),
    "ruby": ("-I", "-r", "-C"),
    "php": ("-d", "-c"),
    **dict.fromkeys(("Rscript", "lua", "luajit", "julia", "elixir", "groovy", "swift", "tclsh", "expect"), ()),
    "java": ("-cp", "-classpath", "--class-path", "-p", "--module-path", "-m", "--module"),
    **dict.fromkeys(("source", "."), ()),
}
"""Interpreters, with those of their options that have a value."""
_LOADED = {"-r", "--require", "--import", "--loader", "--experimental-loader", "--preload", "--rcfile", "--init-file"}
_INLINE = {"-c", "-e", "-p", "-E", "--eval", "--print", "-pe", "-ne"}
TEST_RUNNERS = {
    *("pytest", "py.test", "unittest", "nose2", "green", "ward", "trial", "behave", "robot", "stestr", "prove", "bats"),
    *("mocha", "jest", "vitest", "ava", "tap", "tape", "jasmine", "rspec", "phpunit", "busted", "shellspec"),
    *("cucumber", "karma", "playwright", "cypress", "minitest", "ctest", "testem"),
}
"""Runners of tests, by the names of their programs."""
_SETTINGS = re.compile(
    r"--?[\w-]*(?:config|conf|rcfile|settings|baseline|ignore-path|ignore-file|suppress|setup|require|project"
    r"|schema|policy|rulesdir)[\w-]*|-c|-p|-r"
)
_SETTINGS_FILE = re.compile(
    r"[\w./@+-]+\.(?:toml|ini|cfg|conf|json5?|jsonc|ya?ml|xml|neon|rc|js|cjs|mjs|ts|py|rb)|[\w./-]*rc"
)
_TARGET = re.compile(r"([^\s:#=][^:#=\n]*+)::?(?!=)([^=\n]*)")
_INCLUDE = re.compile(r"^-?s?include\s+(.+)$|^import\??\s+['\"](.+)['\"]", re.MULTILINE)
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_JUSTFILES = ("justfile", "Justfile", ".justfile")
_PACKAGE_MANAGERS = {"npm": "package.json", "pnpm": "package.json", "yarn": "package.json", "bun": "package.json"}
_NPM_OWN = {"test": "test", "t": "test", "tst": "test", "start": "start", "stop": "stop", "restart": "restart"}
_PYTHON_TASKS = ("poe", "taskipy", "pdm", "hatch")

Read = Callable[[str], bytes | None]
"""Returns the content of a file of the base, or None where there is none."""


@dataclass(slots=True)
class Named:
    """What the command lines name: paths, patterns of names, and scripts of package.json by its path."""

    paths: set[str] = field(default_factory=set[str])
    patterns: set[str] = field(default_factory=set[str])
    scripts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    judged: set[str] = field(default_factory=set[str])
    """Programs whose output another command judges: they are work, wherever else they are named."""


def named_by(lines: Sequence[str], task: str, read: Read, programs: Mapping[str, Sequence[str]] = {}) -> Named:
    """Returns what the command lines of checks name. Blocks.

    Args:
        lines: The command lines.
        task: The words of the task: a program that they name is work, not a check.
        read: Reads a file of the base.
        programs: Patterns of the files that a program loads from the current folder.
    """
    finder = _Finder(task, read, programs)
    for line in lines:
        finder.line(line, "", 0)
    finder.named.paths -= finder.named.judged
    return finder.named


@dataclass(slots=True)
class _Finder:
    task: str
    read: Read
    programs: Mapping[str, Sequence[str]]
    named: Named = field(default_factory=Named)
    _known: set[tuple[str, str | None]] = field(default_factory=set[tuple[str, "str | None"]])

    def line(self, line: str, folder: str | None, depth: int) -> None:
        """Notes what a command line names that is executed in this folder."""
        if depth > _MAX_DEPTH or (line, folder) in self._known:
            return
        self._known.add((line, folder))
        for simple in commands_of(line):
            within = (
                None if folder is None or simple.folder is None else posixpath.normpath(f"{folder}/{simple.folder}")
            )
            self._command(simple, within.lstrip("/") if within else within, depth)

    def _command(self, simple: Simple, folder: str | None, depth: int) -> None:
        program, words = simple.program, simple.texts
        for path in self.programs.get(program, ()):
            self.named.patterns.add(path_in(folder, path) or path)
        self._settings(words[1:], folder)
        if is_python(program) or program in _INTERPRETERS:
            self._interpreter("python" if is_python(program) else program, words[1:], simple, folder, depth)
        elif program in ("make", "gmake", "just"):
            self._targets(words, folder, depth)
        elif program in _PACKAGE_MANAGERS:
            self._script(words[1:], folder, depth)
        elif program in TEST_RUNNERS:
            self._tests(program, words[1:], folder)
        elif program in _PYTHON_TASKS or program == "task":
            self._python_task(words[1:], folder, depth)
        if "/" in words[0] and program not in TEST_RUNNERS:
            self._executed(path_in(folder, words[0]), simple, folder, depth)

    def _executed(self, path: str | None, simple: Simple, folder: str | None, depth: int) -> None:
        """Notes a program that a command executes, and what a shell script of the base names itself."""
        if path is None or path == "." or "node_modules/" in path or path.startswith((".venv/", "venv/")):
            return
        content, name = self.read(path), posixpath.basename(path)
        is_asked_for = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self.task) is not None
        if _OF_TEST.search(name):
            is_work = is_asked_for and content is None
        else:
            is_work = is_asked_for or simple.judged
            self.named.judged |= {path} if simple.judged else set()
        if is_work:
            return
        self.named.paths.add(path)
        if content and (path.endswith((".sh", ".bash")) or re.match(rb"#!.*\b(?:ba|da|z|k)?sh\b", content)):
            self.line(content[:_MAX_TEXT].decode("utf-8", "replace"), folder, depth + 1)

    def _interpreter(self, program: str, words: list[str], simple: Simple, folder: str | None, depth: int) -> None:
        """Notes the file that an interpreter executes: the first word behind its options."""
        with_value, at = _INTERPRETERS[program], 0
        while at < len(words) and words[at].startswith(("-", "+")):
            if self._instead(program, words[at], words[at + 1 :], folder, depth):
                return
            if words[at] in _LOADED and at + 1 < len(words):
                self._note(words[at + 1], folder)
            at += 2 if words[at] in with_value else 1
        if program in ("bun", "deno") and words[at : at + 1] == ["test"]:
            self._tests(program, words[at + 1 :], folder)
            return
        at += program in ("bun", "deno") and words[at : at + 1] == ["run"]
        if at < len(words):
            self._executed(path_in(folder, words[at]), simple, folder, depth)

    def _instead(self, program: str, option: str, rest: list[str], folder: str | None, depth: int) -> bool:
        """Whether an option is in the place of a file; notes what it names."""
        if program in SHELLS and re.fullmatch(r"-[a-z]*c", option):
            for line in rest[:1]:
                self.line(line, folder, depth + 1)
        elif program == "python" and re.fullmatch(r"-[A-Za-z]*m", option):
            if rest and rest[0] in TEST_RUNNERS:
                self._tests(rest[0], rest[1:], folder)
        elif option == "--test":
            self._tests("node", rest, folder)
        elif option not in _INLINE and option not in SYNTAX_ONLY.get(program, ()):
            return False
        return True

    def _tests(self, runner: str, words: list[str], folder: str | None) -> None:
        """Notes the files among the arguments of a runner of tests; folders only by a name for tests."""
        if any("doctest" in word for word in words):  # then tests stand beside the code
            return
        for word, before in zip(words, ["", *words], strict=False):
            if runner == "unittest" and before in ("-p", "--pattern"):
                self.named.patterns.add(word)
            elif runner == "unittest" and re.fullmatch(r"[\w.]+", word) and not word.endswith(".py"):
                self._dotted(word.split("."), folder)
            elif not word.startswith("-"):
                path = path_in(folder, word.partition("::")[0])
                if path and path != "." and (self.read(path) is not None or _OF_TEST.search(posixpath.basename(path))):
                    self.named.paths.add(path)

    def _dotted(self, names: list[str], folder: str | None) -> None:
        for end in range(len(names), 0, -1):
            path = path_in(folder, f"{'/'.join(names[:end])}.py")
            if path and self.read(path) is not None:
                self.named.paths.add(path)
                return

    def _settings(self, words: list[str], folder: str | None) -> None:
        """Notes files of settings that options name, and files of options (`@FILE`)."""
        for at, word in enumerate(words):
            if word.startswith("@") and (path := path_in(folder, word[1:])) and self.read(path) is not None:
                self.named.paths.add(path)
            option, _, value = word.partition("=")
            if _SETTINGS.fullmatch(option):
                value = value or next(iter(words[at + 1 : at + 2]), "")
                if _SETTINGS_FILE.fullmatch(value):
                    self._note(value, folder)

    def _note(self, word: str, folder: str | None) -> None:
        if path := path_in(folder, word):
            self.named.paths.add(path)

    def _targets(self, words: list[str], folder: str | None, depth: int) -> None:
        """Notes the files of make or just, what they include, and what the recipes of the goals name."""
        program, files, goals, at = words[0], list[str](), list[str](), 1
        while at < len(words):
            word, value = words[at], next(iter(words[at + 1 : at + 2]), "")
            if word in ("-C", "--directory", "-d", "--working-directory"):
                folder, at = path_in(folder, value), at + 1
            elif word in ("-f", "--file", "--makefile", "--justfile"):
                files, at = [*files, value], at + 1
            elif word in ("-j", "-l", "-o", "-W") and value.isdigit():
                at += 1
            elif not word.startswith("-") and "=" not in word:
                goals.append(word)
            at += 1
        names = files or (_JUSTFILES if program.endswith("just") else _MAKEFILES)
        text = "\n".join(self._with_includes(name, folder, 0) for name in names)
        for commands in commands_for(text, goals):
            self.line(commands, folder, depth + 1)

    def _with_includes(self, name: str, folder: str | None, depth: int) -> str:
        path = path_in(folder, name)
        content = self.read(path) if path else None
        if path is None or depth > _MAX_DEPTH:
            return ""
        if content is None:
            if depth:
                self.named.paths.add(path)  # one that an include may find
            return ""
        self.named.paths.add(path)
        text = content[:_MAX_TEXT].decode("utf-8", "replace")
        included = [each for found in _INCLUDE.findall(text) for each in (found[0].split() or [found[1]])]
        return "\n".join([text, *(self._with_includes(each, folder, depth + 1) for each in included[:100])])

    def _script(self, words: list[str], folder: str | None, depth: int) -> None:
        """Notes the script of package.json that npm, pnpm, yarn or bun runs, and what it names."""
        operands = list[str]()
        for at, word in enumerate(words):
            if word in ("--prefix", "-C", "--cwd", "--dir"):
                folder = path_in(folder, next(iter(words[at + 1 : at + 2]), ""))
            elif not word.startswith("-") and (at == 0 or words[at - 1] not in ("--prefix", "-C", "--cwd", "--dir")):
                operands.append(word)
        if not operands or folder is None:
            return
        name = operands[1] if operands[0] in ("run", "run-script", "rum") and len(operands) > 1 else operands[0]
        name = _NPM_OWN.get(name, name)
        path = path_in(folder, "package.json") or "package.json"
        scripts = package_scripts(self.read(path))
        for each in (f"pre{name}", name, f"post{name}"):
            self.named.scripts.setdefault(path, set()).add(each)
            if isinstance(text := scripts.get(each), str):
                self.line(text, folder, depth + 1)

    def _python_task(self, words: list[str], folder: str | None, depth: int) -> None:
        """Notes what a task of pyproject.toml names: of Poe, taskipy, PDM or hatch."""
        wanted = {word.rpartition(":")[2] for word in words if not word.startswith("-")}
        path = path_in(folder, "pyproject.toml")
        try:
            tools = tomllib.loads((self.read(path) or b"").decode() if path else "").get("tool", {})
        except ValueError:
            return
        for tool in _PYTHON_TASKS:
            for name, value in _tasks(tools.get(tool, {})):
                if name in wanted:
                    self.line(value, folder, depth + 1)


def _tasks(settings: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yields each text below a table, with the last name before it that is none of a task's own settings."""
    if isinstance(settings, str):
        yield name, settings
    elif isinstance(settings, list):
        for each in settings:
            yield from _tasks(each, name, depth + 1)
    elif isinstance(settings, dict) and depth < 10:
        for key, value in settings.items():
            yield from _tasks(
                value, name if key in ("cmd", "shell", "script", "composite", "sequence") else key, depth + 1
            )


def package_scripts(content: bytes | None) -> Mapping[str, Any]:
    """Returns the scripts of a package.json; none of one that cannot be read."""
    try:
        package = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    return scripts if isinstance(scripts, dict) else {}


def with_targets(line: str, read: Read) -> str:
    """Returns a command line in which the commands of make's goals are in the place of make."""
    parts = list[str]()
    for simple in commands_of(line):
        path = next((each for name in _MAKEFILES if (each := path_in(simple.folder, name)) and read(each)), None)
        text = (read(path) or b"")[:_MAX_TEXT].decode("utf-8", "replace") if path else ""
        goals = [word for word in simple.texts[1:] if not word.startswith("-") and "=" not in word]
        commands = commands_for(text, goals) if simple.program in ("make", "gmake") else []
        parts += commands or [shlex.join(simple.texts)]
    return re.sub(r"\$[({](CC|CXX)[)}]", lambda found: {"CC": "cc", "CXX": "c++"}[found[1]], "\n".join(parts))


def commands_for(text: str, goals: Sequence[str]) -> list[str]:
    """Returns the recipes of goals of a Makefile or justfile, with those of what they depend on.

    Without a goal it is the first one. A name with ``%`` or a variable is taken for each goal.
    """
    lines_of, needs, first, current = dict[str, list[str]](), dict[str, list[str]](), list[str](), list[str]()
    for line in text.replace("\\\n", " ").split("\n"):
        if line[:1] in (" ", "\t") and current:
            for name in current:
                lines_of.setdefault(name, []).append(line.strip().lstrip("@-+"))
        elif found := _TARGET.match(line):
            current = found[1].split()[:1] if "(" in found[1] or "{{" in found[1] else found[1].split()
            for name in current:
                needs.setdefault(name, []).extend(found[2].partition(";")[0].split())
            first = first or [name for name in current[:1] if not name.startswith(".")]
        elif line.strip() and not line.startswith("#"):
            current = []
    wanted, seen = [*(goals or first)], set[str]()
    while wanted:
        name = wanted.pop()
        if name not in seen:
            seen.add(name)
            wanted += needs.get(name, [])
    unknown = {name for name in lines_of if "%" in name or "$" in name}
    return ["\n".join(lines) for name, lines in lines_of.items() if name in seen | unknown]
