"""Offline token bounds: OpenAI's o200k encoding from a vendored file, times Claude's largest ratio to it."""

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

CLAUDE_RATIO = 2
"""Claude counts 1.2 to 1.9 times as many tokens as o200k."""

PIECE = 100_000
"""Characters that are encoded per call."""

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
    """Returns the vendored encoding, unpacked."""
    return gzip.decompress(files("deputize.shared").joinpath("data", "o200k_base.tiktoken.gz").read_bytes())


_loading = Lock()


def _encoding() -> tiktoken.Encoding:
    with _loading:  # threads that need it at the same time would each spend a second on it
        return _loaded()


@cache
def _loaded() -> tiktoken.Encoding:
    ranks = _ranks(encoding_file())
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})


def _ranks(data: bytes) -> dict[bytes, int]:
    if sha256(data).hexdigest() != CHECKSUM:
        raise RuntimeError("shared/data/o200k_base.tiktoken.gz is damaged: its checksum is wrong. Install again.")
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}


def count(text: str) -> int:
    """Returns the tokens of ``text`` in o200k. Text that looks like a special token is counted as plain text.

    Counted in pieces, which adds a token or two per piece: the encoder's time grows superlinearly with one long word or
    gap, and where a match has to remember a million characters it panics.
    """
    pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
    return sum(len(_encoding().encode_ordinary(piece)) for piece in pieces)


def tokens_at_most(text: str) -> int:
    """Returns an upper bound of the tokens that Claude bills for ``text``; two per byte at most."""
    return count(text) * CLAUDE_RATIO
