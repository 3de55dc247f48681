"""Plain lines that have a shell, an interpreter or another program execute a command that stands in a text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _escaped(text: str, form: str) -> str:
    return "".join("\\" + form.format(ord(char)) for char in text)


def _listed(command: str) -> str:
    return str(command.split()).replace("'", '"')


WAYS: Mapping[str, Callable[[str], str]] = {
    "echo": lambda c: f"echo {c} | sh",
    "quoted": lambda c: f"echo '{c}' | bash",
    "quoted twice": lambda c: f'echo "{c}" | bash -',
    "printf": lambda c: f"printf '{c}\\n' | bash",
    "printf with arguments": lambda c: f"printf '%s ' {c} | sh",
    "printf in hexadecimal": lambda c: f"printf '{_escaped(c, 'x{:02x}')}' | sh",
    "echo in octal": lambda c: f"echo -e '{_escaped(c, '0{:o}')}' | sh",
    "a format that joins": lambda c: f"printf '%s%s\\n' {c[:1]} '{c[1:]}' | sh",
    "base64": lambda c: f"echo {_base64(c)} | base64 -d | sh",
    "base64 in two steps": lambda c: f"echo {_base64(_base64(c))} | base64 -d | base64 -d | sh",
    "turned around": lambda c: f"echo '{c[::-1]}' | rev | sh",
    "replaced": lambda c: f"echo '{c.replace(c[0], '#')}' | tr '#' {c[0]} | sh",
    "passed on": lambda c: f"echo {c} | cat | cat | sh",
    "standard input by name": lambda c: f"echo {c} | sh /dev/stdin",
    "with options": lambda c: f"echo {c} | bash -eu -o pipefail",
    "arguments of the script": lambda c: f"echo {c} | bash -s a b",
    "by env": lambda c: f"echo {c} | env bash",
    "by timeout": lambda c: f"echo {c} | timeout 5 sh",
    "by nohup": lambda c: f"echo {c} | nohup sh",
    "by its path": lambda c: f"echo {c} | /bin/sh",
    "source": lambda c: f"echo {c} | source /dev/stdin",
    "dot": lambda c: f"echo {c} | . /dev/stdin",
    "xargs": lambda c: f"echo x | xargs {c}",
    "xargs with the rest": lambda c: f"echo '{c.partition(' ')[2]}' | xargs {c.split()[0]}",
    "xargs with all": lambda c: f"echo {c} | xargs env",
    "xargs that replaces": lambda c: f"echo '{c.partition(' ')[2]}' | xargs -I % {c.split()[0]} %",
    "xargs of a shell": lambda c: f"echo {c} | xargs -0 bash -s",
    "xargs by a shell": lambda c: f"echo {c} | xargs timeout 5",
    "make": lambda c: f"printf 'x:\\n\\t{c}\\n' | make -f -",
    "make with a name": lambda c: f"printf 'x:\\n\\t{c}\\n' | make --file=/dev/stdin",
    "python": lambda c: f"python3 -c \"import os; os.system('{c}')\"",
    "python with a list": lambda c: f"python3 -uc 'import subprocess; subprocess.run({_listed(c)})'",
    "python by input": lambda c: f"echo \"import os; os.system('{c}')\" | python3",
    "python by input with options": lambda c: f"echo \"import os; os.system('{c}')\" | python3 -W ignore -",
    "perl": lambda c: f"perl -e 'system(\"{c}\")'",
    "perl with a list": lambda c: f"perl -we 'system({_listed(c)[1:-1]})'",
    "ruby": lambda c: f"ruby -e 'system(\"{c}\")'",
    "node": lambda c: f'node -e \'require("child_process").execSync("{c}")\'',
    "node that prints": lambda c: f'node --print \'require("child_process").execSync("{c}")\'',
    "php": lambda c: f"php -r 'system(\"{c}\");'",
    "deno": lambda c: f"deno eval 'new Deno.Command(\"{c}\")'",
    "awk": lambda c: f"awk 'BEGIN {{ system(\"{c}\") }}'",
    "awk that pipes": lambda c: f"awk 'BEGIN {{ print 1 | \"{c}\" }}'",
    "awk that reads": lambda c: f"awk 'BEGIN {{ \"{c}\" | getline }}'",
    "awk by its input": lambda c: f"echo '{c}' | awk '{{ system($0) }}'",
    "awk into a shell": lambda c: f"echo {c} | mawk '{{ print | \"sh\" }}'",
    "a script of awk by input": lambda c: f"echo 'BEGIN {{ system(\"{c}\") }}' | awk -f -",
    "sed": lambda c: f"echo | sed '1e{c}'",
    "sed by its input": lambda c: f"echo '{c}' | sed e",
    "sed that replaces": lambda c: f"echo x | sed 's/x/{c.replace('/', '.')}/e'",
    "a script of sed by input": lambda c: f"echo 'e {c}' | sed -f - {__file__}",
    "env that splits": lambda c: f"env -S '{c}'",
    "env that splits its option": lambda c: f"env '-iS{c}'",
    "env that escapes": lambda c: f"env -S '{c.replace(' ', chr(92) + '_')}'",
    "perl by its input": lambda c: f"echo '{c}' | perl -ne 'system $_'",
    "python by data": lambda c: f"echo '{c}' | python3 -c 'import os; os.system(input())'",
    "an option with the program": lambda c: f"fd -x{c}",
    "find": lambda c: f"find . -maxdepth 0 -exec {c} ;".replace(" ;", " \\;"),
    "a launcher that is not known": lambda c: f"uv run python -c 'import os; os.system(\"{c}\")'",
    "a launcher with input": lambda c: f"echo {c} | setsid -w bash",
    "an editor": lambda c: f"echo '!{c}' | ed",
    "at": lambda c: f"echo {c} | at now",
}
"""How a plain line executes a command, or may."""
