"""Token estimates without a network: OpenAI's o200k encoding from a vendored file, times what Claude bills for it."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from threading import Lock

import tiktoken

CHECKSUM = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""SHA-256 of the unpacked encoding file, the one tiktoken itself checks for ``o200k_base``."""

CLAUDE_RATIO = 1.5
"""What Claude's tokenizer counts over o200k on English and code; learned anew from every answer's usage."""

PIECE = 100_000
"""Characters that are encoded at once."""
_PANIC = "pyo3_runtime"
"""Where the exception of an encoder that panicked comes from: it is no ``Exception``, and no handler would see it."""

_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)


def encoding_file() -> bytes:
    """The vendored encoding, unpacked."""
    return gzip.decompress(files("shared").joinpath("data", "o200k_base.tiktoken.gz").read_bytes())


_loading = Lock()


def _encoding() -> tiktoken.Encoding:
    with _loading:  # threads that need it at the same time would each spend a second on it
        return _loaded()


@cache
def _loaded() -> tiktoken.Encoding:
    data = encoding_file()
    if sha256(data).hexdigest() != CHECKSUM:
        raise RuntimeError("shared/data/o200k_base.tiktoken.gz is damaged: its checksum is wrong. Install again.")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})


def count(text: str) -> int:
    """Tokens of ``text`` in o200k. Text that looks like a special token is counted as plain text.

    Counted in pieces, which adds a token or two for each: the encoder's time and stack grow faster than a text that
    is one long word or one long gap, and at a million blanks it panics.
    """
    return sum(_tokens(text[start : start + PIECE]) for start in range(0, len(text), PIECE))


def _tokens(piece: str) -> int:
    try:
        return len(_encoding().encode_ordinary(piece))
    except BaseException as error:
        if type(error).__module__ != _PANIC:
            raise
        return len(piece.encode("utf-8", "replace"))  # more it cannot be


def estimate(text: str, ratio: float = CLAUDE_RATIO) -> int:
    """About how many tokens Claude will bill for ``text``."""
    return round(count(text) * ratio)
