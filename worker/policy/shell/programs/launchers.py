"""Programs that start the command in their arguments, such as ``timeout 5 git push``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask
from deputize.worker.policy.shell.programs.options import Options, suffixes
from deputize.worker.policy.shell.words import UNKNOWN, Word

_VARIABLE = re.compile(r"[A-Za-z_]\w*\+?=")
_REPLACED = re.compile(r"\{\}|\{#?\.?/?\}")


_NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Launcher:
    """How the arguments of a launcher are read until the command begins."""

    options: Options = _NO_OPTIONS
    operands: int = 0
    """Arguments before the command."""
    reason: str = ""
    """Why it needs approval itself. Empty: it does what its command does."""

    def __call__(self, argv: Argv) -> Judgement:
        read = self.options.skip(argv)
        if read is None:
            return _unread(argv)
        command = argv[read[0] + self.operands :]
        return _started(argv, command, self.reason)


def _unread(argv: Argv) -> Judgement:
    reason = f"the arguments of {argv[0].shown} cannot be read"
    return Judgement(Decision.ASK, reason, may_start=tuple(suffixes(argv)), remembered=0)


def _started(argv: Argv, command: Argv, reason: str = "") -> Judgement:
    decision = Decision.ASK if reason else Decision.ALLOW
    starts = (command,) if command else ()
    # The command is remembered, not the launcher: that could start any other, too.
    return Judgement(decision, reason or f"{argv[0].shown} only starts a command", starts, remembered=len(argv))


def env(argv: Argv) -> Judgement:
    options = Options(
        "i0v",
        "uCSP",
        ("ignore-environment", "null", "debug", "block-signal", "default-signal", "ignore-signal"),
        ("unset", "chdir", "split-string", "argv0"),
    )
    read = options.skip(argv)
    if read is None:
        return _unread(argv)
    at, found = read
    split = [value for name, value in found if name in ("S", "split-string") and value]
    names = 0
    while at < len(argv) and _VARIABLE.match(argv[at].text):
        at, names = at + 1, names + 1
    if split:
        texts = tuple(value.text for value in split)
        rest = " ".join(word.text for word in argv[at:])
        return Judgement(Decision.ASK, "env -S splits a text", scripts=(*texts, f"{texts[-1]} {rest}"), remembered=0)
    if at >= len(argv) or (argv[at].text == "-" and at + 1 >= len(argv)):
        return ask("env prints the environment")
    if argv[at].text == "-":
        return _started(argv, argv[at + 1 :], "env changes the environment")
    return _started(argv, argv[at:], "env changes the environment" if names or found else "")


def xargs(argv: Argv) -> Judgement:
    options = Options(
        "0rtpxo",
        "aEeIiLlnPsd",
        (
            "null",
            "no-run-if-empty",
            "verbose",
            "interactive",
            "exit",
            "open-tty",
            "show-limits",
            "max-lines",
            "replace",
            "eof",
        ),
        ("arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"),
    )
    read = options.skip(argv)
    if read is None:
        return _unread(argv)
    at, found = read
    marks = [value.text if value else "{}" for name, value in found if name in ("I", "i", "replace")]
    if any(name in ("e", "i", "l") for name, _ in found):
        return _unread(argv)  # their value is only ever in the same word
    command = [_filled(word, marks[-1]) if marks else word for word in argv[at:]] or [Word.literal("echo")]
    if not marks:
        command.append(Word(UNKNOWN, "…", splits=True, vague=True))
    return _started(argv, command)


def _filled(word: Word, mark: str) -> Word:
    text = word.text.replace(mark, UNKNOWN) if mark else word.text
    return word if text == word.text else Word(text, word.shown, vague=True)


_SIGNAL_LONG = ("preserve-status", "foreground", "verbose")
LAUNCHERS: Mapping[str, Launcher] = {
    "timeout": Launcher(Options("pfv", "ks", _SIGNAL_LONG, ("kill-after", "signal")), operands=1),
    "nice": Launcher(Options("0123456789", "n", (), ("adjustment",))),
    "ionice": Launcher(Options("t", "cnpPu", ("ignore",), ("class", "classdata"))),
    "stdbuf": Launcher(Options("", "ioe", (), ("input", "output", "error"))),
    "chrt": Launcher(Options("abfiomrRv", "TPD", ("other", "fifo", "rr", "batch", "idle", "deadline")), operands=1),
    "taskset": Launcher(Options("ac", "", ("all-tasks", "cpu-list")), operands=1),
    "nohup": Launcher(reason="nohup writes nohup.out"),
    "setsid": Launcher(Options("cfw", "", ("ctty", "fork", "wait")), reason="setsid leaves the session"),
    "time": Launcher(
        Options("apqvV", "fo", ("portability", "append", "verbose", "quiet"), ("format", "output")),
        reason="it can write a file",
    ),
    "builtin": Launcher(),
    "exec": Launcher(Options("cl", "a"), reason="exec replaces the shell"),
    "unbuffer": Launcher(Options("p"), reason="it starts a terminal"),
    "catchsegv": Launcher(),
    "setarch": Launcher(
        Options("BFILRSTXZv3", "", ("addr-no-randomize",)), operands=1, reason="it changes the kernel's personality"
    ),
    "linux64": Launcher(),
    "linux32": Launcher(),
    "numactl": Launcher(reason="it sets memory policies"),
    "prlimit": Launcher(reason="it sets limits"),
    "fakeroot": Launcher(reason="it starts a command"),
    "unshare": Launcher(
        Options(
            "muinpUCTfrcRSG", "", ("mount", "uts", "ipc", "net", "pid", "user", "fork", "map-root-user", "mount-proc")
        ),
        reason="it makes namespaces",
    ),
    "busybox": Launcher(reason="busybox runs another program"),
    "toybox": Launcher(reason="toybox runs another program"),
    "strace": Launcher(Options("cCdDfFhiknNqrtTvVwxyYzZ", "abeEIoOpPsSuUX"), reason="it traces a command"),
    "ltrace": Launcher(Options("cCfhiLrSttTV", "aAbDeFlnopsuwx"), reason="it traces a command"),
    "command": Launcher(Options("pvV")),
}


def command(argv: Argv) -> Judgement:
    """``command -v NAME`` looks for a program, ``command NAME`` runs it."""
    read = Options("pvV").skip(argv)
    if read and any(name in ("v", "V") for name, _ in read[1]):
        return Judgement(Decision.ALLOW, "command -v only looks for a program")
    return LAUNCHERS["command"](argv)
