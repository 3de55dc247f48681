"""The functions of verification that read untrusted texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deputize.shared.checks import CommandCheck
from deputize.shared.facts import Check, Verification
from deputize.worker.verification import (
    asked_changes,
    canary,
    expected_files,
    kept_python,
    kept_tests,
    rounds,
    summary_claims,
    variation,
)
from deputize.worker.verification import second_execution as repetition
from deputize.worker.verification.grounds import left_files
from deputize.worker.verification.protected import command_words, named_files
from deputize.worker.verification.protected import paths as protected
from deputize.worker.verification.reports import report_files
from deputize.worker.verification.reports import states as reports
from deputize.worker.verification.runners import known as runners
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.sources import (
    broken_functions,
    broken_scripts,
    broken_sources,
    failing_scripts,
    file_texts,
    functions_before,
    kept_rust,
)
from deputize.worker.verification.suspicions import comparisons as comparison_suspicions
from deputize.worker.verification.suspicions import project as project_suspicions
from deputize.worker.verification.suspicions import python_code as python_suspicions
from deputize.worker.verification.suspicions import scan as suspicions
from deputize.worker.verification.verdict import Observations

PATH = 4096
"""Characters of a path, or of a pattern of paths: the kernel accepts no more."""
_WORK = summary_claims.Work([], None, Verification())


def half(text: str) -> str:
    return text[: len(text) // 2]


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _in_test(text: str) -> str:
    return f"def test_a():\n    a = f({half(text)!r})\n    assert a == {half(text)!r}\n"


READS_OF_CHECKS: Mapping[str, Callable[[str], object]] = {
    "worker/verification/asked_changes.py:asked_changes": asked_changes.asked_changes,
    "worker/verification/asked_changes.py:AskedChanges.hold": lambda text: asked_changes.asked_changes(
        "Update the snapshot; test_a is wrong"
    ).hold("tests/test_a.py", text),
    "worker/verification/asked_changes.py:own_words": asked_changes.own_words,
    "worker/verification/expected_files.py:altered": lambda text: [
        expected_files.altered(f"tests/expected.{end}", raw(text)) for end in ("txt", "json", "yaml")
    ],
    "worker/verification/sources/failing_scripts.py:failing": lambda text: [
        failing_scripts.failing(f"check.{end}", text, "word") for end in ("sh", "pl", "js", "py", "c")
    ],
    "worker/verification/sources/failing_scripts.py:make_fail": lambda text: failing_scripts.make_fail(
        ["check.sh"], ["check.sh"], lambda _: raw(text), lambda _, written: None
    ),
    "worker/verification/expected_files.py:is_named": lambda text: expected_files.is_named("a/expected.txt", text),
    "worker/verification/variation.py:functions_with": lambda text: [
        variation.functions_with(each, {repr(half(text))}) for each in (text, _in_test(text))
    ],
    "worker/verification/variation.py:new_values": lambda text: variation.new_values(
        [file_texts.FileText("a.py", half(text), text)]
    ),
    "worker/verification/variation.py:parsed": lambda text: variation.parsed(text.splitlines()),
    "worker/verification/variation.py:varied": lambda text: [
        variation.varied(each, {"test_a"}, "a.json") for each in (_in_test(text), text)
    ],
    "worker/verification/verdict.py:Observations.notices_as_much": lambda text: Observations(
        Observed("green"), Observed("green")
    ).notices_as_much(text.split(), text.split("a")),
    "worker/verification/kept_python.py:reaches_further": lambda text: kept_python.reaches_further(half(text), text),
    "worker/verification/sources/broken_sources.py:broken_content": lambda text: [
        broken_sources.broken_content(path, b"", raw(text)) for path in ("a.py", "a.js", "a.go", "a.rs")
    ],
    "worker/verification/sources/broken_sources.py:changed_lines": lambda text: broken_sources.changed_lines(
        half(text), text
    ),
    "worker/verification/sources/broken_sources.py:only_executes_python": broken_sources.only_executes_python,
    "worker/verification/sources/broken_sources.py:only_reads": broken_sources.only_reads,
    "worker/verification/suspicions/comparisons.py:defined_names": lambda text: comparison_suspicions.defined_names(
        "a.js", text
    ),
    "worker/verification/sources/broken_sources.py:reads_text": broken_sources.reads_text,
    "worker/verification/protected/command_words.py:commands_of": command_words.commands_of,
    "worker/verification/protected/command_words.py:path_in": lambda text: command_words.path_in("a", text[:PATH]),
    "worker/verification/protected/named_files.py:commands_for": lambda text: named_files.commands_for(text, ["test"]),
    "worker/verification/protected/named_files.py:named_by": lambda text: named_files.named_by(
        [text], text, lambda _: None
    ),
    "worker/verification/kept_python.py:fixtures_of": kept_python.fixtures_of,
    "worker/verification/kept_python.py:kept_python": lambda text: kept_python.kept_python(
        "test_a.py", half(text), text, ()
    ),
    "worker/verification/sources/kept_rust.py:added_tests": lambda text: kept_rust.added_tests(
        raw(half(text)), raw(text)
    ),
    "worker/verification/kept_tests.py:finds_only": lambda text: [
        kept_tests.finds_only(path, "[pytest]", f"[pytest]\n{text}", lambda _: ())
        for path in ("pytest.ini", ".proverc")
    ],
    "worker/verification/kept_tests.py:same_script": lambda text: kept_tests.same_script(half(text), text),
    "worker/verification/protected/named_files.py:with_targets": lambda text: named_files.with_targets(
        text, lambda _: raw(text)
    ),
    "worker/verification/protected/named_files.py:package_scripts": lambda text: named_files.package_scripts(raw(text)),
    "worker/verification/canary.py:guarded_rust": lambda text: canary.guarded_rust(text, ""),
    "worker/verification/canary.py:inside": lambda text: canary.inside(f"/workspace/{text}", ["/tmp/ground"]),
    "worker/verification/protected/paths.py:is_obeyed": lambda text: protected.is_obeyed(text[:PATH]),
    "worker/verification/second_execution.py:keeps_state": lambda text: [
        repetition.keeps_state(path, text, name)
        for path in ("test_a.py", "a.test.js", "ATest.php")
        for name in ("a", text[:PATH])
    ],
    "worker/verification/grounds/left_files.py:is_named": lambda text: left_files.is_named(text[:PATH], text, ()),
    "worker/verification/reports/report_files.py:of_junit": report_files.of_junit,
    "worker/verification/reports/report_files.py:of_tap": report_files.of_tap,
    "worker/verification/reports/report_files.py:of_text": report_files.of_text,
    "worker/verification/protected/paths.py:Globs.match": lambda text: protected.Globs(protected.DEFAULT).match(
        text[:200]
    ),
    "worker/verification/protected/paths.py:Protection.holds": lambda text: [
        protected.Protection(None).holds(path, lambda: (b"", raw(f"[tool]\n{text}")))
        for path in ("pyproject.toml", "setup.cfg", "package.json")
    ],
    "worker/verification/suspicions/project.py:in_project": lambda text: project_suspicions.in_project(
        [file_texts.FileText(f"a.{end}", half(text), text) for end in ("js", "c", "json", "properties")],
        project_suspicions.Project(["a.js", "tests/a.js", "Makefile"], lambda _: raw(text), [text], task=text),
    ),
    "worker/verification/suspicions/python_code.py:of_python": lambda text: [*python_suspicions.of_python(text)],
    "worker/verification/suspicions/scan.py:suspicions": lambda text: suspicions.suspicions(
        [file_texts.FileText(f"a.{end}", half(text), text) for end in ("py", "js", "rs", "toml")],
        [text],
        [text[:PATH]],
    ),
    "worker/verification/suspicions/comparisons.py:Comparisons.of": lambda text: [
        [
            *comparison_suspicions.Comparisons.of({"t": text}, [text]).bent_in(
                file_texts.FileText(f"a.{end}", half(text), text)
            )
        ]
        for end in ("py", "js", "java", "rb", "go", "php")
    ],
    "worker/verification/suspicions/scan.py:in_own_tests": lambda text: suspicions.in_own_tests(
        "a.py", half(text), text
    ),
    "worker/verification/sources/functions_before.py:functions_in": functions_before.functions_in,
    "worker/verification/sources/functions_before.py:source_of": lambda text: functions_before.source_of(
        text, {"f": ["g"]}
    ),
    "worker/verification/sources/functions_before.py:with_functions_before": lambda text: (
        functions_before.with_functions_before(half(text), text)
    ),
    "worker/verification/sources/broken_sources.py:broken_functions": lambda text: [
        broken_sources.broken_functions(f"a.{end}", raw(half(text)), raw(text)) for end in ("js", "go", "rs", "c", "rb")
    ],
    "worker/verification/sources/broken_scripts.py:broken_script": lambda text: broken_scripts.broken_script(
        f"test('a', () => expect(1).toBe({text}", broken_functions.Shape(breaks=True), is_typed=False
    ),
    "worker/verification/sources/broken_scripts.py:reversed_script": lambda text: broken_scripts.reversed_script(
        f"it('', {text}"
    ),
    "worker/verification/rounds.py:failing_names": lambda text: rounds.failing_names(
        CommandCheck(kind="command", run="true", files={"a": text}),
        Check(item={}, outcome="refuted", tests={"failed": [text]}),
        [text],
    ),
    "worker/verification/reports/states.py:of_cargo": lambda text: reports.of_cargo(
        [f"test {text}", f"Running {text}"]
    ),
    "worker/verification/reports/states.py:of_go": lambda text: reports.of_go(text.splitlines()),
    "worker/verification/reports/states.py:of_jest": reports.of_jest,
    "worker/verification/reports/states.py:of_lines": lambda text: reports.of_lines(text.splitlines()),
    "worker/verification/reports/states.py:qualified": lambda text: reports.qualified(text, "a.py"),
    "worker/verification/reports/states.py:steady": reports.steady,
    "worker/verification/runners/known.py:unreported": lambda text: runners.unreported("pytest", text),
    "worker/verification/summary_claims.py:summary_claims": lambda text: summary_claims.summary_claims(text, _WORK),
}
