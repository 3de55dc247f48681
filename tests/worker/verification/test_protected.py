"""What is protected by default: layouts of tests, settings, and whatever the command lines of the checks name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import deputize.worker.verification.protected.paths as protected
from deputize.worker.verification.protected.paths import Protection, is_obeyed

DATA = tomllib.loads(Path(protected.__file__).with_name("paths.toml").read_text("utf-8"))
MANIFEST = '{"scripts": {"test": "node test/run.js && npm run -s lint", "lint": "eslint -c rules/own.js ."}}'
MAKE = "include build/own.mk\nall: app\nrun:\n\tpython app.py\ncheck: lint\n\t@sh tools/all.sh\n"
POE = "[tool.poe.tasks]\nquality = {cmd = 'python tools/quality.py'}\nserve = 'python app.py'\n"


def restored(
    line: str, paths: list[str], base: Mapping[str, str] | None = None, task: str = "Fix the bug", now: str = "other"
) -> list[str]:
    """Those of the paths whose change a check with this command line does not see."""
    files = {path: text.encode() for path, text in (base or {}).items()}
    protection = Protection(None, [line], task, files.get)
    return [path for path in paths if protection.holds(path, lambda path=path: (files.get(path, b""), now.encode()))]


@pytest.mark.parametrize(
    ("line", "named", "base"),
    [
        ("sh run.sh", "run.sh", {}),
        ("bash -eu scripts/all.sh --fast", "scripts/all.sh", {}),
        ("cd web && FOO=1 timeout 60 node all.js", "web/all.js", {}),
        ("python -W error -X dev all.py", "all.py", {"all.py": "assert 1"}),
        ("env -i PATH=/bin python3.11 -u all.py", "all.py", {}),
        ("uv run --with attrs python all.py", "all.py", {}),
        ("bash -c 'set -e; python all.py'", "all.py", {}),
        ("./all --quick", "all", {}),
        (". ./env.sh; true", "env.sh", {}),
        ("if ! perl -w all.pl; then exit 1; fi", "all.pl", {}),
        ("(cd sub; ruby all.rb) 2>&1 | tail -5", "sub/all.rb", {}),
        ("python app.py && python checks/price.py", "checks/price.py", {}),
        ("node -r ./hooks/first.js all.js", "hooks/first.js", {}),
        ("sh run.sh", "tools/judge.py", {"run.sh": "#!/bin/sh\npython tools/judge.py\n"}),
        ("javac @javac.opts src/Bag.java", "javac.opts", {"javac.opts": "-Werror"}),
        ("cd sub && gcc @../flags -c a.c", "flags", {"flags": "-Wall"}),
        ("make check", "tools/all.sh", {"Makefile": MAKE}),
        ("make check", "build/own.mk", {"Makefile": MAKE}),
        ("make -C sub check", "sub/tools/all.sh", {"sub/Makefile": MAKE}),
        ("make -f own/rules check", "own/rules", {"own/rules": MAKE}),
        ("just check", "all.py", {"justfile": "check: lint\n    python all.py\n"}),
        ("npm test --silent", "rules/own.js", {"package.json": MANIFEST}),
        ("npm --prefix web run lint", "web/rules/own.js", {"web/package.json": MANIFEST}),
        ("poe quality", "tools/quality.py", {"pyproject.toml": POE}),
        ("uv run poe quality", "tools/quality.py", {"pyproject.toml": POE}),
        ("invoke quality", "tasks.py", {}),
        ("python -m unittest -q checks.price.Price", "checks/price.py", {"checks/price.py": ""}),
        ("python -m unittest discover -p 'price_*.py'", "checks/price_all.py", {}),
        ("pytest -q checks/price.py::test_a", "checks/price.py", {"checks/price.py": ""}),
        ("node --test checks/price.js", "checks/price.js", {"checks/price.js": ""}),
        ("mypy --config-file strict.ini src", "strict.ini", {}),
        ("ruff check --config=lint/own.toml .", "lint/own.toml", {}),
        ("tsc --noEmit -p build/strict.json", "build/strict.json", {}),
    ],
)
def test_what_a_command_line_names_is_protected(line: str, named: str, base: Mapping[str, str]) -> None:
    assert restored(line, [named, f"{named}.md", "src/price.py"], base) == [named]


@pytest.mark.parametrize(
    ("line", "work", "base"),
    [
        ("mypy src", "src/app.py", {"src/app.py": ""}),
        ("ruff check --no-cache .", "app.py", {}),
        ("python -m pytest --doctest-modules app.py tests", "app.py", {"app.py": ""}),
        ("python app.py | grep -x 15", "app.py", {"app.py": ""}),
        ('test "$(python app.py)" = 15', "app.py", {"app.py": ""}),
        ("python app.py <in.txt 2>&1 | diff - want", "app.py", {"app.py": ""}),
        ("python build.py && test -s dist/app.js", "build.py", {}),
        ("make check", "app.py", {"Makefile": MAKE}),
        ("python -c 'import app'", "app.py", {}),
        ("python -m app", "app.py", {}),
        ("node --check app.js", "app.js", {"app.js": ""}),
        ("bash -n run.sh", "run.sh", {"run.sh": ""}),
        ("javac -d out src/*.java && java -cp out Main", "out/Main.class", {}),
        ("npx @scope/tool src", "scope/tool", {}),
        ("poe quality", "app.py", {"pyproject.toml": POE}),
    ],
)
def test_what_is_checked_is_not_protected(line: str, work: str, base: Mapping[str, str]) -> None:
    assert restored(line, [work], base) == []


def test_a_program_that_the_task_names_is_work_unless_it_is_a_test_from_before_the_run() -> None:
    assert restored("python app.py", ["app.py"], {"app.py": "x"}, task="Fix the crash of app.py.") == []
    assert restored("python app.py", ["app.py"], {"app.py": "x"}, task="Fix the crash of myapp.py") == ["app.py"]
    assert restored("sh scripts/check.sh", ["scripts/check.sh"], task="Write scripts/check.sh") == []
    assert restored("sh scripts/check.sh", ["scripts/check.sh"], {"scripts/check.sh": "x"}, "Make check.sh pass") == [
        "scripts/check.sh"
    ]


@pytest.mark.parametrize(
    ("lines", "path", "is_work"),
    [
        (["./app", "./app | grep -x 15"], "app", True),
        (["./app | grep -x 15", "sh ./app"], "app", True),
        (["make check", "tools/all.sh | diff - want"], "tools/all.sh", True),
        (["./app", "./other | grep -x 15"], "app", False),
        (["./run_tests.sh", "./run_tests.sh | grep passed"], "run_tests.sh", False),
    ],
)
def test_a_program_whose_output_one_line_judges_is_work_in_all_lines(
    lines: list[str], path: str, is_work: bool
) -> None:
    files = {"Makefile": MAKE.encode()}
    protection = Protection(None, lines, "", files.get)
    assert protection.holds(path, lambda: (b"", b"x")) is not is_work


@pytest.mark.parametrize(
    "path",
    [
        *("t/basic.t", "test.py", "test.js", "lib/test.sh", "spec/a.rb", "fixtures/expected.txt", "expected/a.txt"),
        *("test_cases.json", "cases.json", "a/__snapshots__/b", "src/SumTest.java", "price_test.exs", "run_tests.py"),
        *("mypy.ini", "tsconfig.build.json", "eslint.config.mjs", ".golangci.yml", "phpunit.xml.dist", "ruff.toml"),
        *("price.dist-info/entry_points.txt", "src/price.egg-info/entry_points.txt", ".mvn/maven.config", "a.snap"),
    ],
)
def test_layouts_and_settings_in_general_use_are_protected(path: str) -> None:
    assert restored("make", [path]) == [path]


@pytest.mark.parametrize(
    "path",
    [
        *("src/features/cart.ts", "openapi_spec.yaml", "spec.md", "attestation.py", "contest.py", "latest.json"),
        *("src/checkout.py", "config.json", "docs/testing.md", "lib/inspector.rb", "src/unittest/a.py"),
    ],
)
def test_names_that_only_look_like_tests_are_not(path: str) -> None:
    assert restored("make", [path], {"src/unittest/__init__.py": ""}) == []


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("test_price/__init__.py", {"test_price.py": ""}),
        ("checks/__init__.py", {"checks.py": ""}),
        ("test_price.cpython-311-x86_64-linux-gnu.so", {}),
        ("pytest.py", {}),
        ("unittest/__init__.py", {}),
        ("src/hypothesis/strategies.py", {}),
        ("_pytest/assertion/__init__.py", {}),
    ],
)
def test_what_python_imports_in_place_of_tests_is_protected(path: str, base: Mapping[str, str]) -> None:
    assert restored("python -m unittest checks", [path], base) == [path]


@pytest.mark.parametrize(
    ("path", "before", "after", "is_restored"),
    [
        ("package.json", '{"scripts": {}}', '{"scripts": {"lint": "true"}}', True),
        ("package.json", '{"scripts": {}}', '{"scripts": {"build": "true"}}', False),
        ("package.json", "{}", '{"eslintConfig": {"rules": {}}}', True),
        ("pyproject.toml", "", '[project.entry-points.pytest11]\nq = "quality"\n', True),
        ("pyproject.toml", "", "[tool.ruff]\nexclude = ['app.py']\n", True),
        ("pyproject.toml", "", '[project]\nname = "a"\n', False),
        ("setup.cfg", "", "[mypy]\nignore_errors = true\n", True),
        ("Cargo.toml", "", "[lib]\ntest = false\n", True),
        ("Cargo.toml", "", '[dependencies]\nserde = "1"\n', False),
        ("pom.xml", "<skip>\nfalse</skip>", "<skipTests>true</skipTests>", True),
        ("pom.xml", "<a/>\n<skipTests>false</skipTests>", "<a/>\n<skipTests>true</skipTests>", True),
        ("pom.xml", "<version>1</version>", "<version>2</version>", False),
        ("build.gradle", "test {\n}", "test {\n  ignoreFailures = true\n}", True),
        ("CMakeLists.txt", "add_test(NAME a COMMAND a)", "add_test(NAME a COMMAND true)", True),
        ("CMakeLists.txt", "add_executable(a a.c)", "add_executable(a a.c b.c)", False),
    ],
)
def test_of_mixed_files_the_part_about_checks_counts(path: str, before: str, after: str, is_restored: bool) -> None:
    assert restored("npm run lint", [path], {path: before}, now=after) == [path] * is_restored


MARKED = "[pytest]\naddopts = --strict-markers\nmarkers = slow: takes long\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "is_restored"),
    [
        ("pytest.ini", MARKED.replace("markers = slow: takes long\n", ""), MARKED, False),
        ("tox.ini", MARKED, f"# all\n{MARKED}  net: needs a network\n", False),
        ("setup.cfg", MARKED.replace("pytest", "tool:pytest"), "[tool:pytest]\naddopts = --strict-markers\n", False),
        ("pyproject.toml", "[tool.pytest.ini_options]\nx=1", "[tool.pytest.ini_options]\nx=1\nmarkers=['a']", False),
        ("pyproject.toml", "[tool.pytest]\nx=1", "[tool.pytest]\nx=1\nmarkers=['a']\n[project]\nname='a'", False),
        ("pytest.ini", MARKED, MARKED.replace("strict-markers", "lf"), True),
        ("pytest.ini", MARKED, "[DEFAULT]\nx = 1\n" + MARKED, True),
        ("pytest.ini", "", MARKED, True),
        ("pytest.ini", MARKED, "", True),
        ("pytest.ini", MARKED, "markers", True),
        ("pytest.ini", MARKED, f"{MARKED.strip()}\u2028addopts = --noconftest\n", True),
        ("pytest.ini", MARKED, f"{MARKED.strip()}\raddopts = --noconftest\n", True),
        ("pyproject.toml", "", "[tool.pytest.ini_options]\nmarkers = ['a']", True),
        ("pyproject.toml", "[tool.pytest.ini_options]\nx=1", "[tool.pytest.ini_options]\nx=2\nmarkers=['a']", True),
    ],
)
def test_a_marker_that_is_registered_selects_nothing(path: str, before: str, after: str, is_restored: bool) -> None:
    assert restored("pytest -q", [path], {path: before}, now=after) == [path] * is_restored
    asked = Protection([path])
    assert asked.holds(path, lambda: (before.encode(), after.encode()))


def test_what_the_caller_protects_replaces_what_the_lines_name() -> None:
    protection = Protection(["own/**"], ["sh run.sh"])
    held = [
        path
        for path in ("own/a", "run.sh", "tests/a.py", "a.dist-info/x")
        if protection.holds(path, lambda: (b"", b""))
    ]
    assert held == ["own/a", "a.dist-info/x"]


def test_each_line_of_the_list_has_its_reason() -> None:
    sections = ("always", "tests", "runners", "checkers", "locks", "shadows")
    assert [key for name in sections for key, why in DATA[name].items() if not why.strip()] == []


def test_long_lines_and_many_files_are_read_in_time() -> None:
    for text in ("a(" * 50_000, "sh x;" * 20_000, "`" * 100_000, '"$(' * 30_000, "\\" * 100_000, "<" * 100_000):
        restored(text, ["a"])
    protection = Protection(None, ["make"])
    assert not any(protection.holds(f"src/{at % 100}/f{at}.py", lambda: (b"", b"")) for at in range(20_000))


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "a/test_b.py", "a.test.js", "Makefile", "build.test.js", "tests/build/a.test.js"),
        *("out/test_a.py", "target/conftest.py", "coverage/x.pth", "src/test/out/a.spec.ts", "distant/a.test.js"),
    ],
)
def test_a_new_file_that_a_runner_finds_is_planted(path: str) -> None:
    assert is_obeyed(path)


@pytest.mark.parametrize(
    "path",
    [
        *("dist/a.test.js", "build/lib/test_a.py", "build/conftest.py", "coverage/src/a.spec.js.html"),
        *("build/Makefile", "web/dist/tests/a.test.js", "target/debug/build/x/out/a_test.go", "out/a.test.js"),
        *("a/__pycache__/test_a.py", "src/a.js"),
    ],
)
def test_a_file_that_a_build_writes_is_not(path: str) -> None:
    assert not is_obeyed(path)
