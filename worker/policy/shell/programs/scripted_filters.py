"""``sed`` and ``awk``, whose scripts can write files and start commands: only a few forms are known to read."""

from __future__ import annotations

import re

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, reads
from deputize.worker.policy.shell.places import why_elsewhere
from deputize.worker.policy.shell.programs.options import Options, operands_of

_SED_READS = re.compile(
    r"(?:(?:\d+|\$|/[\w .:#*^$-]*/)(?:,(?:\d+|\$|\+\d+|/[\w .:#*^$-]*/))?!?)?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpIi\d]*"
)
_SED_EXECUTES = re.compile(r"(?<![A-Za-z])e[ \t]+([^\n]+)")


def sed(argv: Argv) -> Judgement:
    operands = operands_of(
        Options("nErsuz", "", ("quiet", "silent", "regexp-extended", "separate", "unbuffered")), argv
    )
    script = operands[0] if operands else None
    if operands and script and script.known and _SED_READS.fullmatch(script.text):
        elsewhere = why_elsewhere(operands[1:])
        return ask(f"sed {elsewhere}") if elsewhere else reads("sed")
    texts = [word.text for word in argv[1:]]
    found = [each for text in texts for each in _SED_EXECUTES.findall(text)]
    replaced = [each for text in texts for each in re.split(r"(?<!\\)[/|#,]", text) if text.startswith("s")]
    reason = "sed may change a file or start a command"
    return Judgement(Decision.ASK, reason, may_execute=(*found, *replaced), remembered=len(argv))


_AWK_VALUE = r"(?:\$(?:\d+|NF)|NR|NF|\"[^\"\\]*\")"
_AWK_READS = re.compile(
    r"(?:NR[ =<>!]+\d+|NF|/[\w .:#*^$-]*/|\$\d+[ ]*[=!~<>]+[ ]*(?:\d+|\"[^\"\\]*\"))?[ ]*"
    rf"(?:\{{[ ]*print(?:[ ]+{_AWK_VALUE}(?:[ ]*,?[ ]*{_AWK_VALUE})*)?[ ]*\}})?"
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def awk(argv: Argv) -> Judgement:
    operands = operands_of(Options("", "Fv"), argv)
    program = operands[0] if operands else None
    if operands and program and program.known and program.text and _AWK_READS.fullmatch(program.text):
        elsewhere = why_elsewhere(operands[1:])
        assigned = any("=" in word.text for word in operands[1:])
        return ask(f"awk {elsewhere}") if elsewhere or assigned else reads("awk")
    texts = [word.text for word in argv[1:] if "system" in word.text or "|" in word.text]
    found = tuple(each.replace('\\"', '"') for text in texts for each in _STRING.findall(text))
    return Judgement(Decision.ASK, "awk may start a command or write", may_execute=found, remembered=len(argv))
