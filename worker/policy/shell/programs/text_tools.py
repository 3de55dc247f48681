"""Programs for texts and files that only read with some of their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, reads
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.places import why_elsewhere
from deputize.worker.policy.shell.programs.options import Options, operands_of
from deputize.worker.policy.shell.programs.scripted_filters import awk, sed


@dataclass(frozen=True, slots=True)
class Filter:
    """A program that only reads with these options and at most so many operands."""

    options: Options
    most: int | None = None
    operand: str = ""
    """The pattern that operands must match."""
    executes: tuple[str, ...] = ()
    """The beginnings of options whose value a shell or the program executes."""

    def __call__(self, argv: Argv) -> Judgement:
        name = argv[0].shown
        operands = operands_of(self.options, argv)
        if operands is None:
            texts = _values(argv, self.executes)
            reason = f"{name} may change something with these options"
            return Judgement(Decision.ASK, reason, may_execute=texts, remembered=len(argv))
        if self.most is not None and len(operands) > self.most:
            return ask(f"{name} may write {operands[-1].shown}")
        if self.operand and not all(re.fullmatch(self.operand, word.text) for word in operands):
            return ask(f"{name} may change something with these arguments")
        elsewhere = why_elsewhere(argv[1:])
        return ask(f"{name} {elsewhere}") if elsewhere else reads(name)


def _values(argv: Argv, beginnings: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the values of options: after ``=``, as the rest of the word, and as the next word."""
    texts: list[str] = []
    for at, word in enumerate(argv):
        if any(
            word.text.startswith(each) or (len(word.text) > 2 and each.startswith(word.text.partition("=")[0]))
            for each in beginnings
        ):
            following = [argv[at + 1].text] if at + 1 < len(argv) else []
            texts += [word.text.partition("=")[2], word.text.rpartition("=")[2], word.text[2:], *following]
    return tuple(text for text in texts if text)


def tail(argv: Argv) -> Judgement:
    for word in argv[1:]:
        text = word.text
        short = text[:1] == "-" != text[1:2]
        if text.startswith(("--f", "--r")) or (short and re.search("[fF]", text)):
            return ask("tail waits for more")
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"tail {elsewhere}") if elsewhere else reads("tail")


def printf(argv: Argv) -> Judgement:
    first = argv[1] if len(argv) > 1 else None
    if first and (first.text.startswith("-") or not first.known):
        texts = tuple(word.text for word in argv[1:])
        return Judgement(Decision.ASK, "printf may set a variable", expands=texts, remembered=0)
    return reads("printf")


def test(argv: Argv) -> Judgement:
    texts = tuple(word.text for word in argv[1:])
    if any(text in ("-v", "-R") for text in texts) or any(word.splits for word in argv):
        return Judgement(Decision.ASK, f"{argv[0].shown} may calculate with a text", expands=texts, remembered=0)
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"{argv[0].shown} {elsewhere}") if elsewhere else reads(argv[0].shown)


_TAR_LISTS = re.compile(r"-?t[vzjJ]*f[vzjJ]*|-?[vzjJ]+tf")


def tar(argv: Argv) -> Judgement:
    if len(argv) == 3 and _TAR_LISTS.fullmatch(argv[1].text) and argv[2].known and argv[2].text[:1] != "-":
        elsewhere = why_elsewhere(argv[2:])
        return ask(f"tar {elsewhere}") if elsewhere else reads("tar")
    texts = _values(argv, _TAR_EXECUTES)
    return Judgement(Decision.ASK, "tar may write or start a command", may_execute=texts, remembered=len(argv))


_TAR_EXECUTES = ("--checkp", "--to-command", "--use-compress-program", "-I", "-F", "--info-script",
                 "--new-volume-script", "--rsh-command", "--rmt-command")  # fmt: skip
_SORT = Options(
    "bdfghiMnRrVcCmsuz", "kt",
    tuple(names(
    "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort "
    "human-numeric-sort numeric-sort random-sort reverse version-sort check merge stable unique zero-terminated"
)),
    ("key", "field-separator", "sort"),
)  # fmt: skip
_UNIQ = Options(
    "cdDiuz", "fsw", tuple(names("count repeated all-repeated ignore-case unique zero-terminated group")),
    ("skip-fields", "skip-chars", "check-chars"),
)  # fmt: skip
_TREE = Options(
    "adfilhsptrDCnqNQvUFugx", "LPI", ("dirsfirst", "gitignore", "noreport", "du", "si", "prune"), ("filelimit",)
)
_FILE = Options("bhiLkNnprs0", "F", ("brief", "mime", "mime-type", "mime-encoding", "dereference"), ("separator",))
_SHUF = Options("erz", "n", ("echo", "repeat", "zero-terminated"), ("head-count",))
_XXD = Options("abeEuip", "clsog")
_DATE = Options("uR", "dr", ("utc", "universal", "rfc-email"), ("date", "reference", "iso-8601", "rfc-3339"))
_PAGER_COMMANDS = ("-P", "--pager", "-H", "--html")
TEXT_TOOLS: Mapping[str, Callable[[Argv], Judgement]] = {
    "sort": Filter(_SORT, executes=("--compress-program",)),
    "uniq": Filter(_UNIQ, most=1),
    "tree": Filter(_TREE),
    "file": Filter(_FILE),
    "shuf": Filter(_SHUF),
    "xxd": Filter(_XXD, most=1),
    "date": Filter(_DATE, operand=r"\+.*"),
    "ps": Filter(Options("efAaxjl", "opCu"), operand="[aux]+"),
    "hostname": Filter(Options(), most=0),
    "sleep": Filter(Options(), operand=r"[\d.]+[smhd]?"),
    "man": Filter(Options("\0"), most=-1, executes=_PAGER_COMMANDS),
    "tail": tail,
    "printf": printf,
    "test": test,
    "[": test,
    "sed": sed,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
    "tar": tar,
}
