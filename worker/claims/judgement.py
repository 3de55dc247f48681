"""The verdicts on what a summary states: it is refuted only where steps and files leave no other explanation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from ...shared.delegation import Step, StepStatus
from ...shared.facts import FileChange, SummaryClaim, Verification
from ...shared.request import DelegationRequest
from ...shared.text import CUT_NOTE, mapped, terminal_text
from ..policy.shell import CommandLine, Decision, classify_line
from ..tools import BUILTIN
from ..tools.base import Effect
from ..workspace.patches import MAX_CHANGES, Facts
from .statements import WORDS, Statement, statements

Verdict = tuple[Literal["proved", "refuted", "unproved"], Step | None]

MAX_SEARCHED = 500_000
"""Characters of calls and results that are searched; after a run with more of them no file or command is refuted."""
MAX_COMMAND = 16_000
MAX_OUTPUT = 4_000
MAX_CLASSIFIED = 2_000
"""Longer lines take computing time: it is taken for granted that they change something."""
MAX_TASK = 50_000
_READS = {tool.name for tool in BUILTIN if tool.effect is Effect.PURE}
_KNOWN = {tool.name for tool in BUILTIN} - {"call_subagent", "record_note"}
"""The tools that change no file without its name in the call, but for ``bash``."""
_INERT = {"mkdir", "touch", "cp", "mv", "rm", "rmdir", "ln", "chmod", "sed", "cat", "echo", "printf", "tee"}
_TEST = (
    r"\s*(?:(?:[\w./-]*/)?(?:timeout|time|env|npx|uvx|(?:uv|poetry|pdm|hatch|pipenv|coverage) run|bundle exec|-m|"
    r"[A-Z_]+=\S*|python[\d.]*(?: -[A-Za-z]{1,3}){0,4}) +(?:\d+s? +)?){0,4}(?:[\w./-]*/)?"
    r"(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|manage\.py test|"
    r"(?:npm|pnpm|yarn|bun|deno|go|cargo|mvn|gradlew?|make|just|rake|mix|dotnet|swift|bazel|ant|sbt|composer|node) "
    r"(?:[\w:=./-]{1,99} ){0,4}(?:run )?(?:--)?(?:tests?|check|spec|nextest)(?![\w/.]))(?!.*--(?:version|help|collect))"
)
_PART_OF_TESTS = r" -k |::|\btest_\w+|_test\.\w|\.test\.|\.spec\.| -run |--grep|--lf\b"
_FAILED = r"(?m)\b[1-9]\d* (?:(?:tests? )?(?:failed|failing|failures?)\b|errors? in )|\bFAILED\b|^\s*--- FAIL|^not ok "
_PASSED = r"(?mi)\b(\d+) (?:\w{0,8}tests? )?(?:passed|passing)|^ran (\d+) tests?|^OK\b|^ok\s|test result: ok|^PASS\b"
_ADMITTED = r"(?i)\bfail(?:s|ed|ing|ures?)?\b|\bbroken\b|\bflaky\b|\bred\b|n[o']t pass"
_REPAIRED = (
    r"(?i)\b(?:fix\w*|previously|formerly|once|0|no|zero|without(?: any)?)(?: \w+){0,4} fail(?:ed|ing|ures?)\b|"
    r"\bfailing tests? (?:now )?pass\w*|\bfail(?:ed|ing) before\b"
)
_INDIRECT = (
    r"\b(?:make|npm|yarn|pnpm|bun|just|tox|nox|rake|docker|sh|bash|pre-commit|gradle|mvn|source)\b|(?:^|\s)\.?\./"
)
"""Commands that may run others unseen."""
_HISTORY = r"\bgit\b[^\n;|&]{0,40} (?:log|show|blame|shortlog|reflog|whatchanged)\b|(?i:changelog|history\.|release)"
_OF_HISTORY = r"(?m)^(?:diff --git |commit [0-9a-f]{7})"


@dataclass(frozen=True, slots=True)
class Work:
    """What a run did. ``changes`` is None where it is not known; ``unclear``: earlier work may explain the summary."""

    steps: Sequence[Step]
    changes: Sequence[FileChange] | None
    ignored: Sequence[str] = ()
    task: str = ""
    unclear: bool = False
    has_files: bool = True
    tests_proved: bool = True
    """Whether a test run of its own proves that tests pass: not after it changed them, and no check agrees."""

    @classmethod
    def of(
        cls, request: DelegationRequest, steps: Sequence[Step], facts: Facts | None, verification: Verification
    ) -> Self:
        """Returns what a run did. A list of changes that is not complete is none."""
        complete = facts and len(facts.changes) < MAX_CHANGES and facts.ignored_count == len(facts.ignored)
        return cls(
            steps,
            facts.changes if facts and complete else None,
            facts.ignored if facts else (),
            f"{request.task}\n{request.context}"[:MAX_TASK],
            unclear=request.builds_on is not None,
            has_files=request.workspace.kind != "empty",
            tests_proved=not verification.restored or verification.verdict == "verified",
        )


def claims(summary: str, work: Work) -> list[SummaryClaim]:
    """Returns what a summary states about files, commands and tests, each with its verdict and the step it is from."""
    found: list[SummaryClaim] = []
    evidence = _Evidence(work, summary)
    for each in statements(summary, work.task):
        verdict, step = evidence.judge(each)
        if each.kind != "work" or verdict == "refuted":
            found.append(SummaryClaim(claim=each.words, evidence=step and step.id, verdict=verdict))
    return found


class _Evidence:
    """The steps of a run, by what each can have done."""

    def __init__(self, work: Work, summary: str) -> None:
        self._work = work
        self._summary = summary

    @cached_property
    def _done(self) -> list[_Done]:
        return [done for step in self._work.steps if (done := _Done(step)).was_executed]

    @cached_property
    def _acts(self) -> list[_Done]:
        """The steps that may have changed something."""
        return [done for done in self._done if not done.reads]

    @cached_property
    def _runs(self) -> list[_Done]:
        return [done for done in self._acts if done.is_test]

    @cached_property
    def _opaque(self) -> bool:
        """Whether there are steps that may have done anything."""
        return self._work.unclear or any(done.step.tool_name not in _KNOWN for done in self._done)

    @cached_property
    def _reports_history(self) -> bool:
        """Whether the summary may report what others have changed."""
        if not self._wants_changes or re.search(_OF_HISTORY, self._work.task):
            return True
        return any(re.search(_HISTORY, text) for done in self._done if done.reads for text in done.arguments)

    @cached_property
    def _wants_changes(self) -> bool:
        return not WORDS["request"].isdisjoint(re.findall(r"\w+", self._work.task.lower()))

    @cached_property
    def _texts(self) -> list[str] | None:
        """The words of the calls that may have changed something, and of their results; None for too many of them."""
        texts = [
            text for done in self._acts if not done.failed_edit for text in (*done.arguments, done.step.result or "")
        ]
        is_cut = any(CUT_NOTE in text for text in texts) or sum(map(len, texts)) > MAX_SEARCHED
        return None if is_cut else [text.lower() for text in texts]

    def _mentioned(self, name: str) -> bool:
        return self._texts is None or any(_holds(text, name.lower()) for text in self._texts)

    def judge(self, statement: Statement) -> Verdict:
        match statement.kind:
            case "file":
                return self._file(statement)
            case "command":
                return self._command(statement.subject)
            case "testing" | "tests":
                if not self._runs:
                    return self._untested(statement)
                verdict, step = self._tests(statement) if statement.kind == "tests" else ("proved", self._runs[-1].step)
                return ("unproved" if verdict == "proved" and not self._work.tests_proved else verdict), step
            case "work":
                work = self._work
                nothing = work.has_files and not work.steps and not work.unclear and "```" not in self._summary
                return ("refuted" if nothing and self._wants_changes else "unproved"), None

    def _file(self, statement: Statement) -> Verdict:
        path, changes = statement.subject, self._work.changes or ()
        is_gone = statement.verb in WORDS["gone"]
        for change in changes:
            if any(_same(path, each) for each in (change.path, change.from_) if each):
                is_contrary = change.change == ("created" if is_gone else "deleted")
                return ("unproved", None) if is_contrary else ("proved", self._writer(change.path))
        name = path.rpartition("/")[2]
        others = [*(change.path for change in changes), *self._work.ignored]
        elsewhere = any(name.lower() == other.lower().rpartition("/")[2] for other in others)
        by_program = self._acts and (is_gone or statement.verb in WORDS["made"] or "lock" in name)
        is_story = self._reports_history and not statement.own
        if self._work.changes is None or self._opaque or elsewhere or by_program or is_story or self._mentioned(name):
            return "unproved", None
        failed = [step for step in self._work.steps if step.error and _holds(_Done(step).path, name)]
        return "refuted", failed[-1] if failed else None

    def _writer(self, path: str) -> Step | None:
        """Returns the last step that is known to have changed this file."""
        edits = [done for done in self._acts if done.path and _same(done.path, path) and not done.step.error]
        named = [done for done in self._acts if _holds(done.command, path.rpartition("/")[2])]
        found = edits or named
        return found[-1].step if found else None

    def _command(self, command: str) -> Verdict:
        wanted = " ".join(command.removeprefix("$ ").split())
        if ran := [done.step for done in self._done if wanted in " ".join(done.command.split())]:
            return "proved", ran[-1]
        words = [word for word in wanted.split() if not word.startswith("-") and "=" not in word]
        head = next((word for word in words if word not in WORDS["launcher"]), wanted).rpartition("/")[2]
        unseen = any(head in done.command or re.search(_INDIRECT, done.command) for done in self._done)
        if self._opaque or unseen or head in WORDS["looks"] or self._mentioned(head):
            return "unproved", None
        return "refuted", next((step for step in self._work.steps if wanted in _Done(step).command), None)

    def _untested(self, statement: Statement) -> Verdict:
        """Returns the verdict where no command is known to have run tests."""
        unseen = any(done.may_test or " passed" in (done.step.result or "") for done in self._done)
        if unseen or self._opaque or (self._reports_history and not statement.own):
            return "unproved", None
        return "refuted", next((step for step in self._work.steps if _Done(step).is_test), None)

    def _tests(self, statement: Statement) -> Verdict:
        decided = [done for done in self._runs if done.outcome in ("green", "red")] or self._runs
        last = decided[-1]
        after = self._acts[self._acts.index(last) + 1 :]
        unseen = [done for done in self._acts if done.may_test and not done.is_test]
        if last.outcome == "green":
            counts = [done.passed for done in self._runs]
            if statement.number and all(counts) and not unseen and statement.number > sum(counts):
                return "refuted", last.step
            is_part = statement.scope == "whole" and re.search(_PART_OF_TESTS, last.command)
            others = statement.number and last.passed and statement.number not in counts
            return "unproved" if is_part or others or any(not done.is_test for done in after) else "proved", last.step
        red = last.outcome == "red" and not any(
            done in unseen or (done.is_test and done.outcome == "unknown") for done in after
        )
        admitted = re.search(_ADMITTED, re.sub(_REPAIRED, "", self._summary))
        if (red or (last.outcome == "broken" and not unseen)) and statement.scope != "part" and not admitted:
            return ("unproved", None) if self._opaque else ("refuted", last.step)
        return "unproved", None


class _Done:
    """A step, by what its tool can do. Compared by identity."""

    def __init__(self, step: Step) -> None:
        self.step = step
        command, error = step.arguments.get("command"), step.error or ""
        is_command = step.type.startswith("bash")
        self.command = command[:MAX_COMMAND] if is_command and isinstance(command, str) else ""
        paths = (step.arguments.get(name) for name in ("path", "file_path", "filePath", "filename", "target_file"))
        self.path = next((str(path) for path in paths if path), "") if step.type in ("write", "edit") else ""
        self.was_executed = not step.denied and not error.startswith(("not executed", "there is no tool"))
        self.in_doubt = error.startswith("outcome unknown") or bool(step.arguments.get("run_in_background"))
        self.failed_edit = bool(self.path and error and not self.in_doubt)

    @cached_property
    def _line(self) -> CommandLine:
        return classify_line(self.command if len(self.command) <= MAX_CLASSIFIED else "")

    @cached_property
    def reads(self) -> bool:
        return self._line.decision is Decision.ALLOW if self.command else self.step.tool_name in _READS

    @cached_property
    def is_test(self) -> bool:
        return any(re.match(_TEST, part) for part in re.split(r"[;&|(\n]+", self.command))

    @cached_property
    def may_test(self) -> bool:
        parts = self._line.commands
        inert = parts and all(each.decision is Decision.ALLOW or each.words[0] in _INERT for each in parts)
        return bool(self.command) and not inert

    @cached_property
    def output(self) -> str:
        """The end of what was printed, where runners of tests have their totals."""
        return terminal_text((self.step.result or "")[-MAX_OUTPUT:])

    @cached_property
    def arguments(self) -> list[str]:
        texts: list[str] = []
        mapped(self.step.arguments, lambda text: texts.append(text) or text)
        return texts

    @cached_property
    def outcome(self) -> Literal["green", "red", "broken", "unknown"]:
        failed, passed = re.search(_FAILED, self.output), re.search(_PASSED, self.output)
        if self.in_doubt or not self.is_test:
            return "unknown"
        if self.step.status is not StepStatus.COMPLETED:
            return "red" if failed else "unknown" if passed else "broken"
        is_masked = re.search(r"[|;]|\n.", self.command.strip())  # the exit code may be another command's
        return "green" if not is_masked else "red" if failed else "green" if passed else "unknown"

    @cached_property
    def passed(self) -> int:
        """How many tests have passed by its output; 0 where it has no number."""
        return sum(int(number[:9]) for each in re.finditer(_PASSED, self.output) for number in each.groups() if number)


def _holds(text: str, name: str) -> bool:
    """Returns whether a text has this name as a word of its own, or as the end of a path."""
    at = text.find(name)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_-"):
        at = text.find(name, at + 1)
    return at >= 0


def _same(path: str, changed: str) -> bool:
    """Returns whether both may be one file: each may be relative to another directory, or lack its extension."""
    path, changed = f"/{path}".lower(), f"/{changed}".lower()
    name, changed_name = (each.rpartition("/")[2] for each in (path, changed))
    return path.endswith(changed) or changed.endswith(path) or ("." not in name and changed_name.startswith(f"{name}."))
