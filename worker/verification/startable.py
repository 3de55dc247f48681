"""Why a check's command fails whatever the run does: it cannot start, or needs what checks do not have.

It cannot start where a program, a runner of tests or a dependency is not installed, or where no sandbox has what it
needs.

A missing file of the project or a test that fails does not count: to change that may be the task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .protected.paths import SOURCE_FOLDERS
from .runners.execution import NOT_EXECUTABLE, NOT_FOUND, Observed

REMEDY = (
    "Install what is missing where commands find it (a .venv or node_modules in the workspace's folder, an environment "
    "of Poetry, Pipenv, Hatch, tox or nox, sandbox.setup, or sandbox.show), or set verifyEarly to false "
    "(--verify-early no) if the run is to do that itself"
)
_WITHOUT: Mapping[str, str] = dict.fromkeys(
    ("poetry", "pipenv", "hatch", "uv", "pdm", "rye"),
    " (commands find the project's environment without it: leave it out of the command)",
)
_RUNNERS = "pytest|tox|nox|coverage|nose2|ruff|mypy|black|flake8|pylint|hatch|pyright|isort|build|poetry|pipenv|uv"
_NO_RUNNER = re.compile(rf"(?:python[\d.]*|\S*/python[\d.]*): No module named ({_RUNNERS})\b")
_NO_PROGRAM = re.compile(
    r"^(?:\S*sh: (?:line )?(?:\d+: )?|make(?:\[\d+\])?: )([^\s/:]+|/\S+): "
    r"(?:command not found|not found|No such file or directory|Permission denied)$",
    re.MULTILINE,
)
_FAILED_TO_START = re.compile(r"^make.*: \*\*\*.* Error 12[67]$", re.MULTILINE)
_NO_MODULE = re.compile(
    r"ModuleNotFoundError: No module named '([\w.]+)'|Cannot find (?:module|package) '([^'./][^']*)'"
)
_DECLARED_IN = (
    *("pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "environment.yml", "environment.yaml", "tox.ini"),
    *("requirements*.txt", "requirements*.in", "requirements/*.txt", "package.json"),
)
_OTHER_NAMES = {
    "yaml": "pyyaml",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "attr": "attrs",
    "jwt": "pyjwt",
    "git": "gitpython",
}
_MAX_BYTES = 1 << 20
_NEEDS = {
    "the network, which checks do not have": re.compile(
        r"(?:Temporary failure in|failure in) name resolution|could not resolve (?:host|hostname|proxy)|"
        r"Name or service not known|nodename nor servname|Network is unreachable|"
        r"Failed to establish a new connection|\b(?:EAI_AGAIN|ENOTFOUND|ENETUNREACH)\b|only-if-cached mode is enabled|"
        r"dial tcp: lookup|module lookup disabled by GOPROXY=off|No matching distribution found for|"
        r"Could not transfer artifact|failed to (?:download|fetch|query|get) (?:from )?`?https?:|"
        r"Unable to locate package|Could not fetch URL|Max retries exceeded with url|Connection refused.*https?://",
        re.IGNORECASE,
    ),
    "a git repository": re.compile(
        r"fatal: not a git repository|fatal: No names found, cannot describe", re.IGNORECASE
    ),
}
_CANNOT = {
    re.compile(
        r"in offline mode and the artifact (\S+) has not been downloaded"
        r"|No cached version of (\S+) available for offline"
    ): "the artifact {} is not in the repository of Maven or Gradle that commands find",
    re.compile(
        r"LeakSanitizer (has encountered a fatal error|does not work under ptrace)"
    ): "LeakSanitizer needs ptrace, which no sandbox has (ASAN_OPTIONS=detect_leaks=0 in the command leaves it out)",
}
"""What runs print that cannot succeed here whatever is done to the code, and why."""
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*|check_\w+")
"""Parts of an output that differ from one run to the next: times, addresses, names."""


def why_not_started(seen: Observed, base: Path) -> str:
    """Returns why the command could not start on the ``base``, or "" where it could. Reads the project's files."""
    if seen.state in ("green", "unknown"):
        return ""
    if found := _NO_RUNNER.search(seen.output):
        return f"{found[1]} is not installed"
    could_not = seen.exit_code in (NOT_FOUND, NOT_EXECUTABLE) or _FAILED_TO_START.search(seen.output)
    if could_not and (found := _NO_PROGRAM.search(seen.output)):
        how = "cannot be executed" if seen.exit_code == NOT_EXECUTABLE else "is not installed"
        return f"the program {found[1]} {how}{_WITHOUT.get(found[1], '')}"
    if not (seen.report and seen.report.of("passed")):
        for pattern, why in _CANNOT.items():
            if found := pattern.search(seen.output):
                return why.format(found[1] or found[found.lastindex or 0])
    return _missing_dependency(seen, base)


def _missing_dependency(seen: Observed, base: Path) -> str:
    """Returns the dependency without which no file of tests can be loaded, if the project declares it."""
    tests = seen.report.tests if seen.report else {}
    places = seen.report.places if seen.report else {}
    if any(state != "failed" or (id in places and places[id].name) for id, state in tests.items()):
        return ""
    for found in _NO_MODULE.finditer(seen.output):
        name = (found[1] or found[2]).partition("." if found[1] else "/")[0]
        if _is_declared(name, base) and not _is_own(name, base):
            return f"the project's dependency {name} is not installed"
    return ""


def _is_declared(name: str, base: Path) -> bool:
    names = {name, _OTHER_NAMES.get(name, name)}
    words = "|".join(re.sub(r"[-_.]+", "[-_.]", re.escape(each).replace("\\-", "-")) for each in names)
    pattern = re.compile(rf"(?<![\w./-])(?:{words})(?![\w/-])", re.IGNORECASE)
    paths = [path for glob in _DECLARED_IN for path in base.glob(glob) if path.is_file() and not path.is_symlink()]
    return any(pattern.search(_text(path)) for path in paths)


def _is_own(name: str, base: Path) -> bool:
    """Whether the project itself has the module: that it is not found is a matter of its settings."""
    folders = (base, *(base / root for root in SOURCE_FOLDERS), *base.glob("*/src"))
    return any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "replace")


def why_newly_red(now: Observed, files: Path) -> str:
    """Returns which dependency that the run has declared in its ``files`` is not installed, or ""."""
    return _missing_dependency(now, files)


def why_still_red(base: Observed, now: Observed, folder: Path) -> tuple[str, bool]:
    """Returns why a command fails before the run and with its changes, and whether no change could help.

    ``folder``: the files from before the run. Where a test passes, the others fail for reasons of their own.
    """
    if any(seen.report and seen.report.of("passed") for seen in (base, now)):
        return "", False
    if missing := why_not_started(now, folder):
        return missing, bool(why_not_started(base, folder))
    for what, pattern in _NEEDS.items():
        if pattern.search(base.output) and pattern.search(now.output):
            return f"it needs {what}", True
    is_same = base.exit_code == now.exit_code and _steady(base.output) == _steady(now.output)
    return ("it prints the same" if now.output.strip() else "it prints nothing") if is_same else "", False


def _steady(output: str) -> str:
    return _VARYING.sub("0", output)
