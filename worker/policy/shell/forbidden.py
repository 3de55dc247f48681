"""Programs and arguments that are denied wherever they stand: they leave the task's own files, or the machine.

Also in a text that is not read as commands: there each word counts.
"""

from __future__ import annotations

import base64
import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .plain_line import Argv

_BY_PURPOSE = {
    "gets the rights of another user": "sudo sudoedit su doas pkexec runuser gosu su-exec sg setpriv super calife op "
    "machinectl visudo",
    "stops the machine": "shutdown reboot halt poweroff init telinit kexec",
    "changes disks and file systems": "fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted partprobe wipefs blkdiscard "
    "mke2fs mkswap mkdosfs mkntfs mkreiserfs swapon swapoff mount umount losetup cryptsetup hdparm sdparm nvme tune2fs "
    "e2fsck resize2fs badblocks dmsetup pvcreate pvremove vgcreate vgremove lvcreate lvremove mdadm zpool "
    "fsfreeze debugfs",
    "changes the kernel": "insmod rmmod modprobe depmod sysctl",
    "changes the firewall or the network": "iptables iptables-restore ip6tables ip6tables-restore nft ufw firewall-cmd "
    "ebtables arptables ipset ifconfig ifup ifdown",
    "changes users": "useradd userdel usermod adduser deluser groupadd groupdel groupmod addgroup delgroup passwd "
    "chpasswd chfn chsh vipw vigr gpasswd newusers",
    "leaves its own namespaces": "nsenter unshare chroot pivot_root switch_root capsh",
}
FORBIDDEN: Mapping[str, str] = {name: why for why, names in _BY_PURPOSE.items() for name in names.split()}
ORDINARY = frozenset({"init", "op", "super", "halt", "mount", "umount", "passwd", "reboot", "shutdown"})
"""Names that texts have as ordinary words, too, so that they are programs only where a command begins."""
HOME = "\1"
"""Stands for the home directory."""
_FORBIDDEN_PATTERN = re.compile(r"(?:mkfs|fsck)(?:\.\w+)?")
_SYSTEMCTL = re.compile(
    r"poweroff|reboot|halt|kexec|soft-reboot|suspend|hibernate|hybrid-sleep|suspend-then-hibernate|rescue"
    r"|emergency|exit|default|isolate|switch-root"
)
_DEVICE = re.compile(
    r"(?:.*=)?/+dev/+(?:(?:sd|hd|vd|xvd|nvme|mmcblk|loop|dm-|md|nbd|sr|ram|zram|fd\d|disk/|mapper/|block/|bus/)[^/]*.*"
    r"|mem|kmem|port|kmsg)"
)
_ROOT = re.compile(
    rf"/|{HOME}(?:root)?|/(?:bin|boot|dev|etc|home|lib|lib32|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|var)"
    r"|/usr(?:/(?:bin|lib|local|sbin))?"
)
_EVERYTHING = frozenset({"*", ".", "./", "./*", ".*", "$PWD"})
_CODES = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3}))")
_EXPANSION = re.compile(r"\$(?:\w+|[@*#?$!-])|\$\{[^{}]*\}")
_DEFAULTS = re.compile(r"\$\{!?\w+(?:\[[^\]\s]{0,64}\])?:?[-+=?]")
_HOMES = re.compile(r"\$HOME\b|\$\{HOME\}|(?<![^\s\"'=:;&|(])~(?=[/\s;&|)\"']|\Z)")
_QUOTES = re.compile(r"[\"'\\]")
_BETWEEN = re.compile(r"([;&|\n(){}`<>$=,!\"'\\]+)")
_COMMANDS_BETWEEN = re.compile(r"[;&|\n()`<>]+|(?<!\S)[{}](?!\S)")
_BEFORE = re.compile(
    r"-.*|\d[\w.]*|then|do|else|elif|if|while|until|time|coproc|echo|printf|exec|eval|command|builtin|nohup"
    r"|(?:.*/)?(?:env|xargs|timeout|nice|ionice|stdbuf|setsid|watch|busybox|toybox|[bdz]?a?sh)"
)
"""Words that may precede a program: options and their numbers, keywords, programs that start another one."""
_OF_TEXT = re.compile(r"[=(\"'].*|[-+*/%:]=?|in|is|and|or|not|if|else|for|as", re.DOTALL)
"""What follows a name that is a word of another language."""
_PROGRAM_FOLDER = re.compile(r"\A.*bin/")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{6,}={0,2}")
_CALL = re.compile(r"(?<=[\w\])])\(")
"""Where the arguments of a function begin in another language."""
_FUNCTION = re.compile(r"(?<![\w:.-])([\w:.-]++)\s*+(?:\(\))?\s*+[{(]")
_BRACES, _CLOSING = re.compile(r"[{}]"), re.compile(r"[})]")
_BESIDE = re.compile(r"(?<!\S)([\w:.-]++|\$FUNCNAME)\s*+(?:\||&(?!&))|\|\s*+([\w:.-]++|\$FUNCNAME)(?!\S)")
"""A command that is started beside another one."""
_RECURSIVE = re.compile(r"--no-preserve-root|--r.*|-(?!-).*[rR].*")
_MOST = 64
_LONGEST_PATTERN = 200
_PATTERN, _CLASS = re.compile(r"[*?\[\]]"), re.compile(r"\[[^\]]*+\]")


def why_forbidden(words: Sequence[str]) -> str | None:
    """Returns why a command is forbidden, or None."""
    name, arguments = name_of(words[0]), words[1:]
    if why := why_never(name):
        return why
    if name in ("systemctl", "loginctl") and any(map(_SYSTEMCTL.fullmatch, arguments)):
        return "stops the machine"
    if _acts_on_tree(name, arguments) and any(map(_is_root, arguments)):
        return "acts on everything below a directory of the system or the home directory"
    return None


def why_never(name: str) -> str | None:
    """Returns why a program is forbidden with any arguments, or None."""
    return "changes disks and file systems" if _FORBIDDEN_PATTERN.fullmatch(name) else FORBIDDEN.get(name)


def name_of(program: str) -> str:
    """Returns the name of a program, without its directory."""
    return program.rstrip("/").rpartition("/")[2]


def written_device(argv: Argv) -> str | None:
    """Returns the disk that a command which may write names, or None."""
    texts = (word.text for word in argv[1:] if name_of(argv[0].text) != "dd" or word.text.startswith("of="))
    return next((text.rpartition("=")[2] for text in texts if is_device(text)), None)


def is_device(text: str) -> bool:
    """Whether a text names a disk or the memory, also as in ``of=/dev/sda``."""
    return _DEVICE.fullmatch(re.sub(r"/(?:\./)+|/{2,}", "/", text)) is not None


def removes_root(commands: Iterable[Sequence[str]]) -> bool:
    """Whether the commands enter a directory of the system, or the home directory, and act on everything there."""
    enters = removes = False
    for name, *arguments in commands:
        operands = [text for text in arguments if not text.startswith("-")]
        enters |= name in ("cd", "pushd") and (not operands or any(map(_is_root, operands)))
        removes |= _acts_on_tree(name, arguments) and not _EVERYTHING.isdisjoint(arguments)
    return enters and removes


def _is_root(text: str) -> bool:
    """Whether a text names the root, a directory of the system, the home directory, or all that is in one."""
    path = re.sub(r"/(?:\.?/)*", "/", text)
    path = re.sub(r"(?<=/)\.?\*$|/\.$", "", path)
    path = re.sub(r"^/(?:\.\./?)+", "/", path)
    return bool(text) and _ROOT.fullmatch(path.rstrip("/") or "/") is not None


def _acts_on_tree(name: str, arguments: Sequence[str]) -> bool:
    if name == "find":
        return "-delete" in arguments
    return name in ("rm", "chmod", "chown", "chgrp") and any(map(_RECURSIVE.fullmatch, arguments))


@dataclass(slots=True)
class Words:
    """The words of a text: all of them, and those that may stand in the place of a program."""

    anywhere: set[str] = field(default_factory=set[str])
    programs: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, text: str) -> Words:
        found = cls()
        for spelled in _spellings(text):
            pieces = _BETWEEN.split(spelled)
            for piece, after in dict.fromkeys(zip(pieces[::2], [*pieces[1::2], ""], strict=True)):
                found._add(piece, after)
        return found

    def _add(self, piece: str, after: str) -> None:
        words = piece.split()
        names = [name_of(each) for word in words for each in (word, *([word[2:]] if word[:1] == "-" else []))]
        self.anywhere.update(name for name in names if name)
        for word, following in zip(words, [*words[1:], after], strict=False):
            if not _OF_TEXT.fullmatch(following):
                self.programs.add(_PROGRAM_FOLDER.sub("", word))
            if not _BEFORE.fullmatch(word):
                break

    def hold(self, program: str) -> bool:
        """Whether a program is one of the words, also as a pattern in its place."""
        return program in self.anywhere or any(_may_be(word, program, 1) for word in self.programs)


def words_why_forbidden(text: str) -> tuple[str, str] | None:
    """Returns what in a text is forbidden, and why; or None."""
    words = Words.of(text)
    for name in sorted(words.anywhere):
        if (why := why_never(name)) and (name not in ORDINARY or name in words.programs):
            return name, why
    for pattern in sorted(filter(_PATTERN.search, words.programs)):
        if name := next((name for name in FORBIDDEN if _may_be(pattern, name, 2)), None):
            return pattern, FORBIDDEN[name]
    joined = text.replace("\\\n", "")
    return _arguments_why_forbidden(text) or _arguments_why_forbidden(joined) or _decoded_why_forbidden(text)


def _arguments_why_forbidden(text: str) -> tuple[str, str] | None:
    plainer = _QUOTES.sub("", _EXPANSION.sub("\2", _HOMES.sub(HOME, _DEFAULTS.sub(" ", text))))
    commands = [words for piece in _COMMANDS_BETWEEN.split(plainer) if (words := piece.split())]
    for words in commands:
        if device := next((word for word in words if not word.startswith("if=") and is_device(word)), None):
            return device.rpartition("=")[2], "is a device of the machine"
        for at, word in enumerate(words):
            if name_of(word) in ("rm", "chmod", "chown", "chgrp", "find", "systemctl", "loginctl"):
                argv = words[at : at + _MOST]
                if why := why_forbidden(argv):
                    return " ".join(argv).replace(HOME, "~"), why
    if removes_root(commands):
        return "rm", "removes everything below a directory of the system or the home directory"
    if name := _fork_bomb(text):
        return name, "is a function that may start itself without end"
    return None


def _decoded_why_forbidden(text: str) -> tuple[str, str] | None:
    decoded = decoded_in(text) if "base64" in text else ""
    return words_why_forbidden(decoded.replace("base64", "")) if decoded else None


def decoded_in(text: str) -> str:
    """Returns what the parts of a text mean that may be base64."""
    decoded: list[str] = []
    for found in _BASE64.findall(text):
        with suppress(ValueError):
            decoded.append(base64.b64decode(found, validate=True).decode())
    return "\n".join(decoded)


def _spellings(text: str) -> Iterator[str]:
    """Yields a text as it is, and with what a shell removes from words taken out of it."""
    text = _CALL.sub("( . ", _DEFAULTS.sub(" ", _CODES.sub(_character, text)))
    yield _QUOTES.sub("", text)
    text = text.replace("\\\n", "")
    bare = _QUOTES.sub("", text)
    yield text
    yield bare
    yield _EXPANSION.sub("", bare)
    yield _EXPANSION.sub(" ", bare)
    yield re.sub(r"[{},]", "", bare)


def _character(code: re.Match[str]) -> str:
    number = int(code[4], 8) & 0xFF if code[4] else int(code[1] or code[2] or code[3], 16)
    return chr(number) if 0x20 <= number < 0x7F else " "


def _may_be(pattern: str, name: str, least: int) -> bool:
    """Whether a pattern of file names with at least so many characters of its own matches a name.

    One that fits the name with its begin and its end, and is longer than any has to be, counts as one that matches.
    """
    special = [found.start() for found in itertools.islice(_PATTERN.finditer(pattern), _LONGEST_PATTERN)]
    if not special or pattern[special[0]] == "]" or len(pattern.strip("*?")) < least:
        return False
    last = max(map(pattern.rfind, "*?]"))
    # An open bracket stands for itself, and no name has one; `fnmatch` would look for its end from each of many.
    if (
        "[" in pattern[last + 1 :]
        or not name.startswith(pattern[: special[0]])
        or not name.endswith(pattern[last + 1 :])
    ):
        return False
    if len(_CLASS.sub("?", pattern.replace("*", ""))) > len(name):
        return False
    return len(pattern) > _LONGEST_PATTERN or fnmatchcase(name, pattern)


def _fork_bomb(text: str) -> str | None:
    """Returns the name of a function that is started beside another command in the body of one; or None."""
    bodies = dict[str, list[str]]()
    for name, body in itertools.islice(_functions(text), _MOST):
        bodies.setdefault(name, []).append(body)
    started = {found[1] or found[2] for each in bodies.values() for body in each for found in _BESIDE.finditer(body)}
    return next((name for name in bodies if name in started or "$FUNCNAME" in started), None)


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yields what may be functions, with their bodies: until the next brace, or the last parenthesis before it."""
    braces = [found.start() for found in _BRACES.finditer(text)]
    closing = [found.start() for found in _CLOSING.finditer(text)]
    at = 0
    while opening := _FUNCTION.search(text, at):
        at = opening.end()
        brace = bisect_left(braces, at)
        stop = braces[brace] + 1 if brace < len(braces) else len(text)
        end = closing[last] if (last := bisect_left(closing, stop) - 1) >= 0 else -1
        if end >= at:
            yield opening[1], text[at:end]
            at = end + 1
