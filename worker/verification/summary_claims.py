"""The evidence of steps and file changes about a summary, whatever its language."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from ...shared.delegation import Step, StepStatus, ToolAgentResult
from ...shared.facts import TESTS_PASS, Check, FileChange, SummaryClaim, Verification
from ...shared.remade_files import is_remade
from ...shared.text import mapped, terminal_text
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part
from ..sandbox.environment import MOUNT
from ..workspace.patches import MAX_CHANGES

MAX_FILES = 20
"""Files of a summary that are judged."""
_MAX_SUMMARY, _MAX_COMMAND, _MAX_OUTPUT = 50_000, 4_000, 4_000
_CODE = re.compile(r"`([^`\s]{1,300})`")
_FILE = re.compile(
    r"(?:[\w@.+~-]+/)*[\w@+~-][\w@.+~-]*\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|java|kt|c|h|cc|cpp|hpp|cs|rb|php|sh|sql|"
    r"html|css|scss|md|rst|txt|json|jsonl|yaml|yml|toml|ini|cfg|xml|csv|lock|env|proto|vue|svelte|swift|scala|ipynb)"
)
_TEST_COMMAND = re.compile(
    r"\s*(?:(?:[\w./-]*/)?(?:timeout|time|env|npx|uvx|(?:uv|poetry|pdm|hatch|pipenv|coverage) run|bundle exec|-m|"
    r"[A-Z_]+=\S*|python[\d.]*(?: -[A-Za-z]{1,3}){0,4}) +(?:\d+s? +)?){0,4}(?:[\w./-]*/)?"
    r"(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|manage\.py test|"
    r"(?:npm|pnpm|yarn|bun|deno|go|cargo|mvn|gradlew?|make|just|rake|mix|dotnet|swift|bazel|ant|sbt|composer|node) "
    r"(?:[\w:=./-]{1,99} ){0,4}(?:run )?(?:--)?(?:tests?|check|spec|nextest)(?![\w/.]))(?!.*--(?:version|help|collect))"
)
_FAILED = re.compile(
    r"(?m)^.*(?:\b[1-9]\d* (?:(?:tests? )?(?:failed|failing|failures?)\b|errors? in )|\bFAILED\b|--- FAIL|^FAIL\b|"
    r"^not ok ).*$"
)
_DETAIL = re.compile(r"(?m)^(?:ERROR: |(?:E +)?[\w.]*(?:Error|Exception)\b).*$")
"""A line about a failing test or its error; one that passes may print it, too."""
_PASSED = re.compile(
    r"(?mi)\b\d+ (?:\w{0,8}tests? )?(?:passed|passing)|^ran \d+ tests?|^OK\b|^ok\s|test result: ok|^PASS\b"
)
_TESTS = re.compile(r"(?i)test|тест|テスト|测试|測試|테스트")
"""A summary that names tests, in the languages whose word is not the English one, too."""
_FAILURE = re.compile(
    r"(?i)fail|\berror|broken|\bred\b|not pass|schlag|schläg|fehl|\brot\b|échou|échec|falla|失敗|失败|провал"
)
"""A summary with such a word may report failures, if it is of a run that changed nothing and so has mended none."""
_REPORTED = re.compile(r"\b[1-9]\d*(?= |\b(?=\)))|\w*[tT]est\w{2,}|\w+(?:Error|Exception)\b")
"""What a summary that reports failures has of their lines in any language: a number, or the name of a test or error."""
_SATISFIED = ("verified", "passed", "improved")
Shown = Literal["proved", "refuted", "unproved"]


class Work(NamedTuple):
    """What a run did, as far as its worker observed it. ``changes`` is None where the list is not complete.

    ``ignored`` are new files that git ignores.
    """

    steps: Sequence[Step]
    changes: Sequence[FileChange] | None
    verification: Verification
    ignored: Collection[str] = ()


class SummaryFacts(Part):
    """Compares the words of a run's report with its facts."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        if not outcome.is_report:
            return result
        facts, steps = self._attempt.facts, self._attempt.context.steps.ended
        changes = facts.changes if facts and len(facts.changes) < MAX_CHANGES else None
        work = Work(steps, changes, result.verification, facts.ignored if facts else ())
        claims = summary_claims(outcome.summary, work)
        return result.model_copy(update={"verification": result.verification.model_copy(update={"claims": claims})})


def summary_claims(summary: str, work: Work) -> list[SummaryClaim]:
    """Returns whether the tests pass and whether the files that the summary names changed, with the evidence."""
    checks = [check for check in work.verification.checks if check.strength == "tests" or check.tests]
    tests = _of_checks(summary, work.verification.verdict, checks) if checks else _of_steps(summary, work)
    return ([tests] if tests else []) + [*_of_files(summary, work)]


def _of_checks(summary: str, verdict: str, checks: Sequence[Check]) -> SummaryClaim | None:
    """Judges by the checks that ran tests; what is not proved counts only for a summary that names tests."""
    red = [each for each in checks if each.candidate == "red" or each.outcome in ("refuted", "tampered")]
    if not red and verdict in _SATISFIED:
        return _claim(TESTS_PASS, "proved", f"the requested checks are {verdict}")
    if not _names_tests(summary):
        return None
    if not red:
        return _claim(TESTS_PASS, "unproved", f"the requested checks are {verdict}")
    shown = "unproved" if any(_reports(summary, _failures(each)) for each in red) else "refuted"
    return _claim(TESTS_PASS, shown, "tests of the requested checks failed")


def _failures(check: Check) -> list[str]:
    """Returns what a check shows of its failing tests, with their number."""
    failed = [name for kind, names in check.tests.items() if kind != "fixed" for name in names]
    return [*_lines(terminal_text(check.output_tail[-_MAX_OUTPUT:])), *failed, f"{len(failed)} failed"]


def _lines(output: str) -> list[str]:
    """Returns the lines about what failed."""
    return [*_FAILED.findall(output), *_DETAIL.findall(output)]


def _reports(summary: str, failures: Sequence[str]) -> bool:
    """Whether a summary has a number of these lines, or a name of a test or an error."""
    words = {word for line in failures for word in _REPORTED.findall(line)}
    return any(_is_word(summary[:_MAX_SUMMARY], word) for word in words)


def _names_tests(summary: str) -> bool:
    return _TESTS.search(summary[:_MAX_SUMMARY]) is not None


def _of_steps(summary: str, work: Work) -> SummaryClaim | None:
    """Judges by the last command that ran tests, and by what changed after it."""
    has_changes = any(not is_remade(each.path) for each in work.changes or ())
    names_tests = _names_tests(summary)
    if not (runs := [at for at, step in enumerate(work.steps) if _ran_tests(step)]):
        return _claim(TESTS_PASS, "unproved", "no command ran tests") if has_changes and names_tests else None
    last = work.steps[runs[-1]]
    if any(_is_own(change.path, work) for step in work.steps[runs[-1] + 1 :] for change in step.changes):
        return _claim(TESTS_PASS, "unproved", "files changed after the last run of tests", last)
    output = terminal_text((last.result or last.error or "")[-_MAX_OUTPUT:])
    if _FAILED.search(output):
        is_claim = has_changes or (names_tests and not _FAILURE.search(summary[:_MAX_SUMMARY]))
        is_contradiction = is_claim and not _reports(summary, _lines(output))
        shown = "refuted" if is_contradiction else "unproved"
        return _claim(TESTS_PASS, shown, "the last run of tests failed", last)
    hides_exit_code = re.search(r"[|;]|\n.", _command(last).strip())
    if last.status is StepStatus.COMPLETED and (not hides_exit_code or _PASSED.search(output)):
        return _claim(TESTS_PASS, "proved", "the last run of tests passed, and nothing changed after it", last)
    return _claim(TESTS_PASS, "unproved", "the last run of tests did not report whether they passed", last)


def _is_own(path: str, work: Work) -> bool:
    """Whether a file is the run's own work: no cache of a tool, and nothing that git ignores."""
    return path not in work.ignored and not is_remade(path)


def _of_files(summary: str, work: Work) -> Iterator[SummaryClaim]:
    named = (found.removeprefix(f"{MOUNT}/").removeprefix("./") for found in _CODE.findall(summary[:_MAX_SUMMARY]))
    for path in list(dict.fromkeys(each for each in named if _FILE.fullmatch(each)))[:MAX_FILES]:
        claim = f"`{path}` changed"
        paths = [name for each in work.changes or () for name in (each.path, each.from_) if name]
        missed = [step for step in work.steps if _changes_nothing(step) and _names(step, path)]
        if any(_same(path, each) for each in paths):
            writers = (each for each in reversed(work.steps) if any(_same(path, made.path) for made in each.changes))
            yield _claim(claim, "proved", "the files before and after differ", next(writers, None))
        elif missed and work.changes is not None and not _wrote_later(missed[-1], path, work.steps):
            failed = "was denied" if missed[-1].denied else "failed"
            yield _claim(claim, "refuted", f"the call that would have changed it {failed}", missed[-1])
        elif work.changes is not None:
            yield _claim(claim, "unproved", "it is the same as before the run")


def _claim(claim: str, verdict: Shown, why: str, evidence: Step | None = None) -> SummaryClaim:
    return SummaryClaim(claim=claim, verdict=verdict, why=why, evidence=evidence and evidence.id)


def _command(step: Step) -> str:
    command = step.arguments.get("command")
    return command[:_MAX_COMMAND] if step.type.startswith("bash") and isinstance(command, str) else ""


def _ran_tests(step: Step) -> bool:
    return not step.denied and any(_TEST_COMMAND.match(part) for part in re.split(r"[;&|(\n]+", _command(step)))


def _changes_nothing(step: Step) -> bool:
    return (step.denied or step.status is StepStatus.FAILED) and (step.denied or step.type in ("write", "edit"))


def _names(step: Step, path: str) -> bool:
    texts: list[str] = []
    mapped(step.arguments, lambda text: texts.append(text[:_MAX_COMMAND]) or text)
    return any(_is_word(text, path) for text in texts)


def _is_word(text: str, path: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(path)}(?![\w-])", text) is not None


def _wrote_later(missed: Step, path: str, steps: Sequence[Step]) -> bool:
    """Whether a later step succeeded in what this one was meant to do, for example with the content that was there."""
    later = [step for step in steps[steps.index(missed) + 1 :] if step.type in ("write", "edit")]
    return any(step.status is StepStatus.COMPLETED and _names(step, path) for step in later)


def _same(path: str, changed: str) -> bool:
    """Whether both may be one file: each may be relative to another directory."""
    path, changed = f"/{path}", f"/{changed}"
    return path.endswith(changed) or changed.endswith(path)
