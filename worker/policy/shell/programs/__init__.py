"""What is known about programs: which are forbidden, which only read, and which start others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, deny
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.programs import launchers, readers, shells
from deputize.worker.policy.shell.programs.code_options import CODE_OPTIONS, with_code
from deputize.worker.policy.shell.programs.forbidden import is_device, program_name, why_forbidden
from deputize.worker.policy.shell.programs.git import git
from deputize.worker.policy.shell.programs.searches import fd, find, rg
from deputize.worker.policy.shell.programs.text_tools import TEXT_TOOLS

_PROGRAMS: Mapping[str, Callable[[Argv], Judgement]] = {
    **dict.fromkeys(readers.ANY_OPTION | readers.WITHOUT_PATHS, readers.reader),
    **TEXT_TOOLS,
    **dict.fromkeys(CODE_OPTIONS, with_code),
    "find": find,
    **dict.fromkeys(("fd", "fdfind"), fd),
    "rg": rg,
    "git": git,
    **launchers.LAUNCHERS,
    "command": launchers.command,
    "env": launchers.env,
    "xargs": launchers.xargs,
    **shells.BUILTINS,
}
_SUBCOMMANDS = names(
    "npm pnpm yarn cargo go pip pip3 docker podman kubectl apt apt-get brew gh bundle gem dotnet mvn gradle"
)
_INTERPRETERS = names("python python2 python3 node deno bun perl ruby php lua Rscript java osascript pwsh make")
_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"})


def judge(argv: Argv) -> Judgement:
    """Returns what is known about a command; its first word is the program."""
    if why := why_forbidden(argv):
        return deny(f"{program_name(argv)} {why}")
    program = argv[0]
    if program.text == "--":  # after the keyword `time`
        return Judgement(Decision.ALLOW, "it starts a command", starts=(argv[1:],))
    if not program.known:
        return ask(f"which program {program.shown} is, only the shell knows", remembered=0)
    folder, _, name = program.text.rpartition("/")
    make = _PROGRAMS.get(name)
    judged = make(argv) if make else ask(f"{program.shown} is not known to only read")
    if "/" in program.text and folder not in _SYSTEM_FOLDERS:
        judged = replace(judged, decision=Decision.ASK, reason=f"{program.shown} is a file that may do anything")
    if judged.decision is not Decision.ALLOW and make is not readers.reader and (device := _device(argv)):
        return deny(f"{program_name(argv)} may change the device {device}")
    return replace(judged, remembered=_remembered(argv, judged))


def _remembered(argv: Argv, judged: Judgement) -> int:
    """Returns how many words stand for what the command does: `npm test`, but all of `python3 x.py`."""
    name = argv[0].text
    if name in _INTERPRETERS:
        return len(argv)
    if name in _SUBCOMMANDS:
        return 2 if len(argv) > 1 and not argv[1].text.startswith("-") else len(argv)
    return judged.remembered


def _device(argv: Argv) -> str | None:
    texts = [word.text for word in argv[1:]]
    if program_name(argv) == "dd":
        texts = [text for text in texts if text.startswith("of=")]
    return next((text.rpartition("=")[2] for text in texts if is_device(text)), None)
