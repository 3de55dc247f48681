"""Text operations: truncation that is marked and splits no character, and escaping for safe printing."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""A lone surrogate: from a name or a file in an old encoding, or from JSON; it cannot be encoded as UTF-8."""
HIDDEN = (
    r"\x7f-\x9f"  # DEL and C1: on many terminals one of these characters begins an escape sequence
    r"\xad\u061c\u180e\u200b\u200e\u200f"  # soft hyphen, zero-width space, direction marks
    r"\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"  # line separators, embeddings and isolates, invisible operators
    r"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # fillers and a blank, which are letters, marks and symbols
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # controls of shorthand and of musical notation
    r"\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # lone surrogates; tags are invisible text
)
# Between letters of other scripts and emoji a joiner or a variation selector is part of the spelling, as it is before
# the frame of a keycap; after ASCII it is only invisible.
JOINER = r"(?<![\u0300-\U0010ffff])[\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef](?!\u20e3)"
# Compiled when they are first used: each takes milliseconds, which every start would wait for.
_LINE = rf"[\x00-\x1f{HIDDEN}]|{JOINER}"
_BLOCK = rf"[\x00-\x08\x0b-\x1f{HIDDEN}]|{JOINER}"
_JSON = rf"[{HIDDEN}]|{JOINER}"
_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]?"  # all other escape sequences
)
_ERASURE = re.compile(r"\x1b\[[02]?K")
_UP = r"\x1b\[\d{0,3}[AF]"
_KEPT = r"\x1b\[(?:\d{0,3}[ABEF]|0?J|[02]?K)"
_MOVE = re.compile(r"(\r|\x08|\x1b\[[02]?K)")
_JSON_ESCAPES = r"(?i:\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(?P<half>\\ud[89a-f][0-9a-f]{2}))|(?s:\\.)"
CUT_NOTE = "… [cut: "
"""The beginning of the note where a text, a list or an object was cut."""
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def mapped(value: Any, change: Callable[[str], str], *, keys: bool = False) -> Any:
    """Returns a JSON value with every string changed, at any depth; those that are keys only with ``keys``."""
    match value:
        case str():
            return change(value)
        case list():
            return [mapped(part, change, keys=keys) for part in value]
        case dict():
            return {change(key) if keys else key: mapped(part, change, keys=keys) for key, part in value.items()}
        case _:
            return value


def valid(text: str) -> str:
    """Returns the text with lone surrogates replaced by U+FFFD."""
    return text if text.isascii() else HALF_CHARACTER.sub("\ufffd", text)


def clip(text: str, max_chars: int, length: int | None = None) -> str:
    """Returns at most ``max_chars`` characters, with a note at the end if something was cut.

    ``length`` is the length of the complete text if ``text`` is only the start of it.
    """
    length = len(text) if length is None else length
    if length <= max_chars:
        return text
    note = f"{CUT_NOTE}{length} characters, {max_chars} allowed]"
    if len(note) > max_chars // 2:
        note = "…" if max_chars else ""
    return text[: safe_cut(text, max_chars - len(note))] + note


def shortened(text: str, most: int) -> str:
    """Returns at most ``most`` characters, the last one ``…`` where something was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def safe_cut(text: str, at: int, *, forwards: bool = False) -> int:
    """Returns the nearest position to cut that splits no grapheme cluster.

    Only 64 positions are tried: an endless run of combining marks must not prevent the cut.
    """
    at = max(0, min(at, len(text)))
    for step in range(64):
        place = at + step if forwards else at - step
        if not 0 < place < len(text):
            return max(0, min(place, len(text)))
        if not _joined(text[place - 1], text[place]):
            return place
    return at


def _joined(before: str, after: str) -> bool:
    """Returns whether two code points form one character: marks, joiners, surrogate pairs, skin tones and CR LF."""
    return (
        unicodedata.category(after)[0] == "M"
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")
        or (before == "\r" and after == "\n")
    )


def visible(text: str) -> str:
    r"""Returns the text on one line: every control, line end and invisible character as an escape such as ``\x1b``."""
    return re.sub(_LINE, _escape, text)


def visible_block(text: str) -> str:
    """Returns a text of several lines escaped as by ``visible``, with its line ends and tabs."""
    return re.sub(_BLOCK, _escape, text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    r"""Returns JSON with every such character escaped as ``\uXXXX``; its value is unchanged."""
    return re.sub(_JSON, _json_escape, text)


def valid_json_unicode(text: bytes) -> bytes:
    """Returns JSON with the replacement character for invalid UTF-8 and for each escape of half a surrogate pair."""
    decoded = text.decode("utf-8", "replace")
    if not re.search(r"\\u[dD][89a-fA-F]", decoded):
        return decoded.encode()
    return re.sub(_JSON_ESCAPES, lambda found: r"\ufffd" if found["half"] else found[0], decoded).encode()


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _NAMED.get(char) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def terminal_text(output: str) -> str:
    """Returns the text without terminal control sequences, and of each line what a terminal shows in the end."""
    if re.search(_UP, output):
        from .screen import last_screen  # few programs do

        kept = _ESCAPE_SEQUENCES.sub(lambda found: found[0] if re.fullmatch(_KEPT, found[0]) else "", output)
        return last_screen(kept, _overwrite)
    if "\x1b" in output:
        output = _ESCAPE_SEQUENCES.sub(lambda found: found[0] if _ERASURE.fullmatch(found[0]) else "", output)
    return "\n".join(map(_last_state, output.split("\n"))) if _MOVE.search(output) else output


def _last_state(line: str) -> str:
    """Returns the line after what its returns, backspaces and erasures overwrite, as those of a progress bar do."""
    if not _MOVE.search(line, 0, len(line) - line.endswith("\r")):  # the line end of Windows moves nothing
        return line
    return "".join(_overwrite([], line))


def _overwrite(cells: list[str], line: str) -> list[str]:
    """Writes a line into cells, from their begin."""
    at = blanks = 0  # so many blanks are before the cells, as each erasure would cost their number
    for part in filter(None, _MOVE.split(line)):
        match part:
            case "\r":
                at = 0
            case "\b":
                at = max(0, at - 1)
            case "\x1b[K" | "\x1b[0K" if at > blanks:
                del cells[at - blanks :]
            case "\x1b[K" | "\x1b[0K" | "\x1b[2K":
                cells.clear()
                blanks = 0
            case _:
                blanks = blanks if cells else at
                if at < blanks:
                    cells[:0], blanks = " " * (blanks - at), at
                cells += " " * (at - blanks - len(cells))
                cells[at - blanks : at - blanks + len(part)] = part
                at += len(part)
    cells[:0] = " " * blanks
    return cells


def count(number: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def plain_number(value: float) -> str:
    """Returns a number without exponent or `.0`."""
    return f"{value:.10f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def did_you_mean(
    name: str,
    known: Iterable[str],
    most: int = 3,
    *,
    cutoff: float = 0.5,
    show: Callable[[str], str] = str,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Returns a "did you mean" question with the closest names, or "" if none is close.

    ``aliases`` are other names, each with the name to show; they count where no name is close. Comparing is quadratic
    in the length: callers truncate what is too long for a misspelt name.
    """
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    if not near:
        near = dict.fromkeys(aliases[each] for each in difflib.get_close_matches(name, aliases, n=most, cutoff=cutoff))
    return f"did you mean {' or '.join(map(show, near))}?" if near else ""
