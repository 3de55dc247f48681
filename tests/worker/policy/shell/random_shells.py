"""Random command lines in which bash is certain to start a program, however deep it stands in them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from random import Random

PROGRAMS = ("sudo", "doas", "pkexec", "su")
_BARE: Sequence[Callable[[str], str]] = (
    lambda name: f"{name} id",
    lambda name: f"'{name}' id",
    lambda name: f'"{name[0]}"{name[1:]} id',
    lambda name: f"\\{name} id",
    lambda name: f"{name[0]}''{name[1:]} id",
    lambda name: f"{name[0]}\\\n{name[1:]} id",
    lambda name: f"$'\\x{ord(name[0]):02x}{name[1:]}' id",
    lambda name: f"A=1 {name} id",
    lambda name: f"2>&1 {name} id",
    lambda name: f"command {name} id",
    lambda name: f"env A=1 {name} id",
    lambda name: f"timeout 5 {name} id",
    lambda name: f"nice -n 1 {name} id",
    lambda name: f"exec {name} id",
    lambda name: f"echo x | xargs {name}",
    lambda name: f"find . -maxdepth 0 -exec {name} {{}} \\;",
    lambda name: f"{{{name},id}}",
    lambda name: f"X={name}; $X id",
    lambda name: f"$(echo {name}) id",
    lambda name: f"${{NONE:-{name}}} id",
)
_SCRIPTS: Sequence[Callable[[str], str]] = (
    lambda text: f"bash -c {text}",
    lambda text: f"bash -ec {text}",
    lambda text: f"eval {text}",
    lambda text: f"timeout 9 bash -c {text}",
    lambda text: f"env B=2 bash -c {text}",
    lambda text: f"echo x | xargs -I% bash -c {text}",
    lambda text: f"find . -maxdepth 0 -exec bash -c {text} \\;",
    lambda text: f"bash <<< {text}",
    lambda text: f"printf '%s\\n' {text} | bash",
    lambda text: f"trap {text} EXIT",
    lambda text: f"bash <(printf '%s\\n' {text})",
)
"""Lines that execute a quoted text."""
_NESTED: Sequence[Callable[[str], str]] = (
    lambda line: f"true; {line}",
    lambda line: f"true && {line}",
    lambda line: f"false || {line}",
    lambda line: f"ls | {{ {line}\n}}",
    lambda line: f"{{ {line}\n}}",
    lambda line: f"( {line}\n)",
    lambda line: f"if true; then {line}\nfi",
    lambda line: f"if {line}\nthen :; fi",
    lambda line: f"if false; then :; else {line}\nfi",
    lambda line: f"for i in 1; do {line}\ndone",
    lambda line: f"for ((i=0; i<1; i++)); do {line}\ndone",
    lambda line: f"until {line}\n[ -d . ]; do :; done",
    lambda line: f"case a in b) ls;; *) {line}\n;; esac",
    lambda line: f"f() {{ {line}\n}}; f",
    lambda line: f"echo $( {line}\n)",
    lambda line: f'echo "x$( {line}\n)"',
    lambda line: f"echo ${{NONE:-$( {line}\n)}}",
    lambda line: f"X=$( {line}\n)",
    lambda line: f"echo $((1 + $( {line}\necho 0\n) * 0))" if ">&" not in line else f"( {line}\n)",
    lambda line: f"cat < <( {line}\n)",
    lambda line: f"[[ -n $( {line}\n) || -d . ]]",
    lambda line: f"cat <<< $( {line}\n)",
    lambda line: f"! {{ {line}\n}}",
    lambda line: f"time {{ {line}\n}}",
    lambda line: f"{{ {line}\n}} & wait",
    lambda line: f"coproc {{ {line}\n}}; wait",
    lambda line: f"ls > $( {line}\necho /dev/null)",
)


def random_line(random: Random) -> str:
    """A line that runs one of PROGRAMS."""
    line = random.choice(_BARE)(random.choice(PROGRAMS))
    for _ in range(random.randint(0, 4)):
        if random.random() < 0.4:
            line = random.choice(_SCRIPTS)(shlex.quote(line))
        else:
            line = random.choice(_NESTED)(line)
    return line
