"""The floors of ``make coverage`` are part of CI, and what is left out of the measurement is little and has reasons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.architecture.sources import PACKAGES, ROOT, name, python_files
from tests.conftest import UNTRACED

ROOF = 2
"""Lines or branches that cannot be reached in a test."""
LOWEST = 88
"""Percent of all production code that the traced tests reach. Raise it with the floor in the Makefile."""

PRAGMA = re.compile(r"#\s*pragma\b.*")
REASONED = re.compile(r"# pragma: no (cover|branch) - \w.{15,}")


def pragmas() -> dict[str, str]:
    return {
        f"{name(path)}:{number}": found[0]
        for path in python_files(*PACKAGES)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (found := PRAGMA.search(line))
    }


def makefile() -> str:
    return (ROOT / "Makefile").read_text("utf-8")


def test_what_coverage_leaves_out_has_its_reason_and_never_becomes_more() -> None:
    assert [where for where, said in pragmas().items() if not REASONED.match(said)] == []
    assert len(pragmas()) <= ROOF


def test_otherwise_only_what_types_alone_need_is_left_out() -> None:
    report = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["coverage"]["report"]
    assert report["exclude_also"] == ["if TYPE_CHECKING:", r":\s*\.\.\.$", r"^\s*\.\.\.$", r"assert_never\("]
    assert report.keys() & {"exclude_lines", "partial_also", "partial_branches", "omit", "include"} == set()


def test_every_branch_is_reached_of_what_everything_else_relies_on() -> None:
    complete = re.search(r"^COMPLETE := (.+)$", makefile(), re.MULTILINE)
    assert complete is not None
    assert set(complete[1].split(",")) >= {
        "shared/*",
        "worker/core/loop.py",
        "worker/core/tool_calls.py",
        "worker/core/execution.py",
        "worker/core/limits.py",
        "worker/policy/*",
    }
    assert "coverage report --include='$(COMPLETE)' --fail-under=100\n" in makefile()


def test_the_floor_of_the_whole_only_rises() -> None:
    floor = re.search(r"^FLOOR := (\d+)$", makefile(), re.MULTILINE)
    assert floor is not None
    assert int(floor[1]) >= LOWEST
    assert "coverage report --format=total --fail-under=$(FLOOR)\n" in makefile()


def test_all_tests_are_measured_but_those_marked_for_what_they_cost() -> None:
    of_outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"}
    own = {name: value for name, value in os.environ.items() if name not in of_outer}
    sampled, coverage, whole = (
        next(line for line in done.stdout.splitlines() if " -m pytest " in line)
        for done in (
            subprocess.run(
                ["make", "--dry-run", *target], cwd=ROOT, env=own, capture_output=True, text=True, check=True
            )
            for target in (["test"], ["coverage"], ["coverage", "SAMPLED="])
        )
    )
    assert coverage == sampled.replace(" and not costly", "") + "--cov --cov-report="
    assert whole == coverage.replace('-m "not thorough"', "")
    assert UNTRACED == ("system", "hypothesis", "growth")


@pytest.mark.system
def test_a_test_of_real_processes_is_not_traced() -> None:
    assert sys.gettrace() is None


def test_branches_are_measured_and_not_lines_alone() -> None:
    run = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["coverage"]["run"]
    assert run["branch"] is True
    assert run["source"] == list(PACKAGES)
    assert run.keys() & {"omit", "include", "source_pkgs"} == set()


def test_ci_and_the_check_of_a_developer_hold_the_floors() -> None:
    assert re.search(r"^make coverage\b.*failed=1$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    assert re.search(r"^check: .*\bcoverage\b", makefile(), re.MULTILINE)


@pytest.mark.parametrize(
    "comment", ["# pragma: no cover", "# pragma: no cover - rare", "#pragma: no branch because it is so"]
)
def test_a_pragma_without_a_reason_is_seen(comment: str) -> None:
    found = PRAGMA.search(f"    x = 1  {comment}")
    assert found is not None
    assert not REASONED.match(found[0])
