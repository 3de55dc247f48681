"""Sources in Python that are nested too deeply to be read, walked or written are left as they are, without an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deputize.worker.verification.canary import Broken, Rewriter
from deputize.worker.verification.kept_python import kept_python
from deputize.worker.verification.reports.states import Place, Report
from deputize.worker.verification.second_execution import keeps_state
from deputize.worker.verification.sources.broken_sources import broken_content
from deputize.worker.verification.sources.file_texts import FileText
from deputize.worker.verification.sources.functions_before import with_functions_before
from deputize.worker.verification.suspicions.comparisons import Comparisons
from deputize.worker.verification.suspicions.python_code import of_python
from deputize.worker.verification.variation import functions_with, lay

DEEP = {
    "a sum that is read but not walked": "+".join(["1"] * 1500),
    "names that are read but not written": f"a{'.b' * 1500}",
    "a sum that is not read": "+".join(["1"] * 20_000),
    "signs for which the parser has no memory": f"{'-' * 100_000}1",
    "functions in functions": f"{'lambda: ' * 20_000}1",
    "a number that is read but not written": f"0x1{'0' * 8000}",
}
READERS: dict[str, Callable[[str], object]] = {
    "as new code": lambda text: broken_content("a.py", b"", text.encode()),
    "as code from before": lambda text: broken_content("a.py", text.encode(), b"def test_one(): pass\n"),
    "with the functions before": lambda text: with_functions_before("def test_one(): pass\n", text),
    "in the place of others": lambda text: with_functions_before(text, "def test_one(): pass\n"),
    "for its state": lambda text: keeps_state("test_a.py", text, "test_one"),
    "for its comparisons": lambda text: [*Comparisons((), False).bent_in(FileText("a.py", text, f"{text}\n"))],
    "for its tests": lambda text: kept_python("test_a.py", text, f"{text}\ndef test_two(): pass\n", ()),
    "for its values": lambda text: functions_with(text, {"17"}),
    "for suspicions": lambda text: [*of_python(text)],
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_is_nested_too_deeply_is_no_error(read: Callable[[str], object], deep: str) -> None:
    read(
        f"class A:\n    one: int = field({deep}, compare=False)\n    def __eq__(self, other): return {deep}\n"
        f"def test_one():\n    ({deep}).c = 1\n    assert {deep}\n"
    )


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_a_test_that_is_nested_too_deeply_is_not_broken(deep: str, tmp_path: Path) -> None:
    text = f"def test_one():\n    assert {deep}\n"
    (tmp_path / "test_a.py").write_text(text)
    report = Report()
    report.add("test_a.py::test_one", "passed", Place("/workspace/test_a.py", "test_one"))
    rewriter = Rewriter.of(report, ["/workspace"], {"test_a.py::test_one"})
    assert rewriter.carry_out(tmp_path) == Broken()
    assert (tmp_path / "test_a.py").read_text() == text


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_a_test_that_is_nested_too_deeply_has_no_other_inputs_and_the_next_file_has(deep: str, tmp_path: Path) -> None:
    text = f"def test_one():\n    assert {deep}\n\ndef test_two():\n    assert total(3, 5) == 15\n"
    other = "def test_two():\n    assert total(3, 5) == 15\n"
    lay(tmp_path, {"test_a.py": (text, {"test_two"}), "test_b.py": (other, {"test_two"})}, "noted.json")
    assert (tmp_path / "test_b.py").read_text() != other
