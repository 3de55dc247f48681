"""What a statement states, and how it compares with the file it came in and with what was found on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..checks import CommandCheck, OwnCheck, ReviewCheck, VerifyItem
from ..errors import Invalid
from ..facts import Verification
from ..promises import Finding
from ..request import DelegationRequest, DirectoryWorkspace, GitWorkspace
from ..text import clip, visible
from .file import Proof
from .statement import ASKED, BUILD_TYPE, FOUND, GROUNDS, digest, found_of, shown_item, stated_item

_COMMIT = re.compile("[0-9a-f]{40}")
_COMPARED = (*GROUNDS, "outcome", "strength", "tests")
_BY_CHANCE = "flickering"
"""Tests that failed once of twice before the run prove nothing, and another execution finds others."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The facts of a statement that was signed."""

    id: str
    patch: str
    """The digest."""
    commit: str | None
    base: str | None
    asked: Mapping[str, Any]
    run: Mapping[str, Any]
    """What nothing here can repeat: model, tools and hosts among it."""
    found: Mapping[str, Any]

    @classmethod
    def of(cls, statement: Mapping[str, Any]) -> Self:
        """Raises Invalid for a statement about something else."""
        try:
            built, ran = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
            if built["buildType"] != BUILD_TYPE:
                raise Invalid(f"the statement is not about {BUILD_TYPE}")
            subject = {each["name"]: each["digest"] for each in statement["subject"]}
            base = next((each["digest"]["gitCommit"] for each in built["resolvedDependencies"]), None)
            id, commit = ran["metadata"]["invocationId"], subject.get("commit", {}).get("gitCommit")
            asked, inside = built["externalParameters"], built["internalParameters"]
            if not all(_COMMIT.fullmatch(each) for each in (base, commit) if each is not None):
                raise Invalid("the statement names a commit that is none")
            return cls(id, subject["patch"]["sha256"], commit, base, asked, inside, ran[FOUND])
        except (KeyError, TypeError, AttributeError):
            raise Invalid("the statement lacks facts that a proof of this version has") from None

    def items_of(self, proof: Proof, further: Sequence[VerifyItem]) -> list[VerifyItem | None]:
        """Returns the checks that it states; None for one that neither the file has nor those that are given beside.

        Raises Invalid where the file has other words, another patch or another check than it states.
        """
        words = zip(ASKED, (proof.task, proof.context, proof.expected_outcome), strict=True)
        wrong = [name for name, text in words if self.asked[name] != {"sha256": digest(text)}]
        wrong += [] if digest(proof.patch) == self.patch else ["patch"]
        stated = [check["item"] for check in self.found["checks"]]
        items = proof.verify if len(proof.verify) == len(stated) else []
        own = enumerate(zip(items, stated, strict=False), 1)
        wrong += [f"check {at}" for at, (item, each) in own if item and stated_item(shown_item(item)) != each]
        if wrong or not items:
            raise Invalid(f"the file has another {', '.join(wrong) or 'number of checks'} than the signed statement")
        known = [(item, stated_item(shown_item(item))) for item in (*items, *further) if item]
        return [next((item for item, shown in known if shown == each), None) for each in stated]

    def request(self, proof: Proof, items: Sequence[VerifyItem | None], repository: str) -> DelegationRequest:
        """Returns the request whose checks are made again: those that can be."""
        here = repository if "://" in repository else str(Path(repository).absolute())
        is_git = self.base is not None
        return DelegationRequest(
            task=proof.task,
            context=proof.context,
            expected_outcome=proof.expected_outcome,
            workspace=GitWorkspace(kind="git", url=here, ref=self.base)
            if is_git
            else DirectoryWorkspace(kind="directory", path=here),
            verify=[item for item in items if item and not _why_untried(item)],
            protect=self.asked["protect"],
            accept=self.asked["accept"],
            verify_timeout_seconds=self.asked["verifyTimeoutSeconds"],
        )

    def compared(self, items: Sequence[VerifyItem | None], found: Verification | None) -> Iterator[Finding]:
        """Yields a row per fact that the checks found here: ✓ repeated, ✗ differs, ! could not be tried.

        ``found`` is None where none was made.
        """
        here = found_of(found) if found else {}
        checks = iter(zip(found.checks, here["checks"], strict=True)) if found else iter(())
        is_whole = True
        for number, (item, stated) in enumerate(zip(items, self.found["checks"], strict=True), 1):
            name, why = f"check {number}", _why_untried(item)
            check, shown = (None, None) if why else next(checks, (None, None))
            if check is None or shown is None:
                row = Finding("!", name, why or f"not tried: {found.why if found else ''}")
            else:
                row = _check_row(name, stated, shown, check.why or check.output_tail, item)
            is_whole = is_whole and row.state != "!"
            yield row
        for name in ("verdict", "restored", "released"):
            if not (found and (is_whole or name != "verdict")):
                yield Finding("!", name, "not tried with all checks")
            elif here[name] == self.found[name]:
                yield Finding("✓", name, _of(here[name]))
            else:
                detail = f"stated {_of(self.found[name])}, here {_of(here[name])}"
                yield Finding("✗", name, detail, clip(visible(found.why), 500) if name == "verdict" else "")


def _why_untried(item: VerifyItem | None) -> str:
    if item is None:
        return "not tried: its command or its files are not in the proof; --checks FILE names the request with them"
    if isinstance(item, ReviewCheck):
        return "not tried: a review needs a model"
    return f"not tried: only its workers have the check {item.name}" if isinstance(item, OwnCheck) else ""


def _check_row(
    name: str, stated: Mapping[str, Any], here: Mapping[str, Any], why: str, item: VerifyItem | None
) -> Finding:
    label = f"`{item.run}`" if isinstance(item, CommandCheck) else item.kind if item else ""
    differing = [each for each in _COMPARED if _repeatable(stated[each]) != _repeatable(here[each])]
    if not differing:
        states = ", ".join(f"{ground} {stated[ground]}" for ground in GROUNDS if stated[ground])
        return Finding("✓", name, f"{states}: {clip(visible(label), 200)}")
    detail = "; ".join(f"{each}: stated {_of(stated[each])}, here {_of(here[each])}" for each in differing)
    state = "!" if "unknown" in (here[ground] for ground in GROUNDS) else "✗"
    return Finding(state, name, f"{detail} ({clip(visible(label), 200)})", clip(visible(why.strip()), 500))


def _repeatable(fact: Any) -> Any:
    return {kind: names for kind, names in fact.items() if kind != _BY_CHANCE} if isinstance(fact, Mapping) else fact


def _of(value: Any) -> str:
    """Returns a stated value in words."""
    if isinstance(value, Mapping):
        value = [f"{kind} {_of(names)}" for kind, names in value.items()]
    if isinstance(value, list):
        value = ", ".join(map(str, value)) or "none"
    return clip(visible(str(value if value is not None else "none")), 200)
