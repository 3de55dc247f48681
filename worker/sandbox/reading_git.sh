#!/bin/sh
# Runs git for a command line that was judged to only read, without the programs that a configuration names: those of a
# repository are a stranger's. It lies in a directory of its own that comes first on PATH.
PATH=${PATH#*:}
count=0
set_to() {
    export "GIT_CONFIG_KEY_$count=$1" "GIT_CONFIG_VALUE_$count=$2"
    count=$((count + 1))
    export GIT_CONFIG_COUNT=$count
}
export GIT_OPTIONAL_LOCKS=0 GIT_ALLOW_PROTOCOL=none GIT_PAGER=cat
set_to safe.bareRepository explicit
set_to core.fsmonitor false
set_to diff.autoRefreshIndex false
set_to gpg.program false
set_to gpg.ssh.program false
set_to gpg.x509.program false
IFS='
'
set -f
for name in $(git config --name-only --get-regexp '^filter\.'); do
    case $name in *.required) set_to "$name" false;; *) set_to "$name" '';; esac
done
for word; do
    case $word in -*) continue;; esac
    break
done
case $word in
    diff | log | show) more='--no-ext-diff
--no-textconv
--ignore-submodules=dirty';;
    status) more=--ignore-submodules=dirty;;
    blame | annotate) more=--no-textconv;;
    *) more='';;
esac
first=1
for argument; do
    [ $first = 1 ] && set --
    first=0
    set -- "$@" "$argument"
    if [ "$argument" = "$word" ]; then word=''; set -- "$@" $more; fi
done
exec git "$@"
