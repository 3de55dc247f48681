"""What a command printed, as text: binary data in it is summed up, and text in another encoding is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ...shared.text import HALF_CHARACTER
from .encodings import NUL_SHOWN, controls_in, encoding_of, kind_of, other_encoding

_FEW = 20
"""Output in which fewer than one of so many bytes is odd is text as it is."""
_LEAST = 8
"""Odd bytes of a line of binary data."""
_MAX_LINES = 100_000


def shown_text(data: bytes) -> str:
    """Returns the text for the model; a NUL in it is shown as a sign."""
    if _odd_bytes(data) * _FEW < len(data) or not data:
        return data.decode("utf-8", "replace").replace("\0", NUL_SHOWN)
    if data.count(b"\n") > _MAX_LINES:
        return _in_short(data)
    return "\n".join(_parts(data.split(b"\n"))).replace("\0", NUL_SHOWN)


def _odd_bytes(data: bytes) -> int:
    """Returns how many bytes are controls or no UTF-8."""
    try:
        data.decode()
        invalid = 0
    except UnicodeDecodeError:
        invalid = len(HALF_CHARACTER.findall(data.decode("utf-8", "surrogateescape")))
    return controls_in(data) + invalid


def _parts(lines: list[bytes]) -> Iterator[str]:
    odd = [_odd_bytes(line) for line in lines]
    if not any(number >= _LEAST and number * 10 > len(line) * 3 for number, line in zip(odd, lines, strict=True)):
        yield b"\n".join(lines).decode("utf-8", "replace")
        return
    binary = [b"\0" in line or number * 10 > len(line) for number, line in zip(odd, lines, strict=True)]
    first, last = binary.index(True), len(lines) - 1 - binary[::-1].index(True)
    inside = range(first, last + 1)
    texts = sum(len(lines[at]) for at in inside if not binary[at])
    if texts * 2 < sum(len(lines[at]) for at in inside) and not other_encoding(lines[first]):
        binary[first : last + 1] = [True] * len(inside)  # texts in binary data are part of it
    for stretch in _runs(binary):
        data = b"\n".join(lines[stretch.start : stretch.stop])
        yield _in_short(data) if binary[stretch.start] else data.decode("utf-8", "replace")


def _runs(values: list[bool]) -> list[range]:
    """Returns the ranges of equal values."""
    starts = [at for at in range(len(values)) if at == 0 or values[at] != values[at - 1]]
    return [range(start, stop) for start, stop in pairwise([*starts, len(values)])]


def _in_short(data: bytes) -> str:
    encoding = encoding_of(data)
    if encoding is None or encoding.name == "utf-8":
        return f"[{len(data)} bytes of {kind_of(data)} are not shown]"
    text = data[len(encoding.bom) :].decode(encoding.name, "replace").rstrip("\n\0")
    return f"{text}\n[the lines above were printed in another encoding: {encoding.remark}]"
