"""``find``, ``fd`` and ``rg``: programs that search, and can start others."""

from __future__ import annotations

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, reads
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.places import why_elsewhere

_FIND_TESTS = names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -empty -newer "
    "-anewer -cnewer -mtime -mmin -atime -amin -ctime -cmin -perm -user -group -uid -gid -nouser -nogroup -links "
    "-inum -samefile -readable -writable -executable -maxdepth -mindepth -depth -mount -xdev -daystart -follow "
    "-prune -quit -print -print0 -printf -ls -true -false -not -and -or -a -o -L -H -P -noleaf -lname -ilname "
    "-fstype -used -ignore_readdir_race ! ( ) ,"
)
_FIND_STARTS = names("-exec -execdir -ok -okdir")
_FD_STARTS = names("-x --exec -X --exec-batch")


def find(argv: Argv) -> Judgement:
    starts = tuple(_between(argv, at + 1) for at, word in enumerate(argv) if word.text in _FIND_STARTS)
    if starts:
        reason = "find starts a command for what it finds"
        return Judgement(Decision.ASK, reason, starts=starts, remembered=len(argv))
    for word in argv[1:]:
        if word.splits or (not word.known and word.text[:1] in "*?[-"):
            return ask(f"find gets the unknown argument {word.shown}")
        if word.text.startswith("-") and word.text not in _FIND_TESTS and not word.text[1:].isdigit():
            return ask(f"find {word.shown} may change something", remembered=len(argv))
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"find {elsewhere}") if elsewhere else reads("find")


def _between(argv: Argv, at: int) -> Argv:
    """Returns the command that ends at ``;`` or ``+``."""
    end = next((number for number in range(at, len(argv)) if argv[number].text in (";", "+")), len(argv))
    return argv[at:end]


def fd(argv: Argv) -> Judgement:
    for at, word in enumerate(argv):
        name, equals, value = word.text.partition("=")
        if name in _FD_STARTS or (word.text[:2] in ("-x", "-X")):
            reason = "fd starts a command for what it finds"
            glued = value if equals else word.text[2:] if word.text[:2] in ("-x", "-X") else ""
            texts = (glued,) if glued else ()
            return Judgement(Decision.ASK, reason, starts=(argv[at + 1 :],), may_execute=texts, remembered=len(argv))
        if at and (word.splits or (word.text.startswith("-") and ("x" in word.text.lower() or not word.known))):
            return Judgement(Decision.ASK, "fd may start a command", may_start=(argv[at + 1 :],), remembered=len(argv))
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"fd {elsewhere}") if elsewhere else reads("fd")


def rg(argv: Argv) -> Judgement:
    for at, word in enumerate(argv[1:], 1):
        text = word.text
        if text.startswith(("--pre", "--hostname-bin", "--search-zip")) or (
            text[:1] == "-" != text[1:2] and "z" in text
        ):
            following = argv[at + 1].text if at + 1 < len(argv) else ""
            texts = (text.partition("=")[2], following)
            return Judgement(Decision.ASK, f"rg {word.shown} starts a program", may_execute=texts, remembered=len(argv))
        if word.splits or (not word.known and text[:1] in "*?[-\0"):
            return ask(f"rg gets the unknown argument {word.shown}")
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"rg {elsewhere}") if elsewhere else reads("rg")
