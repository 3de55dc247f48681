"""The evidence of steps and file changes about a summary, whatever its language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ...shared.delegation import Step, StepStatus, ToolAgentResult
from ...shared.facts import FileChange, SummaryClaim, Verification
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
    r"(?m)^.*(?:\b[1-9]\d* (?:(?:tests? )?(?:failed|failing|failures?)\b|errors? in )|\bFAILED\b|--- FAIL|^not ok ).*$"
)
_PASSED = re.compile(
    r"(?mi)\b\d+ (?:\w{0,8}tests? )?(?:passed|passing)|^ran \d+ tests?|^OK\b|^ok\s|test result: ok|^PASS\b"
)
_TESTS = re.compile(r"(?i)test|тест|テスト|测试|測試|테스트")
"""A summary that names tests, in the languages whose word is not the English one, too."""
_REPORTED = re.compile(r"\b[1-9]\d*(?= |\b(?=\)))|\w*[tT]est\w{2,}")
"""What a summary that reports the failures has of their lines in any language: a number, or the name of a test."""
Shown = Literal["proved", "refuted", "unproved"]
_SHOWN: Mapping[str, Shown] = {"verified": "proved", "passed": "proved", "refuted": "refuted"}


class Work(NamedTuple):
    """What a run did, as far as its worker observed it. ``changes`` is None where the list is not complete."""

    steps: Sequence[Step]
    changes: Sequence[FileChange] | None
    verification: Verification


class SummaryFacts(Part):
    """Compares the words of a run's report with its facts."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        if not outcome.is_report:
            return result
        facts, steps = self._attempt.facts, self._attempt.context.steps.ended
        changes = facts.changes if facts and len(facts.changes) < MAX_CHANGES else None
        claims = summary_claims(outcome.summary, Work(steps, changes, result.verification))
        return result.model_copy(update={"verification": result.verification.model_copy(update={"claims": claims})})


def summary_claims(summary: str, work: Work) -> list[SummaryClaim]:
    """Returns whether the tests pass and whether the files that the summary names changed, with the evidence."""
    tests = (_of_checks if work.verification.checks else _of_tests)(summary, work)
    return ([tests] if tests else []) + [*_of_files(summary, work)]


def _of_checks(summary: str, work: Work) -> SummaryClaim | None:
    """Judges by the verdict; what is not proved counts only for a summary that names tests."""
    verdict = work.verification.verdict
    shown = _SHOWN.get(verdict, "unproved")
    if shown != "proved" and not _names_tests(summary):
        return None
    return _claim("tests pass", shown, f"the requested checks are {verdict}")


def _names_tests(summary: str) -> bool:
    return _TESTS.search(summary[:_MAX_SUMMARY]) is not None


def _of_tests(summary: str, work: Work) -> SummaryClaim | None:
    """Judges by the last command that ran tests, and by what changed after it."""
    has_changes = bool(work.changes)
    if not (runs := [at for at, step in enumerate(work.steps) if _ran_tests(step)]):
        is_doubted = has_changes and _names_tests(summary)
        return _claim("tests pass", "unproved", "no command ran tests") if is_doubted else None
    last = work.steps[runs[-1]]
    if any(step.changes for step in work.steps[runs[-1] + 1 :]):
        return _claim("tests pass", "unproved", "files changed after the last run of tests", last)
    output = terminal_text((last.result or last.error or "")[-_MAX_OUTPUT:])
    if failed := _FAILED.findall(output):
        words = {word for line in failed for word in _REPORTED.findall(line)}
        is_reported = not has_changes or any(_is_word(summary[:_MAX_SUMMARY], word) for word in words)
        return _claim("tests pass", "unproved" if is_reported else "refuted", "the last run of tests failed", last)
    hides_exit_code = re.search(r"[|;]|\n.", _command(last).strip())
    if last.status is StepStatus.COMPLETED and (not hides_exit_code or _PASSED.search(output)):
        return _claim("tests pass", "proved", "the last run of tests passed, and nothing changed after it", last)
    return _claim("tests pass", "unproved", "the last run of tests did not report whether they passed", last)


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
