"""Changes of tests and settings that the words of a task ask for.

The caller decides what tests state, so the task is enough to ask for a change of them. It does so by a verb in the
imperative with tests, a snapshot, a fixture or a path as its object, or by a clause that calls tests wrong. A report of
a bug calls the code wrong. A question or a quotation asks for nothing, nor does a task that forbids anything about
tests. Only English is understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal

from .protected.paths import ALWAYS, OF_TESTS, Globs

MAX_TASK, _LONGEST = 10_000, 200
_SENTENCE = re.compile(r"([.;!?](?=\s|$)|\n[ \t]*\n)")
_TOKEN = re.compile(r"[\w@./+-]+|[,:\n]")
_FILE = re.compile(r"[\w-]*\.?[\w-]+\.(?=\w*[a-z])\w{1,8}|(?:GNUm|M|m)akefile|[Jj]ustfile|test_\w+")
_Kind = Literal["tests", "data", "fixtures", "output", "path"]
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("assertion", "assertions", "expectation", "expectations", "test", "tests", "xfail"), "tests"),
    **dict.fromkeys(("baseline", "baselines", "golden", "goldens", "snapshot", "snapshots"), "data"),
    **dict.fromkeys(("fixture", "fixtures"), "fixtures"),
    **dict.fromkeys(("output", "outputs"), "output"),
}
"""Objects, by their words."""
_NAMES, _REMOVES, _CORRECTS = frozenset(("names",)), frozenset(("cases",)), frozenset(("assertion",))
_NONE = frozenset[str]()
_VERBS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("adapt", "adjust", "change", "edit", "extend", "modify", "refresh", "regenerate"), _NONE),
    **dict.fromkeys(("accept", "approve", "fix", "record", "re-record", "rerecord", "repair", "update"), _NONE),
    **dict.fromkeys(("convert", "merge", "migrate", "move", "parametrise", "parametrize", "port", "rename"), _NAMES),
    **dict.fromkeys(("replace", "rewrite", "split"), _NAMES),
    **dict.fromkeys(("delete", "drop", "remove"), _REMOVES),
    "correct": _CORRECTS,
    "skip": frozenset(("skip",)),
}
"""Verbs that ask for a change of their object, with what that may do to tests (``AskedChanges.kinds``).

Only what calls a test wrong lets a run change one that failed before, as it may show what the task is about.
"""
_MEANING: Mapping[str, frozenset[_Kind]] = {
    **dict.fromkeys(("fix", "repair"), frozenset[_Kind](("fixtures",))),
    **dict.fromkeys(("accept", "approve"), frozenset[_Kind](("data", "output"))),
    **dict.fromkeys(("record", "re-record"), frozenset[_Kind](("data",))),
}
"""Verbs that mean a change of these objects alone: who fixes a test often changes the code."""
_USUAL = frozenset[_Kind](("tests", "data", "fixtures", "path"))
_ADDING = frozenset(("add", "create", "declare", "define", "put", "register", "write"))
"""Verbs that ask for an addition to a file of settings."""
_FILES_OF_TARGETS = ("Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".justfile")
"""Where a target is added if the task does not name the file."""
_HEADS = frozenset(("case", "cases", "file", "files", "suite", "output", "outputs"))
"""Words that are an object together with the one before them."""
_EXPECTED = frozenset(("number", "numbers", "output", "outputs", "result", "results", "value", "values"))
_FILLING = frozenset(
    (
        *("a", "all", "an", "any", "both", "deprecated", "each", "existing", "its", "new", "obsolete", "old"),
        *("outdated", "stale", "the", "their", "these", "this", "those", "unit", "whole", "wrong"),
    )
)
"""Words that may stand between a verb and its object."""
_JOINING = frozenset((",", ":", "and", "with", "including", "plus"))
"""Words behind which another object of the same verb may follow."""
_STARTING = frozenset((",", ":", "\n", "and", "also", "please", "then"))
"""Words behind which a verb is in the imperative."""
_ENDING = frozenset(
    (
        *("as", "because", "but", "for", "if", "let", "lets", "make", "makes", "so", "that", "until", "when", "where"),
        *("which", "while"),
    )
)
"""Words behind which another clause, or the object of something else, begins."""
_TOWARDS = frozenset(("from", "to"))
"""Words behind which an object may be that of another verb, unless it is a path or has one of the words ``_OWN``."""
_OWN = frozenset(("its", "their"))
_THERE = _OWN | {"the", "all", "both", "existing", "old", "these", "those"}
"""Words for tests that are there."""
_BEHIND = frozenset(
    (
        *(",", ":", "\n", "accordingly", "also", "and", "as", "at", "below", "by", "for", "from", "if", "in", "into"),
        *("of", "on", "so", "that", "to", "too", "under", "where", "which", "with"),
    )
)
"""Words that may follow an object: before another one it is a part of that, or has a verb of its own."""
_FORBIDDING = re.compile(
    r"\b(?:not|never|without|except|keep|keeps|leave|untouched|unchanged|stay|remain|preserve)\b|n['’]t\b",
    re.IGNORECASE,
)
_OLD = frozenset(("outdated", "obsolete", "stale"))
_HOLDS = frozenset(("has", "have", "contains", "contain", "expects", "expect"))
_BEFORE_CLAUSE = frozenset((",", ":", "\n", "and", "as", "because", "but", "since", "so"))
_OF_CODE = re.compile(
    r"\b(?:bugs?|broken|code|crash\w*|errors?|fail\w*|flak\w*|half|if|intermittent\w*|may|might|perhaps|problems?"
    r"|random\w*|sometimes|unless|when|whenever|whether|why)\b",
    re.IGNORECASE,
)
"""Words of a sentence that may be about the code, or a condition: it does not call a test wrong."""
_MENDS_CODE = re.compile(
    r"\bbugs?\b|\bthe[ \t]code\b|\b(?:fix|mend|repair|solve)\b"
    r"(?!\s{1,8}(?:(?:it|them|this|that|the|these|those)\b\s{0,8}){0,2}(?:[.:;,!]|$|test|expect|assert))",
    re.IGNORECASE,
)
"""Words of a task in which a test that is called wrong may be right: it asks to mend the code."""
_QUOTED = re.compile(
    r"^[ \t]*(?:```|~~~)(?:.|\n)*?(?:^[ \t]*(?:```|~~~)[^\n]*$|\Z)|^[ \t]*>[^\n]*$|`[^`\n]{0,300}`"
    r"|(?<!\w)\"[^\"]{0,300}\"(?!\w)|“[^”]{0,1000}”|(?<!\w)['‘](?:[^'’]|['’](?=\w)){0,1000}['’](?!\w)",
    re.MULTILINE,
)
_REPORTING = re.compile(
    r"\b(?:claim|complain|error|log|message|output|print|read|report|sa(?:id|y)|show|warning|write|wrote)\w{0,3}\s{0,3}:",
    re.IGNORECASE,
)
"""Words behind which the text of a program or of another person follows."""
_NEVER = Globs(ALWAYS)
_LOADED = Globs(
    (
        *("conftest.py", "jest.setup.*", "vitest.setup.*", "setupTests.*", "setup-jest.*", "spec_helper.rb"),
        *("rails_helper.rb", "run_test*", "run-test*", "runtest*", "test.sh", "run.sh", "Makefile"),
    )
)
"""What decides about tests, and is none itself: a task has to name it."""
_OF_FIXTURES = Globs(("conftest.py", "fixtures", "fixture", "__fixtures__", "fixtures.*"))
_DATA = frozenset(
    (".snap", ".snapshot", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".xml", ".html", ".md", ".out", ".svg")
)


@dataclass(frozen=True, slots=True)
class AskedChanges:
    """What a task asks to change. ``paths``: files, by their path or its end, and functions of tests by their name."""

    paths: frozenset[str] = frozenset()
    objects: frozenset[_Kind] = frozenset()
    kinds: frozenset[str] = frozenset()
    """What it may do to tests there: kinds of suspicion, and "names" for other tests in their place, as many."""

    @property
    def accepted(self) -> frozenset[str]:
        """The same, with what the kind "names" accepts."""
        return self.kinds | (_REMOVES if self.kinds & _NAMES else _NONE)

    def hold(self, path: str, before: str) -> bool:
        """Whether the task asks for a change of this file. ``before``: its content before the run."""
        if _NEVER.match(path):
            return False
        if any(path == each or path.endswith(f"/{each}") for each in self.paths):
            return True
        if "fixtures" in self.objects and _OF_FIXTURES.match(path):
            return True
        if not OF_TESTS.match(path) or _LOADED.match(path):
            return False
        functions = [each for each in self.paths if each.startswith("test_") and "." not in each]
        if "tests" in self.objects or any(re.search(rf"\bdef {re.escape(each)}\b", before) for each in functions):
            return True
        is_data = PurePosixPath(path).suffix in _DATA or "expect" in path
        return is_data and bool(self.objects & {"data", "output"})


NOTHING = AskedChanges()


def asked_changes(task: str) -> AskedChanges:
    """Returns what a task asks to change of what is protected."""
    task = task[:MAX_TASK]
    if any(_FORBIDDING.search(each) and any(_objects(_tokens(each))) for each in _SENTENCE.split(task)):
        return NOTHING
    own, found = own_words(task), list[_Asked]()
    mends_code = _MENDS_CODE.search(own) is not None
    parts = [*_SENTENCE.split(own), ""]
    for sentence, end in zip(parts[::2], parts[1::2], strict=True):
        if end != "?" and not _REPORTING.search(sentence):
            tokens = _tokens(sentence)
            objects = [*_objects(tokens)]
            found += _of_imperatives(tokens, objects)
            found += () if _OF_CODE.search(sentence) else _of_states(tokens, objects, mends_code=mends_code)
    return AskedChanges(
        paths=frozenset(each.object.word for each in found if each.object.kind == "path"),
        objects=frozenset(each.object.kind for each in found),
        kinds=frozenset(kind for each in found for kind in each.kinds),
    )


def own_words(task: str) -> str:
    """Returns a task without what it quotes."""
    return _QUOTED.sub(_without_quotation, task[:MAX_TASK])


def _tokens(sentence: str) -> list[str]:
    return [*filter(None, (each.removeprefix("./").rstrip("@./+-") for each in _TOKEN.findall(sentence)))]


def _without_quotation(found: re.Match[str]) -> str:
    """Returns what takes the place of quoted text: a name stays, and a sentence ends where its quotation does."""
    inside = found[0].strip(" \t\"'`“”‘’")
    if inside and not re.search(r"\s|^>|^~~~", inside):
        return inside
    return "_" + inside[-1:] * inside.endswith((".", "!", "?"))


@dataclass(frozen=True, slots=True)
class _Object:
    """Tests, what they compare with, or a path: words ``begin`` to ``end`` of a sentence."""

    word: str
    kind: _Kind
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Asked:
    object: _Object
    kinds: frozenset[str]


def _objects(tokens: Sequence[str]) -> Iterator[_Object]:
    for at, token in enumerate(tokens):
        word, after = token.lower(), "".join(tokens[at + 1 : at + 2]).lower()
        if word == "expected" and after in _EXPECTED:
            yield _Object(word, "tests", at, at + 2)
        elif word in _KINDS:
            yield _Object(word, _KINDS[word], at, at + 1 + (after in _HEADS))
        elif len(token) <= _LONGEST and _FILE.fullmatch(token.rpartition("/")[2]):
            yield _Object(token, "path", at, at + 1)


def _of_imperatives(tokens: Sequence[str], objects: Sequence[_Object]) -> Iterator[_Asked]:
    words = [token.lower() for token in tokens]
    yield from _of_verbs(words, {each.begin: each for each in objects})
    if words[:1] and words[0] in _ADDING:
        if {"target", "targets"} & {*words[1:5]}:
            yield from (_Asked(_Object(name, "path", 0, 0), _NONE) for name in _FILES_OF_TARGETS)
        places = [at for at, (before, _) in enumerate(pairwise(words), 1) if before in ("to", "in", "into", "the")]
        yield from (
            _Asked(each, _NONE)
            for each in objects
            if each.kind == "path" and each.begin in places and not OF_TESTS.match(each.word)
        )


def _of_verbs(words: Sequence[str], objects: Mapping[int, _Object]) -> Iterator[_Asked]:
    """Yields the objects of imperatives."""
    kinds: frozenset[str] | None = None
    meant, is_near, is_towards, is_own = _USUAL, False, False, False
    for at, word in enumerate(words):
        before = words[at - 1] if at else ","
        if each := objects.get(at):
            is_theirs = each.kind == "path" or (is_own if is_towards else not _are_new(words[max(0, at - 8) : at]))
            fits = is_near and each.kind in meant and is_theirs
            if kinds is not None and fits and "".join(words[each.end : each.end + 1]) in {"", *_BEHIND}:
                yield _Asked(each, kinds)
            is_near = is_own = False
        elif before in _STARTING and word in _VERBS:
            also = kinds if kinds and before == "and" and words[at - 2] in _VERBS else _NONE
            kinds, meant = _VERBS[word] | also, _MEANING.get(word, _USUAL)
            is_near, is_towards, is_own = True, False, False
        elif word in _ENDING:
            kinds = None
        else:
            is_near, is_own = word in _JOINING or (is_near and word in _FILLING), word in _OWN
            is_towards = is_towards or word in _TOWARDS


def _are_new(before: Sequence[str]) -> bool:
    """Whether tests are to be added, by the words before them: "with tests", and not "with the tests"."""
    last = next((at for at in range(len(before) - 1, -1, -1) if before[at] not in _FILLING), 0)
    return before[last : last + 1] == ["with"] and not _THERE & {*before[last:]}


def _of_states(tokens: Sequence[str], objects: Sequence[_Object], *, mends_code: bool) -> Iterator[_Asked]:
    """Yields the objects that a clause calls included, wrong, or to be skipped. ``mends_code``: they may be right."""
    words = [token.lower() for token in tokens]
    for each in objects:
        before, behind = words[: each.begin], words[each.end :]
        if behind[:1] == ["included"]:
            yield _Asked(each, _NAMES)
        elif behind[:2] == ["be", "skipped"] and {*before[-3:]} & {"let", "should", "must"}:
            yield _Asked(each, _VERBS["skip"])
        elif _is_of_tests(each, words) and _begins_clause(before):
            if "".join(behind[2:3]) in ("", ":") and behind[:1] in (["is"], ["are"]):
                is_clear = behind[1:2] == ["wrong"] and each.kind in ("tests", "path") and each.word != "expected"
                if not mends_code and (is_clear or {*behind[1:2]} & _OLD):
                    yield _Asked(each, _CORRECTS)
            elif behind[:1] == ["still"] and {*behind[1:2]} & _HOLDS and {*behind[2:4]} & (_OLD | {"old"}):
                yield _Asked(each, _NONE)


def _is_of_tests(each: _Object, words: Sequence[str]) -> bool:
    """Whether an object is one of tests, whatever the program writes: output, or a file."""
    if each.kind == "path":
        return each.word.startswith("test_") or OF_TESTS.match(each.word)
    return each.kind != "output" and (each.word == "expected" or not words[each.end - 1].startswith("output"))


def _begins_clause(before: Sequence[str]) -> bool:
    """Whether what stands before an object is the begin of a clause, so that all of it is meant."""
    last = next((word for word in reversed(before) if word not in _FILLING), ":")
    return last in _BEFORE_CLAUSE
