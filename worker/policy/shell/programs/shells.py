"""Shells, and builtins that execute texts as commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask
from deputize.worker.policy.shell.names import names

SHELLS = names("sh bash dash zsh ksh mksh ash rbash fish yash posh")


def shell(argv: Argv) -> Judgement:
    """``sh -c TEXT``, ``sh FILE`` and ``sh`` alone, which reads its input."""
    name = argv[0].shown
    at, is_text = 1, False
    while at < len(argv) and argv[at].text[:1] in ("-", "+") and len(argv[at].text) > 1:
        option = argv[at].text
        at += 1
        if option == "--":
            break
        if option.startswith("--"):
            at += option in ("--rcfile", "--init-file")
            continue
        is_text = is_text or "c" in option
        at += "o" in option[1:] or "O" in option[1:]
    rest = argv[at:]
    if any(word.splits for word in argv[1:at]):
        is_text = True
    if not is_text:
        return Judgement(Decision.ASK, f"{name} runs a script", reads_script=True, remembered=len(argv))
    # An option may have been read wrongly: every later word could be the text.
    maybe = tuple(_texts(rest[1:]))
    if rest and rest[0].known:
        return Judgement(
            Decision.ALLOW, f"{name} runs a text", scripts=(rest[0].text,), may_execute=maybe, remembered=0
        )
    return Judgement(
        Decision.ASK,
        f"{name} runs a text that only the shell knows",
        may_execute=(*_texts(rest[:1]), *maybe),
        reads_script=not rest,
        remembered=0,
    )


def _texts(words: Argv) -> list[str]:
    return [text for word in words for text in (word.text, *word.guesses)]


def evaluate(argv: Argv) -> Judgement:
    words = argv[2:] if len(argv) > 1 and argv[1].text == "--" else argv[1:]
    text = " ".join(word.text for word in words)
    if all(word.known for word in words):
        return Judgement(Decision.ALLOW, "eval runs a text", scripts=(text,), remembered=0)
    return Judgement(
        Decision.ASK, "eval runs a text that only the shell knows", may_execute=(text, *_texts(words)), remembered=0
    )


def source(argv: Argv) -> Judgement:
    return Judgement(Decision.ASK, f"{argv[0].shown} runs a script", reads_script=True, remembered=len(argv))


def trap(argv: Argv) -> Judgement:
    return Judgement(Decision.ASK, "trap runs a text later", may_execute=tuple(_texts(argv[1:3])), remembered=0)


def alias(argv: Argv) -> Judgement:
    values = [text.partition("=")[2] for text in _texts(argv[1:])]
    return Judgement(Decision.ASK, "alias changes what a command is", may_execute=tuple(values), remembered=0)


def callback(argv: Argv) -> Judgement:
    """``mapfile -C TEXT``, ``compgen -C TEXT`` and ``complete -C TEXT``."""
    texts = _texts(argv[1:])
    inside = [text[2:] for text in texts if text.startswith("-C")]
    return Judgement(
        Decision.ASK,
        f"{argv[0].shown} changes the shell",
        may_execute=(*texts, *inside),
        expands=tuple(texts),
        remembered=0,
    )


def changes_shell(argv: Argv) -> Judgement:
    """Builtins that change later commands, or calculate with a text: then ``a[$(…)]`` runs."""
    reason = f"{argv[0].shown} changes the shell"
    return Judgement(Decision.ASK, reason, expands=tuple(_texts(argv[1:])), remembered=0)


def stops(argv: Argv) -> Judgement:
    """``exit``, ``break`` and the like with a number."""
    if all(word.text.isdigit() for word in argv[1:]):
        return Judgement(Decision.ALLOW, f"{argv[0].shown} only goes on elsewhere")
    return ask(f"{argv[0].shown} calculates with its argument")


def applet(argv: Argv) -> Judgement:
    """``busybox reboot``: its first argument is the program."""
    return Judgement(Decision.ASK, f"{argv[0].shown} runs another program", starts=(argv[1:],) if argv[1:] else ())


_CHANGES = names("export declare typeset local readonly let read unset set shopt enable hash getopts ulimit umask bind")
BUILTINS: Mapping[str, Callable[[Argv], Judgement]] = {
    **dict.fromkeys(SHELLS, shell),
    "eval": evaluate,
    "source": source,
    ".": source,
    "trap": trap,
    "alias": alias,
    **dict.fromkeys(("mapfile", "readarray", "compgen", "complete"), callback),
    **dict.fromkeys(_CHANGES, changes_shell),
    **dict.fromkeys(("exit", "return", "break", "continue"), stops),
    **dict.fromkeys(("busybox", "toybox"), applet),
}
