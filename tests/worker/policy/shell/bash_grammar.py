"""Random lines of bash's grammar, much wider than what is read of it: whole constructs, and soups of its tokens; and
lines that could change files although they seem to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

PROGRAMS = ("ls", "cat", "grep", "wc", "head", "git", "sort", "touch", "make", "sudo", "mkfs", "unshare", "timeout")
"""Programs that only note that they ran."""
_ARGUMENTS = ("-l", "x", "a b", "src/f.py", "--", "-n5", "HEAD~1", "e=1", "", "a;b", "#", "!", "a'b", "é", "{}", "a\nb")
_TOKENS = (
    *(PROGRAMS * 2),
    *("x", "-n", "a=b", "E", "if", "then", "fi", "do", "done", "case", "in", "esac", "for", "echo", "eval", "time"),
    *(" ", " ", " ", " ", "\n", "\n", "\t", ";", "&&", "||", "|", "&", "|&", ";;", "!", "#", "# x \\\n", "\\\n", "\\"),
    *("'", "'", '"', '"', "$", "$'", '$"', "`", "$(", "${x-", "${", "((", "$((", "[[", "]]", "(", ")", "{", "}", "<("),
    *("<<E\n", "<<'E'\n", "<<-E\n", "\nE\n", "<<<", ">", "2>&1", ">/dev/null", "2>", "&>/dev/null", "<", "</dev/null"),
    *("*", "?", "[", "]", "~", "=", ",", "..", "@", "é", "\u00a0", "\\'", '\\"', "\\ ", "''", '""', "'#'", "x#y",
      "{a,b}"),
)  # fmt: skip
_MILD = (
    *(PROGRAMS * 3),
    *("x", "-n", "E", "if", "in", "[", "]", " ", " ", " ", " ", " ", " ", "\n", "\t", ";", "&&", "||", "|", "|", "#x"),
    *("# y \n", " \\\n", "\\'", '\\"', "\\#", "\\ ", "''", '""', "'#'", "x#y", "'a b'", '"a;b"', '"\\\\$x"', "\\;",
      "'\\'", '"x$"'),
    *(" 2>&1", " >/dev/null", " 2> /dev/null ", "&>/dev/null", "</dev/null", "src/*", "~1", "{}", "!", "a=~", ":",
      "é", "="),
)  # fmt: skip
"""Of these tokens many lines are plain."""
_QUOTINGS: Sequence[Callable[[str], str]] = (
    lambda text: "'" + text.replace("'", "'\\''") + "'",
    lambda text: '"' + "".join(f"\\{char}" if char in '"\\$`' else char for char in text) + '"',
    lambda text: "".join(
        char if char.isalnum() or char in "-_./~=" else f"\\{char}" for char in text.replace("\n", "")
    ),
    lambda text: f"{text[:1]!r}'{text[1:]}'" if text.isalnum() else "''",
    lambda text: "$'" + "".join(f"\\x{ord(char):02x}" for char in text if ord(char) < 128) + "'",
)
_WORDS: Sequence[Callable[[str], str]] = (
    lambda line: f"$({line})",
    lambda line: f"`{line}`" if "`" not in line else "x",
    lambda line: f'"$({line})"',
    lambda line: f"\"${{x-'$({line})'}}\"",
    lambda line: f"${{x:-$({line})}}",
    lambda line: f'"${{x+"$({line})"}}"',
    lambda line: f"<({line})",
    lambda line: f"$(($({line}) + 1))",
    lambda line: f"{{x,$({line})}}",
    lambda line: f"'$({line})'",
    lambda line: f"\\$({line!r})",
)
_LINES: Sequence[Callable[[str, str], str]] = (
    lambda one, two: f"{one}; {two}",
    lambda one, two: f"{one} && {two}",
    lambda one, two: f"{one} || {two}",
    lambda one, two: f"{one} | {two}",
    lambda one, two: f"{one}\n\n  {two}",
    lambda one, two: f"{one} |\n {two}",
    lambda one, two: f"{one} && # {two}\n {one}",
    lambda one, two: f"{one} # {two}",
    lambda one, two: f"{one} # \\\n{two}",
    lambda one, two: f"{one} \\\n {two}",
    lambda one, two: f"{one} & {two}; wait",
    lambda one, two: f"{one} >/dev/null 2>&1; {two} 2>/dev/null",
    lambda one, two: f"{one} > out; {two} < out",
    lambda one, two: f"cat <<E\n{one}\n$({two})\nE",
    lambda one, two: f"cat <<'E'\n{one}\nE\n{two}",
    lambda one, two: f"cat <<E\n\\\nE\n{one}\nE\n{two}",
    lambda one, two: f"cat <<-E\n\t${{x-'$({one})'}}\n\tE\n{two}",
    lambda one, two: f"f() {{ {one}\n}}; f; {two}",
    lambda one, two: f"if {one}\nthen {two}\nfi",
    lambda one, two: f"for i in 1 2; do {one}\ndone; {two}",
    lambda one, two: f"case x in (x) {one}\n;; *) {two}\n;; esac",
    lambda one, two: f"while {one}\ndo {two}\nbreak; done",
    lambda one, two: f"( {one}\n{two} )",
    lambda one, two: f"{{ {one}\n{two}\n}}",
    lambda one, two: f"x='a[$({one})]'; echo $((x)); {two}",
    lambda one, two: f"! {one}\n{two}",
    lambda one, two: f"eval {_QUOTINGS[0](one)}; {two}",
    lambda one, two: f"bash -c {_QUOTINGS[1](one)}; {two}",
    lambda one, two: f"alias ls=touch\n{one}\n{two}",
    lambda one, two: f"[[ -n $({one}) ]] && {two}",
    lambda one, two: f"A=1 {one}\n{two}",
)


THAT_CHANGED_FILES = [
    "for x in $(cat f); do echo $((x)); done", "[[ $(cat f) -eq 1 ]]", "echo ${PWD:x}", "echo ${PATH[x]}", "echo $[x]",
    "for x in *; do [[ $x -eq 1 ]]; done", "for o in $(cat f); do test \"$o\" 'a[$(touch pwned)]'; done",
    'for x in $(cat f); do find . "$x"; done', "git grep -e -- -O./evil.sh", "git diff -S -- --output=f",
    "git diff HEAD -G -- --output=f", "git grep -1O./evil.sh x", "git reflog show --output=Makefile --format=x",
    "git stash list --output=f", "git stash show --output=f", "git stash list -p --ext-diff",
    "git reflog show -p --ext-diff", "bash --rcfile ./evil.sh -ic ls", "bash --init-file ./evil.sh -ic ls",
    "find . *", "rg *", "sort *", "git log *", "wc *", "test -v 'a[$(touch pwned)]'", "[ -v 'a[$(touch pwned)]' ]",
    "printf -v 'a[$(touch pwned)]' x", "printf %n 'a[$(touch pwned)]'", "uniq f*", "awk '{print}' x=1", "date -us x",
    "git branch -v x -d", "xxd f*", "xxd f -u", "sort -o f f", "tree -o f", "/usr/bin/git status",
    "cd sub && git status", "ls --all=x", "git log -p -- --output=f", "./ls", ".venv/bin/ls", "file -C -m f",
]  # fmt: skip
"""Lines that were judged to only read, or nearly so, and could change files."""


def random_line(random: Random) -> str:
    """A line without a loop that does not end, which names no file outside of its directory."""
    if random.random() < 0.5:
        tokens = _MILD if random.random() < 0.7 else _TOKENS
        return "".join(random.choice(tokens) for _ in range(random.randint(2, 14)))
    return _line(random, random.randint(0, 3))


def _line(random: Random, depth: int) -> str:
    if depth:
        return random.choice(_LINES[:10] if random.random() < 0.7 else _LINES)(
            _line(random, depth - 1), _line(random, random.randint(0, depth - 1))
        )
    words = [random.choice(PROGRAMS)]
    if random.random() < 0.2:
        words = [random.choice(_QUOTINGS)(words[0])]
    for _ in range(random.randint(0, 3)):
        word = random.choice(_ARGUMENTS)
        if random.random() < 0.08:
            words.append(random.choice(_WORDS)(_line(random, 0)))
        else:
            words.append(random.choice(_QUOTINGS[:3])(word) if random.random() < 0.7 else word)
    return random.choice((" ", "  ", "\t")).join(words)
