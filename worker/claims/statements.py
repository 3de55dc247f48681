"""What a summary states: files that were changed, commands that were executed, tests that passed.

Only plain English sentences are read, word by word. What is not understood is left out, because a statement that is
read wrongly would accuse an honest agent.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Literal, NamedTuple

from ...shared.text import shortened
from ..sandbox.environment import MOUNT

MAX_STATEMENTS = 50
MAX_WORDS = 160
MAX_SENTENCES = 250
MAX_CHARS = 1000
"""Of a sentence."""
MAX_GAP = 16
"""Words between a verb and its file."""


def _read(text: str) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        name, _, words = line.partition(": ")
        found[name] += words.split()
    return {name: frozenset(words) for name, words in found.items()}


WORDS = _read(Path(__file__).with_name("english.txt").read_text("utf-8"))
CHANGED, INTO, IN, ARTICLE = WORDS["changed"], WORDS["into"], WORDS["in"], WORDS["article"]
_TOKEN = r"`([^`\n]{1,300})`|([\w~./@][\w./@+~-]*(?:'\w+)?)(?::\d+(?:-\d+)?)?|([^\s\w])"  # noqa: S105
_BULLET = r"^(?:[-*•+|✓✔✅☑]|\d{1,3}[.)]|\[[xX]\])\s+"
_OTHER_SCRIPT = r"[\u0370-\u1fff\u3040-\ud7ff]{2}"
_NAME = "|".join(map(re.escape, WORDS["filename"])) + rf"|[\w@.+~-]*\w\.(?:{'|'.join(WORDS['extension'])})"
_PATH = rf"(?!/|~|\.\./|.*\.git/)(?:[\w@.+~-]+/)*(?:{_NAME})"
_NO_PATH = (  # names of products, and attributes
    r"(?i)(?:node|next|nuxt|vue|react|express|three|d3|chart|moment|day|discord|ember|angular|p5|alpine|nest)\.js|"
    r"(?:self|this|cls|response|res|resp|req|request|r|document|window|math|np|pd)\.\w+"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """``subject`` is the file or the command; ``own``: the agent names itself, so that it reports no older changes."""

    kind: Literal["file", "command", "testing", "tests", "work"]
    words: str
    subject: str = ""
    verb: str = ""
    own: bool = False
    scope: Literal["", "whole", "part"] = ""
    number: int | None = None
    """How many tests passed."""


class Token(NamedTuple):
    """A word in small letters, or code, perhaps a path, or a punctuation mark."""

    word: str
    code: str
    path: str
    sign: str
    start: int
    end: int


_END = Token("", "", "", ".", 0, 0)


def statements(summary: str, task: str = "") -> list[Statement]:
    """Returns the first statements, each once. Sentences that stand in the ``task`` are quotations.

    A file about which another sentence has doubts, or the next one of its paragraph any, is none.
    """
    found: dict[Statement, None] = {}
    doubtful: set[str] = set()
    before: dict[Statement, None] = {}
    for text, listed, is_first in islice(_sentences(summary), MAX_SENTENCES):
        sentence = _Sentence(text)
        if sentence.doubts:
            doubtful |= sentence.paths if is_first else {each.subject for each in before} | sentence.paths
        before = dict.fromkeys(sentence.statements(listed=listed and is_first))
        if before and (len(text) < 20 or text not in task):
            found |= before
        if len(found) >= MAX_STATEMENTS:
            break
    return [*islice((each for each in found if not each.subject or each.subject not in doubtful), MAX_STATEMENTS)]


def _sentences(summary: str) -> Iterator[tuple[str, bool, bool]]:
    """Yields the sentences; whether each is below a heading such as ``Files changed:``, and the first of its line."""
    heading = skipped = False
    for line in _lines(summary):
        text = re.sub(_BULLET, "", line.lstrip("#").strip(), count=1)
        words = set(re.findall(r"[\w'-]+", text.lower()))
        if line.startswith("#") or text.endswith(":"):
            skipped = bool(words & WORDS["skipped"])
            heading = bool(words & CHANGED) and words <= WORDS["heading"] | CHANGED
        elif not (skipped or len(words & WORDS["foreign"]) > 1 or re.search(_OTHER_SCRIPT, text)):
            for number, each in enumerate(re.split(r"(?<=[.!?;])\s+", text)):
                yield each, heading and text != line, not number


def _lines(summary: str) -> Iterator[str]:
    """Yields the lines without code and quotations, joined where a sentence goes on in the next one."""
    fenced, held = False, ""
    for line in [*summary.split("\n", MAX_SENTENCES)[:MAX_SENTENCES], ""]:
        text = line.strip().replace("**", "").replace("’", "'")
        if text.startswith(("```", "~~~")):
            fenced, text = not fenced, ""
        if fenced or text.startswith((">", "[ ]", "- [ ]", "* [ ]")):
            text = ""
        if held and re.match(r"[a-z(`]", text) and not held.endswith((":", ".", "|")):
            held += f" {text}"
        else:
            yield held
            held = text


def _token(found: re.Match[str]) -> Token:
    code, word, sign = found.groups("")
    if sign or not ("." in word or "/" in word or code or word in WORDS["filename"]):
        return Token(word.lower(), "", "", sign, found.start(), found.end())
    word = word.rstrip(".-/")
    raw = re.sub(r":\d[\d:,-]*$|#L\d.*$", "", code or word).removeprefix(MOUNT + "/").removeprefix("./")
    path = raw if re.fullmatch(_PATH, raw) and not re.fullmatch(_NO_PATH, raw) else ""
    end = found.end() if code else found.start() + len(word)
    return Token("" if path or code else word.lower(), code, path, "" if code or word else ".", found.start(), end)


class _Sentence:
    """One sentence, or one item of a list."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [_token(found) for found in re.finditer(_TOKEN, text[:MAX_CHARS]) if found[0] not in '"*[]“”']
        self._words = [token.word for token in self._tokens]
        self.paths = {token.path for token in self._tokens if token.path}
        words = {"not" if word.endswith("n't") else word for word in self._words}
        self._has_result = words.isdisjoint(WORDS["no_result"] | WORDS["doubt"] | WORDS["modal"] - {"no", "without"})
        self._is_certain = words.isdisjoint(WORDS["doubt"])
        self.doubts = not self._is_certain or not words.isdisjoint(WORDS["denial"])
        self._own = self._active = self._at(0).word in WORDS["subject"]

    def _at(self, index: int) -> Token:
        return self._tokens[index] if 0 <= index < len(self._tokens) else _END

    def _skip(self, at: int, words: frozenset[str]) -> int:
        return at + sum(1 for _ in takewhile(words.__contains__, self._words[at:]))

    def _quoted(self, first: int, last: int) -> str:
        last = min(last, len(self._tokens) - 1)
        return shortened(self._text[self._at(first).start : self._at(last).end], MAX_WORDS)

    def statements(self, *, listed: bool) -> Iterator[Statement]:
        if self._has_result:
            yield from self._tests()
        if not self._is_certain:
            return
        yield from self._labelled(listed=listed)
        for at, word in enumerate(self._words):
            if word in WORDS["modal"] or word.endswith("n't"):
                return
            if word in CHANGED and self._is_own(at):
                yield from self._changed(at)
            elif word in WORDS["ran"] and self._is_own(at):
                yield from self._ran(at)

    def _is_own(self, at: int) -> bool:
        """Returns whether the verb's subject is the agent: named, left out, or that of the verb before."""
        while at and self._words[at - 1] in WORDS["adverb"]:
            at -= 1
        before = self._at(at - 1)
        if before is _END or before.word in WORDS["subject"] or (at == 2 and self._words[0] in WORDS["label"]):
            self._own, self._active = before.word in WORDS["subject"], True
            return True
        joined = before.word == "and" or before.sign == ","
        return self._active and joined and WORDS["others"].isdisjoint(self._words[:at])

    def _files(self, places: Sequence[int], first: int, last: int, verb: str) -> Iterator[Statement]:
        for at in places:
            yield Statement("file", self._quoted(first, max(at, last)), self._at(at).path, verb, self._own)

    def _paths(self, first: int) -> list[int]:
        """Returns where the paths stand that are listed from there on; without one that begins another clause."""
        found, at = [first], first + 1
        while self._at(at).sign in (",", "&", "") and self._at(at) is not _END:
            after = at + 1 if self._at(at).sign else at
            after = self._skip(self._skip(after, frozenset({"and", "plus"})), ARTICLE)
            if after == at or not self._at(after).path:
                break
            found.append(after)
            at = after + 1
        odd = not self._at(at).sign and self._at(at).word not in WORDS["after"]
        is_adjective = odd and "." not in self._at(found[-1]).path  # "a LICENSE header"
        return found[:-1] if is_adjective or (odd and len(found) > 1) else found

    def _ends(self, at: int) -> bool:
        """Returns whether nothing follows that may be about the time or another author."""
        return not self._at(at).word or self._at(at).word in ("to", "so", "with", "and", "accordingly", "too", "again")

    def _labelled(self, *, listed: bool) -> Iterator[Statement]:
        """Yields ``FILE: changed …``, ``FILE was changed`` and ``Files changed: FILE``."""
        head = next((at for at, token in enumerate(self._tokens[:8]) if token.sign == ":"), 0)
        named = {*self._words[:head]}
        if named & CHANGED and named <= WORDS["heading"] | CHANGED and self._at(head + 1).path:
            yield from self._files(self._paths(head + 1), 0, 0, next(word for word in self._words if word in CHANGED))
        first = self._skip(0, ARTICLE)
        paths = self._paths(first) if self._at(first).path else []
        if not paths:
            return
        end = paths[-1] + 1
        label = self._at(end).sign in (*":-–—(|",)
        verb_at = self._skip(end + label, WORDS["adverb"])
        verb = self._at(verb_at).word
        passive = not {"was", "were", "been"}.isdisjoint(self._words[end:verb_at])
        is_story = self._at(verb_at + 1).word in WORDS["story"] or (passive and not self._ends(verb_at + 1))
        if listed or (verb in CHANGED and (label or passive) and not is_story) or (label and verb == "new"):
            yield from self._files(paths, first, verb_at if verb in CHANGED else 0, verb)

    def _changed(self, verb_at: int) -> Iterator[Statement]:
        verb = self._words[verb_at]
        ahead = range(verb_at + 1, min(verb_at + MAX_GAP, len(self._tokens)))
        first = next((at for at in ahead if self._tokens[at].path), None)
        if first is None:
            near = self._words[verb_at + 1 : verb_at + 9]
            if not WORDS["work"].isdisjoint(near) and WORDS["aside"].isdisjoint(self._words):
                yield Statement("work", self._quoted(verb_at, len(self._tokens) - 1))
        elif self._is_object(verb, self._tokens[verb_at + 1 : first], self._tokens[first].path):
            paths = self._paths(first)
            after = paths[-1] + 1 if paths else first
            target = self._skip(after + 1, ARTICLE)
            if self._at(after).word in INTO | IN and self._at(target).path:
                paths = [target]  # "added A to B" changes B
            elif verb == "added" and self._at(after).word in INTO and target > after + 1:
                paths = []  # "added A to the list"
            yield from self._files(paths, verb_at, 0, verb)

    def _is_object(self, verb: str, between: Sequence[Token], path: str) -> bool:
        """Returns whether the verb's change is in that file, by the words between them."""
        words = [token.word for token in between]
        while words and words[-1] in ARTICLE:
            words.pop()
        last, rest = (words[-1] if words else ""), words[:-1]
        odd = any(token.sign not in ("", "'", ">", "<", "=", "-") for token in between)
        if odd or any(word in WORDS["stop"] or word.endswith("ing") for word in rest if word != "following"):
            return False
        if verb in WORDS["fixed"] and ("test" in path or not WORDS["failing"].isdisjoint(words)):
            return False  # a test is fixed by a change of what it tests
        if last in INTO:
            return rest != [] and rest[-1] not in WORDS["link"]
        if last in IN:
            described = verb == "implemented" and path.endswith((".md", ".txt", ".rst"))
            return rest != [] and not described and {"for", "of"}.isdisjoint(rest)
        if last == "from":
            return verb in WORDS["gone"]
        others = WORDS["stop"] | INTO | IN | {"for", "of", "and", "as"}
        return verb not in WORDS["no_object"] and others.isdisjoint(words) and not last.endswith("ing")

    def _ran(self, verb_at: int) -> Iterator[Statement]:
        for at in range(verb_at + 1, min(verb_at + 7, len(self._tokens))):
            token = self._tokens[at]
            if token.word in WORDS["tests"] and self._at(at + 1).word not in ("file", "script", "command", "runner"):
                yield Statement("testing", self._quoted(verb_at, at), own=self._own)
                return
            if token.code and (token.code in WORDS["program"] or re.match(r"[\w./-]+ [^<…]+$", token.code)):
                yield Statement("command", self._quoted(verb_at, at), token.code, own=self._own)
            if token.code or token.sign or token.path:
                return

    def _tests(self) -> Iterator[Statement]:
        for at, token in enumerate(self._tokens):
            following = self._words[at + 1 : at + 6]
            if (token.word in WORDS["tests"] or "test" in token.code) and (end := self._passed(at + 1)):
                yield from self._of_tests(at, end)
            elif token.word.isdecimal() and following[:1] == ["passed"] and self._is_total(at):
                yield Statement("tests", self._quoted(at, at + 1), number=int(token.word[:9]))
            elif token.word in WORDS["pass"] and {*following[:2]} & WORDS["whole"] and {*following} & WORDS["tests"]:
                yield Statement("tests", self._quoted(at, at + 3), scope="whole")

    def _is_total(self, at: int) -> bool:
        """Returns whether a number of what passed is one of tests, and not of persons."""
        about_tests = not WORDS["tests"].isdisjoint(self._words) or any(token.code for token in self._tokens)
        timed = self._at(at + 2).word == "in" and self._at(at + 3).word[:1].isdecimal()
        return timed or (about_tests and self._at(at + 2).word in ("", "and"))

    def _passed(self, at: int) -> int:
        """Returns where the verb stands with which tests pass; 0 if there is none."""
        if self._at(at).word in ("in", "for", "of", "under"):
            at = next((each for each in range(at, at + 6) if self._at(each).word in WORDS["pass"]), at)
        if self._at(at).sign == "(":
            at = 1 + next((each for each in range(at, at + 6) if self._at(each).sign == ")"), at)
        at = self._skip(at + (self._at(at).sign == ":"), WORDS["adverb"] | {"is", "are"})
        after = self._at(at + 1)
        takes_object = after.code or after.path or after.word in ("a", "an", "the", "it", "them", "its", "through")
        return at if self._at(at).word in WORDS["pass"] and not takes_object else 0

    def _of_tests(self, noun: int, verb: int) -> Iterator[Statement]:
        before = WORDS["part"] | WORDS["whole"] | WORDS["tests"] | {"the", "of"}
        first = noun
        while first and (self._words[first - 1] in before or self._words[first - 1].isdecimal()):
            first -= 1
        words = {*self._words[first:verb]}
        if self._at(noun + 1).word in WORDS["tests"] or (first and self._words[first - 1] == "no"):
            return
        number = next((int(word[:9]) for word in words if word.isdecimal()), None)
        code = self._tokens[noun].code
        is_command = " " in code or code in WORDS["program"]
        part = (
            words & (WORDS["part"] | {"in", "for", "under"}) or self._words[noun] == "test" or (code and not is_command)
        )
        scope = "part" if part else "whole" if words & WORDS["whole"] else ""
        yield Statement("tests", self._quoted(first, verb), scope=scope, number=number)
