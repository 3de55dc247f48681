"""What the cases of the corpus share: a worker, and a Python with pytest for its sandboxes."""

from __future__ import annotations

import compileall
import shutil
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from deputize.shared.proof.keys import make_key
from tests.processes.leaks import descendants, kept
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, open_bench
from tests.verdict.cases import TOOLCHAINS
from tests.verdict.figures import Found, table

PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py", "xdist", "execnet")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table where all cases are tried, not a sample."""
    if "not thorough" in terminalreporter.config.option.markexpr:
        return
    tried = [each for reports in terminalreporter.stats.values() for each in reports]
    calls = [each for each in tried if isinstance(each, pytest.TestReport) and each.when == "call"]
    terminalreporter.write_line("\n".join(table(Found.of(pair for each in calls for pair in each.user_properties))))


@pytest.fixture(scope="session")
def kit() -> Iterator[Path]:
    """A virtual environment with pytest, which the operator shows to sandboxes; compiled, as they cannot write it."""
    with tempfile.TemporaryDirectory(prefix="deputize-", dir="/tmp") as folder:  # nothing below /dev can be shown
        root = Path(folder) / "python"
        venv.create(root, symlinks=True)
        site = next((root / "lib").glob("python3*")) / "site-packages"
        for name in PACKAGES:
            spec = find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            if (origin := Path(spec.origin)).name == "__init__.py":
                shutil.copytree(origin.parent, site / name)
            else:
                shutil.copy2(origin, site)
        compileall.compile_dir(site, quiet=2)  # only what was not compiled where it was copied from
        (root / "bin/pytest").write_text(f"#!{root}/bin/python\nimport pytest; raise SystemExit(pytest.main())\n")
        (root / "bin/pytest").chmod(0o755)
        root.parent.chmod(0o755)  # the sandbox's user goes through it
        yield root


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def worker(redis_server: RedisProcess, kit: Path) -> AsyncIterator[Bench]:
    """One worker for all cases: to open its services costs as much as a case. Each case has its own runs on it."""
    before = descendants()
    with tempfile.TemporaryDirectory(prefix="deputize-") as home:
        kept.add(home)
        sandbox = {"show": [str(path) for path in (kit, *TOOLCHAINS)]}
        async with open_bench(redis_server.url, Path(home), sandbox=sandbox) as bench:
            kept.update(started := descendants() - before)
            make_key(bench.settings.proof_key_folder)
            yield bench
        kept.difference_update(started, {home})
