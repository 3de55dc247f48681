"""A search for many patterns at once, in one pass over the text.

The worker looks for some fifty signs in every event. Python's own means take a pass for each, thirty times as long.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema


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
_NAMED = r"""[ \t]*\\?["']?[ \t]*[:=][ \t]*\\?["']?"""
"""What stands between the name of a header or a variable and its value, in headers, JSON and code."""
_AWS_SECRET = r"(?i:secret_?access_?key)"  # noqa: S105 - a name, not a value
_AWS_ID = rf"[A-Z0-9]{{16}}(?![A-Za-z0-9+/=])|[A-Z0-9]{{{_ENOUGH},}}(?={_MARK})"
_AWS_VALUE = rf"[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+])|[A-Za-z0-9/+]{{{_ENOUGH},39}}(?={_MARK})"
_AUTHORIZATION = r"(?i:authorization)"
_AUTHORIZED = (
    rf"{_AUTHORIZATION}{_NAMED}(?:(?P<scheme>[A-Za-z][A-Za-z0-9-]{{0,20}}) +)?(?P<secret>[A-Za-z0-9._~+/=:-]{{8,}})"
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
        text = pattern.sub(
            lambda found, is_secret=is_secret: _replaced(found, mask) if is_secret(found) else found[0], text
        )
    return _without_keys(text, mask)


def _replaced(found: re.Match[str], mask: str) -> str:
    begin, end = (place - found.start() for place in found.span("secret"))
    return found[0][:begin] + mask + found[0][end:]


IsSecret = Callable[[re.Match[str]], bool]


@cache
def _shapes() -> list[tuple[re.Pattern[str], IsSecret]]:
    prefixed = [
        f"(?P<secret>{prefix}(?:[{characters}]{{{least},}}|[{characters}]{{{_ENOUGH},}}{_CUT}))"
        for prefix, characters, least in _PREFIXED
    ]
    shapes: list[tuple[str, IsSecret]] = [
        *((pattern, _is_no_placeholder) for pattern in prefixed),
        (
            rf"(?:(?<![A-Za-z0-9+/])|(?<=\\[nrt]))(?P<secret>A[KS]IA(?:{_AWS_ID}))",
            _is_no_placeholder,
        ),
        (
            rf"{_AWS_SECRET}{_NAMED}(?P<secret>{_AWS_VALUE})",
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
    if (found["scheme"] or "").lower() == "basic":
        return _is_pair(secret)
    return len(set(secret)) >= _DISTINCT and (len(secret) >= 2 * _ENOUGH or any(map(str.isdigit, secret)))


def _is_pair(secret: str) -> bool:
    """Returns whether this is ``user:password`` in base64."""
    try:
        return b":" in b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except NotBase64:
        return False


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
