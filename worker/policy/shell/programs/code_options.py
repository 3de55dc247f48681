"""Programs that may execute the value of an option, as ``vim -c '!sudo id'`` does."""

from __future__ import annotations

import re
from collections.abc import Mapping

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement

CODE_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("vi", "vim", "nvim", "ex", "view", "vimdiff", "emacs", "ed"), r"-c|--cmd|--eval|\+.*|-f|--command"
    ),
    **dict.fromkeys(("less", "more", "most"), r"\+.*|--lesskey-content.*|-k"),
    "gdb": r"-ex|-iex|--ex|--eval-command|--init-eval-command",
    "rsync": r"-\w*e|--rsh|--rsync-path|--rsh=.*|--rsync-path=.*",
    **dict.fromkeys(("scp", "sftp"), r"-S|-o|-o.*|-S.*|-D"),
    "npm": r"-c|--call|--call=.*|--script-shell.*",
    "zip": r"-TT|--unzip-command|--unzip-command=.*",
    "sqlite3": r"-cmd|\..*",
    "dc": r"-e|-e.*|--expression",
    "m4": r"-D.*",
    "expect": r"-c",
    "ssh-keygen": r"-D",
    "crontab": r"-",
    "pssh": r".*",
    "ansible": r"-a|--args|--args=.*",
    "make": r"(?:SHELL|MAKEFLAGS|CC|CXX|LD|AR)=.*|--eval|--eval=.*",
    "cpio": r"--rsh-command.*|--to-stdout",
    "split": r"--filter.*|--fi.*",
    "wget": r"--use-askpass.*",
    "cargo": r"--config.*",
    "nmap": r"--script.*",
}
"""By program: the pattern of options of which the value, or the next word, is executed."""
_BEFORE = re.compile(
    r"[+:!.\s]*(?:(?:shell|system|exec|execute|silent|r|read|ProxyCommand=|LocalCommand=)!?\s*)*[!\s]*"
)


def with_code(argv: Argv) -> Judgement:
    """Judges a program of the table."""
    name = argv[0].text.rpartition("/")[2]
    texts: list[str] = []
    for at, word in enumerate(argv[1:], 1):
        if re.fullmatch(CODE_OPTIONS[name], word.text, re.DOTALL):
            following = [argv[at + 1].text] if at + 1 < len(argv) else []
            texts += [word.text, word.text.partition("=")[2], word.text[2:], *following]
    texts += [_BEFORE.sub("", text, count=1) for text in texts]
    reason = f"{name} may start a command"
    return Judgement(Decision.ASK, reason, may_execute=tuple(text for text in texts if text), remembered=len(argv))
