#!/bin/sh
# Runs git for a command line that was judged to only read. It lies in a directory of its own that comes first on PATH.
#
# The configuration of a repository is untrusted, and may name programs. So git gets a state of its own: the data of
# the repository, and only those of its settings that are named here. None of them names a program or starts one.
PATH=${PATH#*:}
export GIT_ALLOW_PROTOCOL=none GIT_CONFIG_GLOBAL=/dev/null GIT_NO_LAZY_FETCH=1 GIT_OPTIONAL_LOCKS=0 GIT_PAGER=cat
kept='^(core\.(abbrev|autocrlf|checkroundtripencoding|checkstat|commentchar|eol|filemode|ignorecase|precomposeunicode|'\
'protecthfs|protectntfs|safecrlf|sparsecheckout|sparsecheckoutcone|symlinks|trustctime)|extensions\.(objectformat|'\
'refstorage)|i18n\.(commitencoding|logoutputencoding)|user\.(name|email)|remote\..*\.(url|pushurl|fetch)|'\
'branch\..*\.(remote|merge|rebase|pushremote|description))$'
separator=$(printf '\001')

# Prints the settings of a file that are kept, in the form of one.
settings_of() {
    git config --file "$1" --null --get-regexp "$kept" | tr '\n\000' '\001\n' | sed 's/[\\"]/\\&/g' |
        while IFS= read -r setting; do
            key=${setting%%"$separator"*} value=true
            case $setting in *"$separator"*) value=${setting#*"$separator"} ;; esac
            section=${key%%.*} rest=${key#*.}
            case $rest in
                *.*) printf '[%s "%s"]\n%s = "%s"\n' "$section" "${rest%.*}" "${rest##*.}" "$value" ;;
                *) printf '[%s]\n%s = "%s"\n' "$section" "$rest" "$value" ;;
            esac
        done
}

for word; do
    case $word in -*) continue ;; esac
    break
done
case $word in
    config | worktree) exec git "$@" ;; # they start nothing, and what they print is of the repository's own state
    rev-parse) case " $* " in *" --git-dir "* | *" --absolute-git-dir "* | *" --git-common-dir "*) exec git "$@" ;; esac ;;
esac
state=$(git rev-parse --absolute-git-dir 2>/dev/null) || exec git -c safe.bareRepository=explicit "$@"
shared=$(git rev-parse --path-format=absolute --git-common-dir) || exit 128
files=$(git rev-parse --show-toplevel 2>/dev/null)

own=$(mktemp -d) || exit 128
trap 'rm -rf "$own"' EXIT
{
    printf '[core]\nrepositoryFormatVersion = 1\nbare = %s\n' "$([ "$files" ] && echo false || echo true)"
    printf '[diff]\nautoRefreshIndex = false\n[gpg]\nprogram = false\n'
    printf '[gpg "ssh"]\nprogram = false\n[gpg "x509"]\nprogram = false\n'
    settings_of "$shared/config"
    [ ! -f "$state/config.worktree" ] || settings_of "$state/config.worktree"
} >"$own/config" || exit 128
# git takes a HEAD that is a link for the name of a branch.
cp -P "$state/HEAD" "$own/HEAD" || exit 128
find "$state" -mindepth 1 -maxdepth 1 ! -name HEAD ! -name 'config*' ! -name commondir ! -name gitdir ! -name hooks \
    ! -name modules ! -name logs -exec ln -s -t "$own" {} +
mkdir "$own/logs"
[ ! -f "$state/logs/HEAD" ] || ln -s "$state/logs/HEAD" "$own/logs"
[ ! -d "$shared/logs/refs" ] || ln -s "$shared/logs/refs" "$own/logs"
for name in info objects packed-refs refs reftable shallow worktrees; do # of a worktree they are those of all
    [ ! -e "$shared/$name" ] || ln -sfn "$shared/$name" "$own/$name"
done

case $word in
    # A submodule has a configuration of its own, and git runs git there to see whether its files changed.
    diff | log | show | status) more=--ignore-submodules=dirty ;;
    *) more= ;;
esac
first=1
for argument; do
    [ $first = 1 ] && set --
    first=0
    set -- "$@" "$argument"
    if [ "$argument" = "$word" ]; then
        word=
        set -- "$@" $more
    fi
done
[ ! "$files" ] || export GIT_WORK_TREE="$files"
export GIT_DIR="$own"
git "$@"
