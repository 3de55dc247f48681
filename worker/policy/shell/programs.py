"""The table of programs, with the options with which each only reads, and how arguments are read by it.

A command with an option that the table lacks needs approval, and an answer is remembered for the same words at most.
Options that force, write elsewhere or start a program must not be added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...sandbox.environment import MOUNT
from .plain_line import Argv, Word

_SED = (
    r"(?:(?:\d+|\$|/[\w .:#*^$-]*/)(?:,(?:\d+|\$|\+\d+|/[\w .:#*^$-]*/))?!?)?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n\0]|\\[^\n\0])*\1(?:(?!\1)[^\\\n\0]|\\[^\n\0])*\1[gpIi\d]*"
)
_AWK_VALUE = r"(?:\$(?:\d+|NF)|NR|NF|\"[^\"\\\0]*\")"
_AWK = (
    r"(?!\0)(?:NR[ =<>!]+\d+|NF|/[\w .:#*^$-]*/|\$\d+ *[=!~<>]+ *(?:\d+|\"[^\"\\\0]*\"))? *"
    rf"(?:\{{ *print(?: ++{_AWK_VALUE}(?: *+,? *+{_AWK_VALUE})*+)? *\}})?"
)
_OPERANDS = {
    "NONE": "",
    "ONE": r"[^\0]*",
    "FOLDER": r"(?!(?:.*/)?\.git(?:/|$))[^\0]*",
    "DATE": r"(?:\+.*)?",
    "TIME": r"[\d.]+[smhd]?",
    "NUMBER": r"\d*",
    "PROCESSES": r"[aux]*",
    "FORMAT": r"(?!.*%[^a-zA-Z%]*n).+",  # %n sets a variable
    "SED": rf"(?:{_SED})(?:\0.*)?",
    "AWK": rf"(?:{_AWK})(?:\0[^=\0]*)*",
    # Files that are not git's, names of packages, a remote and its branches: nothing that leads elsewhere or forces.
    "FILES": r"(?:(?!(?:[^\0]*/)?\.git(?:[/\0]|$))[\w.@%,][^\0]*(?:\0|$))*",
    "PACKAGES": r"(?:(?:@[\w-]+/)?\w(?:(?!\.[twz])[\w.-])*(?:\[[\w,]+\])?(?:(?:@|[=<>~!]=)[\w.*^~-]+)?(?:\0|$))*",
    "BRANCHES": r"(?:[\w-]+(?:\0\w[\w./-]*)*)?",
    "REMOTE": r"(?:[\w-]+(?:\0\w[\w./-]*)*)?",
    "ARCHIVE": r"(?!.*:)[^\0]*",  # with a colon it lies on another machine
    "PLAIN": r"(?:(?!@)[^\0]*(?:\0|$))*",  # a name behind @ is a file with further arguments
    "REFS": r"(?:\w[\w./-]*(?:\0|$))*",
}
_TABLE = """
cat: -AbeEnstTuv --number --show-all
grep|egrep|fgrep: TEXT @grep -abcEFGhHiILlnoPqRrsTUvwxyzZ -ABCmdDe~ -f= --file=
@grep: -# --color? --count --line-number --ignore-case --invert-match --word-regexp --files-with-matches --quiet
    --files-without-match --only-matching --no-messages --recursive --extended-regexp --fixed-strings --perl-regexp
    --with-filename --no-filename --text --null --max-count~ --include~ --exclude~ --exclude-dir~ --after-context~
    --before-context~ --context~ --regexp~
rg: TEXT @grep -abcFHhiIlLnNopPqsSUuvwx0. -ABCEeMmgtTdjr~ -f= --files --hidden --no-ignore --no-ignore-vcs --glob~
    --iglob~ --type~ --type-not~ --count-matches --json --sort~ --sortr~ --stats --max-depth~ --no-heading --heading
    --no-line-number --multiline --replace~ --line-regexp --smart-case --case-sensitive --type-list --vimgrep --trim
    --pcre2 --passthru --max-columns~ --column --unrestricted --version ASKING -z --search-zip
fd|fdfind: TEXT -HIuLapFgi0qs1 -etdEcj~ --hidden --no-ignore --glob --full-path --extension~ --type~ --max-depth~
    --min-depth~ --exclude~ --color~ --max-results~ --size~ --follow --changed-within~
sort: -bdfghiMnRrVcCmsuz -kt~ --ignore-case --general-numeric-sort --human-numeric-sort --numeric-sort --reverse
    --version-sort --check? --merge --stable --unique --zero-terminated --key~ --field-separator~ ASKING -o= --output=
head|tail: -qvz -# -nc~ --lines~ --bytes~ --quiet --verbose
md5sum|sha1sum|sha224sum|sha256sum|sha384sum|sha512sum|b2sum: -bctwz --check --quiet --status --tag --strict
true|false|:|expr|factor: TEXTS
echo: TEXTS -neE
seq: TEXTS -# -sf~ -w --separator~ --format~
ls|dir|vdir: -aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I= -Tw~ --all --almost-all --human-readable --color? --sort~ --time~
    --time-style~ --group-directories-first --full-time --recursive --reverse --size --directory --classify? --hide~
    --ignore~ --inode --si --format~ --zero
wc: -clmLw --lines --words --bytes --chars --max-line-length
pwd: NONE -LP
cd: FOLDER -LP
basename: TEXTS -az -s~ --multiple --suffix~
dirname|which|type|id|groups: TEXTS -azugGnrfptP --all
stat|du|df|realpath|readlink|tac|rev|fold|fmt|paste|join|comm|expand|unexpand|od|cksum|cmp|nl|base64|cut:
    -abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ123? --all --format~ --printf~ --apparent-size --total --decode
    --human-readable --max-depth~ --summarize --exclude~ --delimiter~ --fields~ --complement --inodes --canonicalize
hexdump: -bcCdovx -nse~
strings: PLAIN -afwo -#nte~ --all --bytes~ --radix~
tr: TEXTS -cCdst --delete --squeeze-repeats
xxd: ONE -abeEuip -clsog~
diff: -aBbdEiNqrstTuwyZpc -# -UCIWxL~ --brief --unified? --recursive --ignore-all-space --ignore-space-change
    --ignore-blank-lines --side-by-side --width~ --color? --exclude~ --label~ --strip-trailing-cr --text --new-file
whoami|arch|tty|nproc|uname|uptime|hostname: NONE -amnrsvpio --all
uniq: ONE -cdDiuz -fsw~ --count --repeated --ignore-case --unique --skip-fields~ --skip-chars~ --check-chars~
tree: -adfilhsptrDCnqNQvUFugxJX -LPI~ --dirsfirst --gitignore --noreport --du --si --prune --filelimit~
file: -bhiLkNnprs0 -F~ --brief --mime --mime-type --mime-encoding --dereference
date: DATE -uR -I? -d~ -r= --utc --date~ --reference= --iso-8601? --rfc-3339~
ps: PROCESSES -efAaxjl -opCu~
sleep: TIME
xargs: NONE -0rt -ndP~
printf: TEXTS FORMAT
sed: TEXT SED -nErsuz --quiet --silent --regexp-extended
awk|gawk|mawk|nawk: TEXT AWK -F~ --field-separator~
tar tf|tar tvf|tar tzf|tar -tf|tar -tvf|tar -tzf: ARCHIVE
command: NONE
command -v|command -V: TEXTS
exit|return|break|continue: NUMBER
touch: CHANGES FILES -acm -d~ --no-create
mkdir: CHANGES FILES -pv --parents
cp: CHANGES FILES -aprRvnu --recursive --archive --verbose --no-clobber
pytest: CHANGES FILES -qvxsl -kmn~ -r? --lf --ff --sw --quiet --verbose --tb~ --maxfail~ --durations~ --collect-only
mypy|pyright|basedpyright|black|isort|eslint|prettier|tsc|jest|vitest: CHANGES FILES -qvw --strict --stats --check
    --diff --quiet --verbose --fix --write --noEmit --pretty --coverage --run --silent
make: CHANGES EXACT REFS -kBnqs -j? --silent --dry-run
apt install|apt-get install: CHANGES EXACT PACKAGES -qy --yes
ruff check: CHANGES FILES -q --fix --diff --quiet --select~ --ignore~ --output-format~ --statistics
ruff format: CHANGES FILES -q --check --diff --quiet
npm test|npm ci|npm outdated|pnpm test|yarn test|pip list|pip freeze|pip check: CHANGES NONE -qs --silent
npm list|npm ls|npm ll|npm la|npm explain|npm why: TEXTS -aglsp -w~ --all --global --json --long --parseable --depth~
    --omit~ --include~ --link --package-lock-only --silent --workspaces --workspace~
npm install|npm i|pnpm add|pnpm install|yarn add: CHANGES PACKAGES -DES --save-dev --save-exact --silent --no-audit
pip install|pip3 install: CHANGES PACKAGES -qU --upgrade --quiet --user
cargo build|cargo test|cargo check|cargo clippy|cargo fmt|cargo doc: CHANGES BRANCHES -qv -pj~ --release --workspace
    --all --all-targets --all-features --no-default-features --features~ --package~ --lib --bins --tests --test~ --bin~
    --no-fail-fast --locked --offline --quiet --verbose --check
go build|go test|go vet|go fmt: CHANGES FILES -v
git: NONE --version
git status: -sbvz -u? --short --branch --porcelain? --long --untracked-files? --ignored? --show-stash --no-renames
@diff: -psuzwbaRqWD -# -MCBU? -SG~ --stat? --numstat --shortstat --name-only --name-status --summary --patch --no-patch
    --raw --cached --staged --word-diff? --color? --no-color --minimal --patience --histogram --find-renames? --check
    --no-renames --ignore-space-change --ignore-all-space --ignore-blank-lines --no-ext-diff --no-ext --no-textconv
    --exit-code --quiet --diff-filter~ --function-context --unified~ --full-index --abbrev? --binary --text --relative?
    --merge-base --compact-summary --dirstat? --pickaxe-regex --pickaxe-all --color-words? --color-moved?
@log: @diff -iEFcmgt -nL~ --oneline --graph --decorate? --no-decorate --all --branches? --tags? --remotes? --format~
    --pretty? --abbrev-commit --no-abbrev-commit --reverse --merges --no-merges --first-parent --follow --author~
    --committer~ --grep~ --since~ --until~ --after~ --before~ --date~ --max-count~ --skip~ --topo-order --date-order
    --left-right --cherry-pick --cherry-mark --no-walk? --source --cc --simplify-by-decoration --ancestry-path
    --parents --children --boundary --relative-date --notes? --no-notes --not --count
git diff: @diff
git log|git show|git rev-list: @log
git shortlog: -sne -# --numbered --summary --email --all --no-merges --since~ --until~
git reflog: NONE
git rev-parse: -q --short? --abbrev-ref? --show-toplevel --git-dir --is-inside-work-tree --verify --all --show-prefix
    --show-cdup --symbolic-full-name --absolute-git-dir --git-common-dir
git ls-files: -cdmosuztvi -x~ --cached --deleted --modified --others --stage --exclude-standard --error-unmatch
    --full-name --ignored --exclude~ --directory
git ls-tree|git cat-file: -rdtlzpse --name-only --full-tree --full-name --long
git blame|git annotate: -lswefnp -L~ -CM? --porcelain --line-porcelain --date~
git describe: --tags --always --long --abbrev? --all --match~ --exact-match
git merge-base|git show-ref: -asdq --is-ancestor --all --fork-point --heads --tags --head --verify
git grep: TEXT @grep -niclwEFPGvhHqoIazpWr -ABCem~ -f= --cached --name-only --untracked --heading --break --and --or
    --not --max-depth~
git for-each-ref: --format~ --sort~ --count~ --contains? --merged? --points-at~
git check-ignore: -vqn --verbose --quiet --no-index
git branch: NONE -arlv --all --remotes --verbose --list --show-current --merged? --no-merged? --contains? --sort~
git tag: NONE -l -n? --list --sort~ --contains? --merged? --points-at?
git branch -l|git branch --list|git tag -l|git tag --list: -arvin --sort~
git remote: NONE -v --verbose
git config --get|git config --get-all: ONE
git config --list|git config -l|git stash list|git worktree list|git notes list: NONE
git remote get-url: ONE
git add: CHANGES FILES -Auvn --all --update --verbose --dry-run
git commit: CHANGES FILES -aqvs -m~ --message~ --all --allow-empty --signoff --quiet
git push|git pull|git fetch: CHANGES REMOTE -uqvp --set-upstream --quiet --verbose --tags --ff-only --prune --depth~
git switch: CHANGES REFS -q -bc~ --quiet --create~
git merge|git rebase: CHANGES REFS -q -m~ --no-ff --ff-only --no-edit --squash --abort --continue --skip --quiet
git branch NAME|git tag NAME: CHANGES REFS
"""
"""A line per program, or subcommand: options as ``options`` reads them. TEXT: the first operand is not a path; TEXTS:
none is; CHANGES: it never only reads; EXACT: an answer is remembered for the same words only; REMOTE: also for the
first operand; a name of ``_OPERANDS``: what all operands must be. ``@name`` inserts what another line names.
"""
_ELSEWHERE = re.compile(
    rf"(?!/dev/(?:null|std(?:in|out|err))\Z)/(?!{MOUNT[1:]}(?:/|\Z)).*|(?:.*/)?\.\.(?:/.*)?", re.DOTALL
)


def options(words: Iterable[str]) -> Mapping[str, str]:
    """Returns what each option takes, from words such as ``-abc``, ``-n~`` and ``--color?``.

    ``=`` takes a path, ``~`` another text, ``?`` a text that stands in the same word or is left out; ``-#`` stands for
    any number.
    """
    found: dict[str, str] = {}
    for word in words:
        kind = word[-1] if word[-1] in "=~?" else ""
        name = word.removesuffix(kind)
        for each in [name] if name.startswith("--") else [f"-{letter}" for letter in name[1:]]:
            found[each] = kind
    return found


@dataclass(slots=True)
class Arguments:
    """The arguments of a command whose options are all known."""

    seen: list[str] = field(default_factory=list[str])
    """The names of its options."""
    operands: list[Word] = field(default_factory=list[Word])
    paths: list[str] = field(default_factory=list[str])
    """The values of options that are paths."""


@dataclass(frozen=True, slots=True)
class Program:
    """How a program, or one of its subcommands, is judged."""

    options: Mapping[str, str]
    changing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options with which it does not only read, although what they do is known."""
    reads: bool = True
    """Whether it only reads with its other options."""
    exact: bool = False
    """Whether an answer is remembered for the same words only."""
    operands: str | None = None
    """The pattern that all operands, joined by NUL, must match."""
    texts: int = 0
    """How many of the first operands are not paths."""
    kept: int = 0
    """How many of the first operands an answer is remembered for."""

    def read(self, argv: Argv) -> Arguments | None:
        """Returns the arguments; None where an option is not known, or one may be hidden."""
        found, at = Arguments(), 1
        while at < len(argv):
            word = argv[at]
            if word.text == "--":
                rest = argv[at + 1 :]
                hidden = at > 1 and argv[at - 1].text.startswith("-")  # a value that looks like the end of options
                if hidden and any(each.text.startswith("-") or each.may_be_option for each in rest):
                    return None
                found.operands += rest
                break
            if not word.text.startswith("-") or word.text == "-":
                found.operands.append(word)
                at += 1
                continue
            after = self.option(argv, at, found)
            if after is None or (found.operands and self.reads and self.operands is not None):
                return None  # to some programs an option behind an operand is another operand
            at = after
        if self.operands is None:
            return found
        # A pattern of file names may become several words.
        is_one = not any(word.globs for word in found.operands)
        text = "\0".join(word.text for word in found.operands)
        return found if (is_one or not self.reads) and re.fullmatch(self.operands, text, re.DOTALL) else None

    def option(self, argv: Argv, at: int, found: Arguments) -> int | None:
        """Adds the options of a word; returns where the next argument stands, or None for one that is not known."""
        word = argv[at]
        known = {**self.options, **self.changing}
        name, equals, value = word.text.partition("=")
        if name.startswith("--"):
            names, rest = [name], value if equals else None
        else:
            names, rest = _letters(word.text, known)
        kind = known.get(names[-1]) if names else None
        if word.globs or kind is None or any(known.get(each) != "" for each in names[:-1]):
            return None
        found.seen += names
        at += 1
        if kind in ("=", "~") and rest is None:
            if at == len(argv) or argv[at].globs or argv[at].text.startswith("-"):
                return None
            rest, at = argv[at].text, at + 1
        elif kind == "" and rest is not None:
            return None
        if kind == "=" and rest is not None:
            found.paths.append(rest)
        return at


def _letters(text: str, known: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Returns the options of a word such as ``-la`` or ``-n5``, and the value that it holds, or None."""
    names: list[str] = []
    for at, letter in enumerate(text[1:], 1):
        if letter.isdigit() and "-#" in known and not names:
            return (["-#"], None) if text[at:].isdigit() else (["-#", "?"], None)
        names.append(f"-{letter}")
        if known.get(names[-1]):
            return names, text[at + 1 :] or None
    return names, None


def elsewhere(paths: Iterable[str]) -> str | None:
    """Returns the first of the paths that may lie outside of the workspace, or None."""
    return next(filter(_ELSEWHERE.fullmatch, paths), None)


def _rows() -> Iterator[tuple[str, list[str]]]:
    shared: dict[str, list[str]] = {}
    for row in _TABLE.strip().replace("\n    ", " ").split("\n"):
        names, _, given = row.partition(": ")
        words = [word for each in given.split() for word in shared.get(each, [each])]
        if names.startswith("@"):
            shared[names] = words
        else:
            yield names, words


def _program(words: list[str]) -> Program:
    end = words.index("ASKING") if "ASKING" in words else len(words)
    known, asking = options(word for word in words[:end] if word.startswith("-")), options(words[end + 1 :])
    pattern = next((_OPERANDS[word] for word in words if word in _OPERANDS), None)
    texts = 10_000 if "TEXTS" in words else int("TEXT" in words)
    kept = int("REMOTE" in words)
    return Program(known, asking, "CHANGES" not in words, "EXACT" in words, pattern, texts, kept)


PROGRAMS: Mapping[str, Program] = {name: _program(words) for names, words in _rows() for name in names.split("|")}
"""By program, or by program and subcommand."""
NAMES_ONLY = re.compile(r"python[23]?|node|deno|bun|ruby|php|gh|rm|mv|ln|rmdir|chmod|chown")
"""Programs whose arguments are never commands for a shell, so that these may hold any word."""
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "yash", "posh"))
LAUNCHERS = {
    "timeout": (Program(options(["-v", "-ks~", "--preserve-status", "--foreground", "--signal~", "--kill-after~"])), 1),
    "nice": (Program(options(["-n~", "--adjustment~"])), 0),
    "env": (Program({}), 0),
    "command": (Program({}), 0),
}
"""Programs that only start the command in their arguments: their options, and the arguments before it."""
PATTERN_OPTIONS = frozenset({"-e", "-f", "--regexp", "--file", "--files"})
"""Options that hold the pattern to search for, so that the first operand is a path."""
GIT_OPTIONS = frozenset({"--no-pager", "-P", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"})
"""Options of git before its subcommand that change nothing."""
_FIND = re.compile(
    r"-(?:i?name|i?path|i?wholename|i?regex|regextype|x?type|size|empty|[amc]?newer|[amc](?:time|min)|perm|user|group"
    r"|links|inum|samefile|readable|writable|executable|m(?:ax|in)depth|depth|mount|xdev|daystart|follow|prune|quit"
    r"|print0?|printf|ls|true|false|not|and|or|a|o|[HLP]|i?lname|\d+[bcwkMG]?)|[!(),]"
)
_TEST = re.compile(r"-(?:[abcdefghkLnNOGprsSuwxz]|eq|ne|lt|le|gt|ge|nt|ot|ef|\d+)|!")
EXPRESSIONS = {"find": _FIND, "test": _TEST, "[": _TEST}
"""Programs whose words that look like options are an expression, and the pattern of those with which they only read."""
