"""Programs that start the command in their arguments, such as ``timeout 5 git push``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import LONG, Argv, Judgement, ask
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.programs.options import Options, suffixes
from deputize.worker.policy.shell.variables import is_executed
from deputize.worker.policy.shell.words import UNKNOWN, Word

_VARIABLE = re.compile(r"[A-Za-z_]\w*\+?=")


_NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Launcher:
    """How the arguments of a launcher are read until the command begins."""

    options: Options = _NO_OPTIONS
    operands: int = 0
    """Arguments before the command."""
    reason: str = ""
    """Why it needs approval itself. Empty: it does what its command does."""
    joined: bool = False
    """Whether a shell may execute the arguments, joined to a text."""

    def __call__(self, argv: Argv) -> Judgement:
        read = None if argv[0].text.rpartition("/")[2] in _PLAIN else self.options.skip(argv)
        if read is None:
            return _unread(argv)
        command = argv[read[0] + self.operands :]
        started = _started(argv, command, self.reason)
        texts = [value.text for name, value in read[1] if name in ("c", "command") and value]
        if self.joined:
            texts.append(" ".join(word.text for word in command))
        # `flock FILE -c TEXT`
        texts += [after.text for word, after in itertools.pairwise(command) if word.text in ("-c", "--command")][:1]
        return replace(started, may_execute=tuple(texts)) if self.reason else started


def _unread(argv: Argv) -> Judgement:
    reason = f"the arguments of {argv[0].shown} cannot be read"
    starts = tuple(suffixes(argv)) if len(argv) <= LONG else (argv[1:],)
    values = tuple(value for word in argv if (value := word.text.partition("=")[2]))
    return Judgement(Decision.ASK, reason, may_start=starts, may_execute=values, remembered=0)


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
    changed = 0
    while at < len(argv) and _VARIABLE.match(argv[at].text):
        at, changed = at + 1, changed + 1
    if split:
        texts = tuple(value.text for value in split)
        rest = " ".join(word.text for word in argv[at:])
        return Judgement(Decision.ASK, "env -S splits a text", scripts=(*texts, f"{texts[-1]} {rest}"), remembered=0)
    if at >= len(argv) or (argv[at].text == "-" and at + 1 >= len(argv)):
        return ask("env prints the environment")
    if argv[at].text == "-":
        return _started(argv, argv[at + 1 :], "env changes the environment")
    started = _started(argv, argv[at:], "env changes the environment" if changed or found else "")
    values = [word.text.partition("=") for word in argv[at - changed : at]]
    return replace(started, may_execute=tuple(value for name, _, value in values if is_executed(name)))


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
    return replace(_started(argv, command), fed=True)


def _filled(word: Word, mark: str) -> Word:
    text = word.text.replace(mark, UNKNOWN) if mark else word.text
    return word if text == word.text else Word(text, word.shown, vague=True)


_SIGNAL_LONG = ("preserve-status", "foreground", "verbose")
_TIME = Options("apqvV", "fo", ("portability", "append", "verbose", "quiet"), ("format", "output"))
_FLOCK = Options("sxunoF", "wE", ("shared", "exclusive", "unlock", "nonblock", "close", "no-fork"), ("timeout", "wait"))
_WATCH = Options(
    "bcdegtwxpr", "nq", ("beep", "color", "differences", "errexit", "chgexit", "no-title", "exec"), ("interval",)
)
_PARALLEL = Options("0mXkqtuv", "adEIjLnNPS", ("null", "keep-order"))
_SCRIPT = Options("aefqt", "cIOBTmoE", ("append", "flush", "quiet", "return"), ("command",))
_SETARCH = Options("BFILRSTXZv3", "", ("addr-no-randomize",))
_UNSHARE = Options(
    "muinpUCTfrcRSG",
    "",
    ("mount", "uts", "ipc", "net", "pid", "user", "fork", "map-root-user", "mount-proc", "cgroup", "time", "keep-caps"),
)
_PLAIN = names(
    "unbuffer catchsegv linux32 linux64 numactl prlimit fakeroot fakechroot dbus-run-session dbus-launch xvfb-run "
    "proxychains proxychains4 torsocks tsocks firejail bwrap valgrind perf rlwrap chronic cgexec softlimit "
    "setuidgid start-stop-daemon daemonize tmux screen dtach abduco xterm at batch ssh rsh doppler direnv chpst "
    "s6-setsid winpty heaptrack rr eatmydata faketime cpulimit trickle cpufreq-set hyperfine poetry pipenv uv npx "
    "bunx pnpx"
)
"""Programs that start the command in their arguments, with options that are not read: it may begin anywhere."""
LAUNCHERS: Mapping[str, Launcher] = {
    "timeout": Launcher(Options("pfv", "ks", _SIGNAL_LONG, ("kill-after", "signal")), operands=1),
    "nice": Launcher(Options("0123456789", "n", (), ("adjustment",))),
    "ionice": Launcher(Options("t", "cnpPu", ("ignore",), ("class", "classdata"))),
    "stdbuf": Launcher(Options("", "ioe", (), ("input", "output", "error"))),
    "chrt": Launcher(Options("abfiomrRv", "TPD", ("other", "fifo", "rr", "batch", "idle", "deadline")), operands=1),
    "taskset": Launcher(Options("ac", "", ("all-tasks", "cpu-list")), operands=1),
    "builtin": Launcher(),
    "command": Launcher(Options("pvV")),
    "nohup": Launcher(reason="nohup writes nohup.out"),
    "setsid": Launcher(Options("cfw", "", ("ctty", "fork", "wait")), reason="setsid leaves the session"),
    "time": Launcher(_TIME, reason="time can write a file"),
    "exec": Launcher(Options("cl", "a"), reason="exec replaces the shell"),
    "flock": Launcher(_FLOCK, operands=1, reason="flock makes a file"),
    "watch": Launcher(_WATCH, reason="watch does not end", joined=True),
    "entr": Launcher(Options("acdnprsxz"), reason="entr does not end", joined=True),
    "parallel": Launcher(_PARALLEL, reason="parallel starts commands", joined=True),
    "script": Launcher(
        _SCRIPT,
        reason="script writes a file",
    ),
    "unshare": Launcher(_UNSHARE, reason="unshare makes namespaces"),
    "setarch": Launcher(_SETARCH, operands=1, reason="setarch changes what runs"),
    "strace": Launcher(Options("cCdDfFhiknNqrtTvVwxyYzZ", "abeEIoOpPsSuUX"), reason="strace traces a command"),
    "ltrace": Launcher(Options("cCfhiLrSttTV", "aAbDeFlnopsuwx"), reason="ltrace traces a command"),
    "systemd-run": Launcher(Options("tdPqGSr", "EpuHM"), reason="systemd-run starts a command elsewhere", joined=True),
    **{name: Launcher(reason=f"{name} starts a command") for name in sorted(_PLAIN)},
}


def command(argv: Argv) -> Judgement:
    """``command -v NAME`` looks for a program, ``command NAME`` runs it."""
    read = Options("pvV").skip(argv)
    if read and any(name in ("v", "V") for name, _ in read[1]):
        return Judgement(Decision.ALLOW, "command -v only looks for a program")
    return LAUNCHERS["command"](argv)
