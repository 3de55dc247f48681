"""Secrets in texts: known values and credentials of known shapes are masked.

In live text the unfinished credential at its end is held back until it is complete.
"""

from __future__ import annotations

import base64
import html
import json
import re
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from urllib.parse import quote, quote_plus

from pydantic_core import SchemaError, SchemaValidator, core_schema

from .text import mapped

LONGEST = 4096
"""Characters of a token that are held back at most."""
LONGEST_BLOCK = 16_384
"""The same for a private key."""
_BLOCK = "-----BEGIN "
_STARTS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-", "hooks.slack.com/"),
    *("AIza", "sk_live_", "rk_live_", "npm_", "pypi-AgE", "hf_", "AKIA", "ASIA", "eyJ", "://"),
)
_START = re.compile("|".join(map(re.escape, _STARTS)))
_NAMES = ("authorization", "secret_access_key", "secretaccesskey")
_NAMED = re.compile(
    r"""(?:authorization[\s"'\\:=]*(?:[a-z][a-z0-9-]*\ +)?[^\s"']*
    |secret_?access_?key[\s"'\\:=]*[a-z0-9/+]*)\Z""",
    re.VERBOSE,
)
_BEGINNINGS = frozenset(start[:length] for start in (*_STARTS, *_NAMES, _BLOCK) for length in range(1, len(start) + 1))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))
_SURE = 3
"""Characters from which the beginning of a credential counts inside of a word as well."""
_DELIMITERS = (*" \t\n\r\"'`<>,;(){}[]",)
_NAME_AND_SCHEME = 64


def partial_credential(text: str) -> int:
    """Returns how many characters at the text's end may be the beginning of a credential that goes on after it."""
    if (block := text.rfind(_BLOCK)) >= 0 and (length := _open_block(text[block:])):
        return length
    tail = text[-LONGEST:]
    word = tail[max(map(tail.rfind, _DELIMITERS)) + 1 :]
    start = _START.search(word)
    held = len(word) - start.start() if start else _open_beginning(word.lower(), word)
    line = tail[-_NAME_AND_SCHEME - len(word) :].lower()
    if ("authorization" in line or "access" in line) and (named := _NAMED.search(line)):
        held = max(held, len(line) - named.start())
    return held


def _open_block(block: str) -> int:
    """Returns the length of a private key's block without its end."""
    kind = block[len(_BLOCK) :].partition("-")[0]
    may_be_key = "PRIVATE KEY" in kind or "-" not in block[len(_BLOCK) :]
    is_open = may_be_key and "-----END" not in block and len(block) <= LONGEST_BLOCK
    return len(block) if is_open else 0


def _open_beginning(folded: str, word: str) -> int:
    """Returns the length of a credential's beginning at the word's end; a short one has to begin the word."""
    for length in range(min(len(word), _LONGEST_BEGINNING), 0, -1):
        at = len(word) - length
        if word[at:] in _BEGINNINGS or folded[at:] in _BEGINNINGS:
            is_sure = length >= _SURE or at == 0 or not word[at - 1].isalnum() or word[at] == ":"
            return length if is_sure else 0
    return 0


MASK = "***"
MIN_SECRET = 8
"""Characters. A shorter value could be an ordinary word, and masking it would garble text."""
PIECE = 16
"""Characters of one secret in a row that are masked as well: the secret was truncated."""
SHORTEST_CUT = 6
"""Characters of a secret that are masked where a text was cut, or ends; a shorter piece may be of any word."""
ENCODED_START = 4
"""Characters at a text's end that may be the beginning of an encoded secret."""
CUT_MARKS = ("…", "...", "\n[…", "\n<system_hint")
"""Truncation marks; the beginning of a secret before one of them is masked even if it is short."""


class SecretMask:
    """Replaces secret values by ``***``: as they are, escaped for JSON, URLs, HTML and Python, in base64 and in hex.

    A piece of at least PIECE characters counts as the secret, and so does its beginning where a text ends or was
    cut, and its end where a text begins: cutting and masking may then happen in either order. Other credentials are
    masked where their shape is known.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values: dict[str, _Value] = {}
        self._forms: list[str] = []
        self._has_sign = search_for_any(())
        """A fast pre-check: false means that the text contains neither a value nor a piece of one."""
        self._json_has_sign = self._has_sign
        self._has_shape = search_for_shapes()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Masks these values as well; those shorter than MIN_SECRET characters are left alone."""
        new = [secret for secret in secrets if len(secret) >= MIN_SECRET and secret not in self._values]
        if not new:
            return
        self._values |= {secret: _Value.of(secret) for secret in new}
        encoded = {form for value in self._values for form in _forms(value)}
        self._forms = sorted(encoded, key=len, reverse=True)  # the longest first: one secret may be a part of another
        encoded -= self._values.keys()
        self._has_sign = search_for_any({g for value in self._values.values() for g in value.grams.values()} | encoded)
        grams = {gram for value in self._values for gram in _Value.of(_escaped(value)).grams.values()}
        self._json_has_sign = search_for_any(grams | set(map(_escaped, encoded)))

    def text(self, text: str) -> str:
        """Returns the text without any secret."""
        if self._has_sign(text):
            for form in self._forms:
                if form in text:
                    text = text.replace(form, MASK)
            for value in self._values.values():
                text = value.removed(text)
        return without_shapes(text, MASK) if self._has_shape(text) else text

    def json(self, text: str) -> str:
        """Returns JSON text without any secret in its strings and keys; it stays valid JSON."""
        if not self._json_has_sign(text) and not self._has_shape(text):
            return text
        return json.dumps(mapped(json.loads(text), self.text, keys=True), ensure_ascii=False)

    def open_end(self, text: str) -> int:
        """Returns how many characters at the text's end may be the beginning of a secret that goes on after it."""
        longest = partial_credential(text)
        for form in self._forms:
            # An encoded secret begins with characters that any word may end with, so a longer piece is required.
            least = 1 if form in self._values else ENCODED_START
            at = text.find(form[:least], max(0, len(text) - len(form) + 1))
            while at >= 0 and not form.startswith(text[at:]):
                at = text.find(form[:least], at + 1)
            if at >= 0:
                longest = max(longest, len(text) - at)
        return longest


@dataclass(frozen=True, slots=True)
class _Value:
    """One secret, and the n-grams by which pieces of it are found: each piece contains at least one of them."""

    secret: str
    piece: int
    grams: dict[int, str]
    """N-grams by their position in the secret."""

    @classmethod
    def of(cls, secret: str) -> _Value:
        piece = min(PIECE, max(MIN_SECRET, len(secret) * 2 // 3))
        size = piece // 2
        starts = {*range(0, len(secret) - size + 1, size), len(secret) - size}
        return cls(secret, piece, {start: secret[start : start + size] for start in sorted(starts)})

    def removed(self, text: str) -> str:
        """Returns the text with every piece of the secret masked."""
        spans = sorted({span for start, gram in self.grams.items() for span in self._found(text, start, gram)})
        kept, done = list[str](), 0
        for begin, end in spans:
            if begin >= done:
                kept += [text[done:begin], MASK]
            done = max(done, end)
        return "".join([*kept, text[done:]]) if spans else text

    def _found(self, text: str, start: int, gram: str) -> Iterator[tuple[int, int]]:
        at = text.find(gram)
        while at >= 0:
            begin, end = self._grown(text, at, start, len(gram))
            first = start - (at - begin)
            if self._counts(text, begin, end, first):
                yield begin, end
            at = text.find(gram, end)

    def _grown(self, text: str, at: int, start: int, size: int) -> tuple[int, int]:
        """Returns the range around this position in which text and secret agree."""
        begin, first = at, start
        while begin and first and text[begin - 1] == self.secret[first - 1]:
            begin, first = begin - 1, first - 1
        end, last = at + size, start + size
        while end < len(text) and last < len(self.secret) and text[end] == self.secret[last]:
            end, last = end + 1, last + 1
        return begin, end

    def _counts(self, text: str, begin: int, end: int, first: int) -> bool:
        length = end - begin
        if length >= self.piece:
            return True
        if length < SHORTEST_CUT:
            return False
        cut_after = first == 0 and (end == len(text) or text.startswith(CUT_MARKS, end))
        cut_before = first + length == len(self.secret) and (begin == 0 or text.endswith("…]\n", 0, begin))
        return cut_after or cut_before


def _forms(secret: str) -> set[str]:
    """Returns the secret as it is and in common encodings."""
    raw = secret.encode("utf-8", "surrogateescape")
    escaped = {_escaped(secret), json.dumps(secret)[1:-1], html.escape(secret), repr(secret)[1:-1]}
    in_urls = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    encoded = {raw.hex(), raw.hex().upper(), *_base64(raw)}
    return {secret, *escaped, *map(_escaped, escaped), *in_urls, *encoded}


def _base64(raw: bytes) -> Iterator[str]:
    """Yields the base64 characters of these bytes for each alignment inside a longer text."""
    for before in range(3):
        padded = bytes(before) + raw
        first, last = -(-before * 8 // 6), len(padded) * 8 // 6
        yield base64.b64encode(padded).decode()[first:last]
        yield base64.urlsafe_b64encode(padded).decode()[first:last]


def _escaped(text: str) -> str:
    """Returns the text as escaped inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def search_for_any(literals: Iterable[str]) -> Callable[[str], bool]:
    """Returns a function that returns whether a text contains one of the literals."""
    wanted = tuple(sorted(literals))
    return _search_for_literals(wanted) if wanted else lambda _: False


@lru_cache(32)  # the runs of a process have the same secrets
def _search_for_literals(literals: tuple[str, ...]) -> Callable[[str], bool]:
    try:
        return search_for_pattern("|".join(map(_quoted, literals)))
    except SchemaError:  # too large for one expression
        return lambda text: any(map(text.__contains__, literals))


def search_for_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns a function that returns whether a pattern, in the syntax of Rust's ``regex``, occurs in a text.

    A text with lone surrogates, which that engine cannot read, counts as one in which it occurs.
    """
    search = SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    return lambda text: search(text) or not (text.isascii() or _encodable(text))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(literal: str) -> str:
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in literal)


_MARK = r"(?:…|\.\.\.|(?:\n|\\n)(?:\[…|<system_hint))"
"""What follows where a text was cut, also inside JSON."""
_CUT = rf"(?={_MARK}|\Z)"
"""Where a text ends or was cut; what stands before it may be the beginning of a credential."""
_ENOUGH = 8
"""Characters after the prefix of a credential that was cut."""
_OUTSIDE_ID = r"(?<!prm_[0-9a-z]{26}_)"
"""After a prefix: it is not a part of a permission request's id, which may have any, as in ``prm_…ghp_0badc0de``."""
_NO_WORD = rf"(?![a-z]+{_CUT})"
"""After a prefix: lower-case letters up to the end are a word, as in the name ``npm_dependencies``."""
_DISTINCT = 6
"""Different characters that a placeholder does not have: ``xxxx``, ``1234``."""

_PREFIXED = (
    (r"sk-ant-", "A-Za-z0-9_-", 20),  # Anthropic
    (r"sk-[A-Za-z0-9_-]{0,200}T3BlbkFJ", "A-Za-z0-9_-", 16),  # OpenAI: its keys have this in the middle
    (r"sk-or-v1-", "a-f0-9", 32),  # OpenRouter
    (r"gh[pousr]_", "A-Za-z0-9", 30),  # GitHub
    (r"github_pat_", "A-Za-z0-9_", 22),
    (r"glpat-", "A-Za-z0-9_-", 20),  # GitLab
    (r"xox[abeoprs]-", "A-Za-z0-9-", 16),  # Slack
    (r"xapp-\d-", "A-Za-z0-9-", 16),
    (r"hooks\.slack\.com/services/T", "A-Za-z0-9/", 20),
    (r"AIza", "A-Za-z0-9_-", 35),  # Google
    (r"[rs]k_live_", "A-Za-z0-9", 16),  # Stripe
    (r"npm_", "A-Za-z0-9", 36),
    (r"pypi-AgE", "A-Za-z0-9_-", 50),
    (r"hf_", "A-Za-z", 30),  # Hugging Face
)
"""The prefix, the characters that follow it, and how many of them there are at least."""
_ASSIGNED = r"""[ \t]*\\?["']?[ \t]*[:=][ \t]*\\?["']?"""
"""What stands between the name of a header or a variable and its value, in headers, JSON and code."""
_AWS_SECRET = r"(?i:secret_?access_?key)"  # noqa: S105 - a name, not a value
_AWS_ID = rf"[A-Z0-9]{{16}}(?![A-Za-z0-9+/=])|[A-Z0-9]{{{_ENOUGH},}}(?={_MARK})"
_AWS_VALUE = rf"[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+])|[A-Za-z0-9/+]{{{_ENOUGH},39}}(?={_MARK})"
_AUTHORIZATION = r"(?i:authorization)"
_AUTHORIZED = (
    rf"{_AUTHORIZATION}{_ASSIGNED}(?:(?P<scheme>[A-Za-z][A-Za-z0-9-]{{0,20}}) +)?(?P<secret>[A-Za-z0-9._~+/=:-]{{8,}})"
)
_PASSWORD = r"""[^\s/@"'<>$\{\}]{3,200}"""  # noqa: S105 - a shape
_CREDENTIALS = rf"""://(?P<user>[^\s/@:"'<>]{{0,100}}):(?P<password>{_PASSWORD})@"""
_BEGUN_CREDENTIALS = rf"""://[^\s/@:"'<>]{{0,100}}:(?!\d{{1,5}}{_MARK})(?P<secret>{_PASSWORD})(?={_MARK})"""
"""A URL that was cut before the host; digits are its port."""
_PLACEHOLDER = re.compile(r"[A-Z_]+|pass(?:word|wd|phrase)?|pwd|pw|secret|token|key|user|guest|\W+")

_QUICK = (
    *(f"{prefix}[{characters}]{{{_ENOUGH}}}" for prefix, characters, _ in _PREFIXED),
    r"A[KS]IA[A-Z0-9]{8}",
    rf"{_AWS_SECRET}[\s\\\x22']*[:=]",
    r"eyJ[A-Za-z0-9_-]+\.eyJ",
    rf"{_AUTHORIZATION}[\s\\\x22']*[:=]",
    _CREDENTIALS,
    rf":{_PASSWORD}{_MARK}",
    "PRIVATE KEY",
)

_BEFORE_LINE = r"(?:\\[nrt]|[\s+>|-]|\d{1,6}[\t:|→])*+"
"""Between the lines of a private key there is also what JSON, diffs and listings put there."""
_KEY_LINE = re.compile(
    rf"{_BEFORE_LINE}(?:[A-Z][A-Za-z-]+: [^\n\\]{{0,100}}|"
    rf"(?P<key>[A-Za-z0-9+/=]{{16,}}|[A-Za-z0-9+/=]{{1,15}}(?={_BEFORE_LINE}END)))"
)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")


@cache  # it takes milliseconds, which every start would wait for
def search_for_shapes() -> Callable[[str], bool]:
    """Returns a function that returns whether a text may hold a credential of a known shape, also inside JSON."""
    return search_for_pattern("|".join(_QUICK))


def without_shapes(text: str, mask: str) -> str:
    """Returns the text with every credential of a known shape replaced."""
    for pattern, is_secret in _shapes():
        kept, done = list[str](), 0
        for found in filter(is_secret, pattern.finditer(text)):
            kept += [text[done : found.start("secret")], mask]
            done = found.end("secret")
        text = "".join([*kept, text[done:]])
    return _without_keys(text, mask)


IsSecret = Callable[[re.Match[str]], bool]


@cache
def _shapes() -> list[tuple[re.Pattern[str], IsSecret]]:
    prefixed = [
        f"(?P<secret>{prefix}{_OUTSIDE_ID}(?:[{characters}]{{{least},}}|{_NO_WORD}[{characters}]{{{_ENOUGH},}}{_CUT}))"
        for prefix, characters, least in _PREFIXED
    ]
    shapes: list[tuple[str, IsSecret]] = [
        *((pattern, _is_no_placeholder) for pattern in prefixed),
        (
            rf"(?:(?<![A-Za-z0-9+/])|(?<=\\[nrt]))(?P<secret>A[KS]IA(?:{_AWS_ID}))",
            _is_no_placeholder,
        ),
        (
            rf"{_AWS_SECRET}{_ASSIGNED}(?P<secret>{_AWS_VALUE})",
            _is_no_placeholder,
        ),
        (
            r"eyJ[A-Za-z0-9_-]{8,}\.(?P<secret>eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?)",
            _is_no_placeholder,
        ),
        (_AUTHORIZED, _authorizes),
        (_CREDENTIALS.replace("password", "secret"), _is_password),
        (_BEGUN_CREDENTIALS, _is_password),
    ]
    return [(re.compile(pattern), is_secret) for pattern, is_secret in shapes]


def _is_no_placeholder(found: re.Match[str]) -> bool:
    # The prefix is the same for all, so it does not count.
    return len(set(found["secret"][-3 * _ENOUGH :])) >= _DISTINCT and "EXAMPLE" not in found["secret"].upper()


def _is_password(found: re.Match[str]) -> bool:
    return not _PLACEHOLDER.fullmatch(found["secret"])


def _authorizes(found: re.Match[str]) -> bool:
    secret = found["secret"]
    if (found["scheme"] or "").lower() == "basic":  # the value is ``user:password`` in base64
        try:
            return b":" in base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
        except NotBase64:
            return False
    return len(set(secret)) >= _DISTINCT and (len(secret) >= 2 * _ENOUGH or any(map(str.isdigit, secret)))


def _without_keys(text: str, mask: str) -> str:
    """Masks the lines of private keys one by one: a diff keeps its number of lines."""
    kept, done = list[str](), 0
    for begin in _BEGIN.finditer(text):
        at = max(done, begin.end())
        while (line := _KEY_LINE.match(text, at)) is not None:
            if line["key"]:
                kept += [text[done : line.start("key")], mask]
                done = line.end("key")
            at = line.end()
    return "".join([*kept, text[done:]])
