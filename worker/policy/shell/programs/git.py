"""``git``: which of its commands only read, and which of its options start programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, reads
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.places import why_elsewhere
from deputize.worker.policy.shell.words import Word

_READ = names(
    "status log diff show rev-parse ls-files ls-tree cat-file blame annotate describe shortlog rev-list "
    "merge-base name-rev grep for-each-ref show-ref show-branch whatchanged diff-tree diff-index diff-files "
    "count-objects check-ignore check-attr range-diff cherry version"
)
_LISTS: Mapping[str, Callable[[list[str]], bool]] = {
    "branch": lambda given: (
        _only(given, "-a -r -v -vv -l --all --remotes --verbose --list --show-current --merged --no-merged")
        and (not _operands(given) or bool({"-l", "--list"} & set(given)))
    ),
    "tag": lambda given: _only(given, "-l --list -n") and (not _operands(given) or bool({"-l", "--list"} & set(given))),
    "remote": lambda given: given in ([], ["-v"], ["--verbose"]) or (given[0] == "get-url" and len(given) == 2),
    "stash": lambda given: given[:1] == ["list"] or given[:1] == ["show"],
    "config": lambda given: given[:1] in (["--get"], ["--list"], ["-l"], ["--get-all"]) and len(given) <= 2,
    "reflog": lambda given: not given or given[0] in ("show", "HEAD"),
    "worktree": lambda given: given == ["list"],
    "notes": lambda given: given[:1] in (["list"], ["show"]),
}
"""Commands that list with some arguments and change something with others."""
_DANGEROUS = ("output", "open-files-in-pager", "ext-diff", "textconv", "upload-pack", "exec", "filters", "paginate")
"""Long options that write or start something; git takes any unambiguous beginning of them."""
_PLAIN_GLOBAL = names("--no-pager -P --no-optional-locks --literal-pathspecs --version --help --no-replace-objects")
_VALUED_GLOBAL = names("-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source")
_EXECUTES = names(
    "-x --exec -O --open-files-in-pager --upload-pack --receive-pack -u --extcmd --tree-filter --index-filter "
    "--msg-filter --env-filter --parent-filter --commit-filter --tag-name-filter --setup --sequence-editor"
)
_STARTS = {"bisect": "run", "submodule": "foreach"}


def git(argv: Argv) -> Judgement:
    at, odd, texts = _globals(argv)
    command = argv[at].text if at < len(argv) else ""
    texts += _executed(argv[at:])
    remembered = at + 1 if at < len(argv) else 0
    starts = _started(argv[at:])
    given = argv[at + 1 :]
    why = odd or _why_not_reading(command, given)
    if not command and not odd:
        return reads("git")
    if why is None:
        return reads(f"git {command}")
    plainly = ([argv[0], *argv[at:]],) if at > 1 else ()
    return Judgement(Decision.ASK, why, starts, plainly, may_execute=tuple(texts), remembered=0 if odd else remembered)


def _globals(argv: Argv) -> tuple[int, str, list[str]]:
    """Returns where the command stands, why the options before it need approval, and texts that they may execute."""
    at, odd, texts = 1, "", list[str]()
    while at < len(argv) and (argv[at].text.startswith("-") or argv[at].splits):
        word = argv[at]
        name, equals, value = word.text.partition("=")
        if name in _VALUED_GLOBAL or word.text.startswith(("-c", "-C")):
            odd = f"git {word.shown} may change what it does"
            if not equals and name in _VALUED_GLOBAL:
                at += 1
                value = argv[at].text if at < len(argv) else ""
            texts += _shell_values(word.text[2:], value)
        elif word.text not in _PLAIN_GLOBAL:
            odd = f"git {word.shown} may change what it does"
        at += 1
    return at, odd, texts


def _shell_values(*texts: str) -> list[str]:
    return [each.lstrip("!|") for text in texts for each in (text, text.partition("=")[2]) if each]


def _executed(argv: Argv) -> list[str]:
    """Returns the texts that a command executes: values of some options, and aliases that are being set."""
    texts: list[str] = []
    for at, word in enumerate(argv):
        name, equals, value = word.text.partition("=")
        if name in _EXECUTES:
            texts += [value] if equals else [argv[at + 1].text] if at + 1 < len(argv) else []
        elif word.text[:2] in ("-O", "-x"):
            texts.append(word.text[2:])
        elif word.text.startswith("!"):
            texts.append(word.text[1:])
    if argv and argv[0].text == "config":
        texts += [word.text for word in argv[2:]]
    return texts


def _started(argv: Argv) -> tuple[Argv, ...]:
    if len(argv) > 2 and _STARTS.get(argv[0].text) == argv[1].text:
        command = [word for word in argv[2:] if not word.text.startswith("-")]
        return (argv[2:], [Word.literal("eval"), *command])
    return ()


def _why_not_reading(command: str, given: Argv) -> str | None:
    texts = [word.text for word in given]
    if command in _LISTS:
        lists = all(word.known for word in given) and _LISTS[command](texts)
        return None if lists else f"git {command} may change the repository"
    if command not in _READ:
        return f"git {command} may change something"
    for word in given:
        if word.text == "--":
            break
        if word.splits or (not word.known and word.text[:1] in "-*?[\0"):
            return f"git {command} gets the unknown argument {word.shown}"
        if _is_dangerous(word.text, command):
            return f"git {command} {word.shown} may write or start a program"
    elsewhere = why_elsewhere(given)
    return f"git {command} {elsewhere}" if elsewhere else None


def _is_dangerous(text: str, command: str) -> bool:
    if text.startswith("--"):
        name = text[2:].partition("=")[0]
        return bool(name) and any(each.startswith(name) for each in _DANGEROUS)
    if text.startswith("-O"):
        return True
    return command == "grep" and re.match(r"-[A-Za-z]*O", text) is not None


def _operands(given: list[str]) -> list[str]:
    return [text for text in given if not text.startswith("-")]


def _only(given: list[str], options: str) -> bool:
    return all(text in names(options) or not text.startswith("-") for text in given)
