"""The unfinished credential at the end of live text, which is held back until it is complete and can be masked."""

from __future__ import annotations

import re

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
