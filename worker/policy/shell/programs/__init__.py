"""What is known about programs: which are forbidden, which only read, and which start others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, deny
from deputize.worker.policy.shell.programs import launchers, readers, shells
from deputize.worker.policy.shell.programs.forbidden import is_device, program_name, why_forbidden

_PROGRAMS: Mapping[str, Callable[[Argv], Judgement]] = {
    **dict.fromkeys(readers.ANY_OPTION | readers.WITHOUT_PATHS, readers.reader),
    **launchers.LAUNCHERS,
    "command": launchers.command,
    "env": launchers.env,
    "xargs": launchers.xargs,
    **shells.BUILTINS,
}
_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"})


def judge(argv: Argv) -> Judgement:
    """Returns what is known about a command; its first word is the program."""
    if why := why_forbidden(argv):
        return deny(f"{program_name(argv)} {why}")
    program = argv[0]
    if not program.known:
        return ask(f"which program {program.shown} is, only the shell knows", remembered=0)
    folder, _, name = program.text.rpartition("/")
    make = _PROGRAMS.get(name)
    judged = make(argv) if make else ask(f"{program.shown} is not known to only read")
    if "/" in program.text and folder not in _SYSTEM_FOLDERS:
        judged = replace(judged, decision=Decision.ASK, reason=f"{program.shown} is a file that may do anything")
    if judged.decision is not Decision.ALLOW and not judged.starts and (device := _device(argv)):
        return deny(f"{program_name(argv)} may change the device {device}")
    return judged


def _device(argv: Argv) -> str | None:
    texts = [word.text for word in argv[1:]]
    if program_name(argv) == "dd":
        texts = [text for text in texts if text.startswith("of=")]
    return next((text.rpartition("=")[2] for text in texts if is_device(text)), None)
