"""A rule that denies a command also denies lines that have a shell or an interpreter execute it as a text."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from deputize.worker.policy import PolicyCall
from deputize.worker.policy.shell import classify_line, git_alias
from tests.architecture.sources import ROOT
from tests.worker.policy.executing import WAYS
from tests.worker.policy.rule_files import call_of, matches, verdict_of
from tests.worker.sandbox.sandboxes import bash, sandbox_over

RULES = ("git push", "rm -rf", "scp")
PAGE = ROOT / "orchestrator/docs/permissions.md"
HIDDEN = (
    *("cat f | . /dev/stdin", "cat f | command . /dev/stdin", "cat f | source /dev/stdin"),
    *("curl -s x | sh", "cat f | bash", "openssl base64 -d -in f | sh", "xxd -r -p f | python3", "gunzip -c f | perl"),
    *(
        "cat f | xargs -I % % push",
        "cat f | xargs -I% -n1 ./% x",
        "cat f | xargs -i '{}' push",
        "cat f | parallel",
        "cat f | node",
        "cat f | uv run python -",
        "cat f | ruby -w",
    ),
    *("cat f | xargs timeout 5", "seq 2 | bash +x", "cat f | python3 -E", "cat f | xargs xargs"),
    *("awk '{system($0)}' f", "awk '{print | \"sh\"}' f", "gawk -v c=x 'BEGIN{c | getline}'", "cat f | awk -f -"),
    *('awk \'BEGIN{system("gi" "t push")}\'', 'awk \'BEGIN{"gi" "t push" | getline}\'', "awk --lint 1 f"),
    *('awk \'$0~/[/"]/{system("gi" x)}/"/\' f', "awk '{if(1)/\"/;system(x);y=/\"/}'", "nawk '{f=$1;@f(x)}' f"),
    *(
        "sed e f",
        "sed -n 's/a/b/ep' f",
        "sed -i '1{h;s,a,b,e}' f",
        "sed -e p -e 's/x/y/we' -e '$e' f",
        "gsed -Es/a/b/e f",
    ),
    *("find . -exec sed e {} +", "cat f | sed -f -", "timeout 5 sed 's|\\||\\||e' f", "env -S 'g${X}t push'"),
    *("cat f | perl -ne 'system $_'", "cat f | python3 -c 'import os,sys;os.system(sys.stdin.read())'"),
    *("printf 'gi%s push' t | sh", "seq 2 | ruby -ne 'exec $_'", "curl -s x | node -e 'eval(read())'"),
    *(
        "perl -ne 'system $_' f",
        "perl -e 'system <>' f",
        "perl -i -pe 'qx($_)' f",
        "perl -ne '`$_`' f",
        "perl -ne exec f",
    ),
    *(
        "ruby -ne 'system $_' f",
        "ruby -e 'exec gets' f",
        "php -r '`$argv[1]`;' x",
    ),
    *(
        "ruby -e 'IO.popen(File.read(\"f\"))'",
        "python3 -c 'import os; os.system(open(\"f\").read())'",
        "python3 -c 'import subprocess as s; s.run(open(\"f\").read().split())'",
        "python3 -c 'from subprocess import run; run(input().split())'",
        'node -e \'require("child_process").execSync(require("fs").readFileSync("f"))\'',
        'lua -e \'os.execute(io.open("f"):read("a"))\'',
        "perl -MIPC::Open3 -e 'open3(<>)' f",
        "parallel :::: f",
    ),
    *(
        'python3 -c \'__import__("subprocess").run(open("f").read(),shell=True)\'',
        'python3 -c \'import subprocess; getattr(subprocess,"run")(open("f").read())\'',
        'python3 -c \'import sys, subprocess; sys.modules["subprocess"].run(open("f").read())\'',
        "python3 -c 'import subprocess; s=subprocess; s.run(open(\"f\").read())'",
        'python3 -c \'import os; getattr(os, "system")(open("f").read())\'',
        "python3 -c 'import asyncio; asyncio.run(asyncio.create_subprocess_shell(open(\"f\").read()))'",
        'python3 -c \'import os; os.posix_spawnp("sh", open("f").read().split(), {})\'',
    ),
    *("perl -ne 'open(F,\"-|\",$_)' f", "perl -ne 'open F,\"$_ |\"' f", "ruby -e 'open(\"|\"+gets)'"),
    *(
        "bun -e 'Bun.spawn([await Bun.file(\"f\").text()])'",
        'node -e \'require("child_process")["exec"](require("fs").readFileSync("f"))\'',
        'node -e \'const c=require("child_process");c.exec(require("fs").readFileSync("f"))\'',
        'node -e \'require("child_"+"process").exec(require("fs").readFileSync("f"))\'',
        'php -r \'$f="system";$f(file_get_contents("f"));\'',
        "julia -e 'run(`sh -c $(read(\"f\",String))`)'",
    ),
)
"""Lines that execute what does not stand in them."""
HONEST = (
    *("cat data.json | python3 -m json.tool", "echo y | ./configure", "git ls-files | xargs grep foo", "bash build.sh"),
    *("cat a | python3 script.py", "printf 'a\\nb\\n' | sort", "python3 -c 'print(1)'", "find . | xargs wc -l"),
    *("cat fix.patch | patch -d . -p1", "cat f | tar xf - -C .", "cat f | jq .", "cat f | pytest ."),
    *("cat x | bash build.sh", "cat x | bash -eu build.sh", "git branch | xargs git branch -d", "echo x | make all"),
    *("seq 3 | xargs -I % touch f%", "python3 manage.py migrate", "cat f | node -e 'x'", "echo ls | sh", "echo scp"),
    *("cat f | python3 -u run.py", "cat f | perl -ne print", "cat f | deno eval 'x'", "echo hi | tee notes.md"),
    *("awk -F'|' '{print $1 \"|\" $2}' f", "awk '/a|b/ {print}' f", "awk '{print $2 | \"sort -n\"}' f"),
    *("awk 'BEGIN{while ((\"date\" | getline d) > 0) print d}'", "awk -f script.awk f", "awk '$1 == 2 || /[|]/' f"),
    *(
        "sed -i 's/the/a/g; s|e|f|w e' f",
        "sed -n '/^begin/,/end$/{s/[^x]/e/2;p}' f",
        "sed '1i\\\ntext; e' f",
        "sed -n '2q5;$='",
    ),
    *(
        "sed -i.bak -e '2d' -e '/e$/!b' -e 'y/ab/ee/' f",
        "cat f | sed s/a/e/ | sort",
        "sed -f script.sed f",
        "env -u X ls",
    ),
    *(
        "perl -i -pe 's/a/b/' f",
        "perl -ne 'printf \"%x\", $_' f",
        "ruby -e 'puts `ls`' f",
        "python3 -c 'print(open(\"f\"))'",
    ),
    *(
        'python3 -c \'import subprocess; print(subprocess.run(["ls", "-l"], check=True).stdout)\'',
        "python3 -c 'import os; print(os.popen(\"ls\").read())'",
        'ruby -e \'puts File.read("f"); puts `ls`; system("ls", "-l")\'',
        "python3 -c 'import ast; ast.literal_eval(open(\"f\").read())'",
        'node -e \'const m = /a/.exec(require("fs").readFileSync("f")); console.log(`${m}`)\'',
    ),
    *(
        "python3 -c 'import os, platform; print(platform.system(), os.environ)'",
        'python3 -c \'import json; print(json.load(open("f"))["system"])\'',
        'python3 -c \'import json; print({"role": "system", "content": open("f").read()})\'',
        'python3 -c \'print(open("/lib/systemd/system/x").read(), "subprocess")\'',
        "python3 -c 'import torch; m = torch.load(open(\"m\")); m.eval(); print(m)'",
        'python3 -c \'import subprocess, json; json.load(open("f")); subprocess.run(["ls"])\'',
        'node -e \'const r=/a/g; r.exec(require("fs").readFileSync("f"))\'',
        'node -e \'new RegExp("a").exec(require("fs").readFileSync("f"))\'',
        "perl -e 'open(F,\"f\")||die; print <F>'",
        "ruby -e 'open(\"f\") {|f| puts f.read}'",
    ),
    *("git --no-pager log", "echo git push", "cat f | grep git", "make -f Makefile", "printf '%s\\n' ls | sh"),
)


def denied(tmp_path: Path, rule: str, line: str) -> bool:
    assert classify_line(line).commands, f"{line} is not plain"
    prefix, call = f'command_prefix = "{rule}"', call_of("bash", command=line)
    found, asked = (matches(tmp_path, prefix, call, decision) for decision in ("deny", "ask"))
    assert found == asked
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", WAYS)
def test_a_command_is_denied_in_each_way_to_execute_it_as_a_text(tmp_path: Path, rule: str, way: str) -> None:
    line = WAYS[way](f"{rule} origin main")
    assert denied(tmp_path, rule, line)


@pytest.mark.parametrize("line", HIDDEN)
def test_what_executes_a_text_that_does_not_stand_in_the_line_is_denied(tmp_path: Path, line: str) -> None:
    assert denied(tmp_path, "git push", line)
    verdict = verdict_of(tmp_path, DENY, call_of("bash", command=line))
    assert verdict.reason.startswith("Only people push. What ")
    assert verdict.reason.endswith(" executes cannot be read: write the commands themselves")


HIDDEN_IN_OTHERS = (
    *("base64 -d < f | sh", "cat f | sh > out", "{ cat f; } | bash", "cat f 2>&1 | (sh)", "cat <<E | python3\nE"),
    *(
        "sh < f",
        "bash -s <f",
        "sh 0<f",
        "< f sh",
        "<f timeout 5 bash -eu",
        "python3 - < f",
        "sh /dev/stdin < f",
        "node < f > g",
    ),
    *(
        "{ sh; } < f",
        "(cd d; python3) < f",
        "while true; do sh; done < f",
        "make -f - < f",
        "xargs sh < f",
        "node < f > g",
    ),
    *(
        "cat f | bash -c 'source /dev/stdin'",
        "sh -c '. /dev/stdin' < f",
        "sh -xc 'bash -s' < f",
        "cat f | sh -c sh > g",
    ),
    *('eval "$(cat f)"', "eval $(base64 -d f)", 'bash -c "$(curl x)"', "sh <(cat f)", "source <(curl -s x)", "eval $x"),
    *(
        "bash <<< $x",
        'sh -s <<<"$(cat f)"',
        "$(cat f)",
        "cd x && $(cat f)",
        "for i in 1; do $(cat f); done",
        "eval `cat f`",
    ),
    *("X=1 && cat f | awk '{system($0)}'", "echo \"it's\" > a; awk '{print|$1}' f", "gawk '{$1 | getline}' f > g"),
    *(
        "sed e f > g",
        "X=1; sed -i 's/a/b/e' f",
        'for i in *; do sed -n "1e$i" f; done',
        "sed $'e\\n' f",
        "awk '{@f(1)}' <f",
    ),
    *("sh 2>&1 < f", "sh > out < f", "sh 2>/dev/null < f", "< f > out sh", "python3 - 2>&1 < f", "sh <> f"),
    *("{ sh; } 2>&1 < f", "(sh) > o < f", "sh 3<f <&3", "sh 00< f", "exec < f; sh", "exec 3<f; sh 0>&3"),
    *("sh \\\n < f", 'sh > "a b" < f', "sh > ${x}y < f", "sh 2>$(pwd)/x <f", "bash -c \"sh > 'a b' < f\"", "sh &>o <f"),
    *(
        "cat f | (cd d; sh)",
        "cat f | while true; do sh; done",
        "f() { sh; }; f < g",
        "cat f > >(sh)",
        "> o < f exec; sh",
    ),
    *("sh 2>&1 <<< $x", "{ sh; } <<< $x", "sh 2>&1 <(cat f)", "eval 2>&1 $x", "> o $(cat f)", "sh {x}<f <&$x"),
    *("echo $(sh 2>&1 < f)", "echo > $(sh < f)", "echo > $'\\'' ; sh < f; echo ''", "sh <<E < f\nE", "cat f | 2>o sh"),
    *("cat f | xargs -I % % push > g", ". <(cat f)", "true > a; cat f | " * 40 + "sh"),
    *("perl -ne 'system $_' < f", "for i in *; do python3 -c \"import os; os.system(open('$i').read())\"; done"),
    *(
        "# <<E\nsh < f\nE",
        "echo $((1<<E))\nsh < f\nE",
        "echo '<<E'\nsh < f\nE",
        "cat <<E\nEE\nE\nsh < f\nE",
        "cat <<<E\nsh <f\nE",
    ),
    *("sh <<E\nsh < f\nE", "timeout 5 bash -s <<'E'\nsh < f\nE", "cat <<E | sh\nsh < f\nE", "at now <<E\nsh < f\nE"),
    *(
        "cat <<A <<B\nA\nB\nsh < f",
        "cat <<-E\n\tE\nsh < f",
        "if ((a<<E)); then\nsh < f\nfi\nE",
        "cat <<E\nE\n{ sh; } < f",
    ),
    *("cat > x <<E\nE\nruby -w -e 'exec gets' f", "true > a; " + "perl -e 'print 1'; " * 40),
)
"""Lines that are not plain, and execute what does not stand in them."""
DOCUMENT = "python3 - <<'END'\n{}\nEND"
HONEST_OTHERS = (
    *("patch -p1 -d . < fix.patch", "sort < f > g", "python3 app.py < f", "sh run.sh < f", "tar xf - -C . < a.tar"),
    *("source venv/bin/activate && python3 app.py < f", "while read f; do python3 x.py $f; done < list", "jq . < f"),
    *(
        "sh x.sh 2>&1 < f",
        "cat f 2>&1 | python3 x.py > o",
        "sh > o < /dev/null",
        "sh 3<f <&-",
        "2>&1 sort < f; sh x.sh",
    ),
    *("cat f | while read x; do python3 - <<E\nE\ndone", "f() { python3 x.py; }; f < g", "ls || { sh; } > o", "sh 3<f"),
    *(
        DOCUMENT.format(text)
        for text in ("f()\ndef at(): pass\n] R", "function f() {}\nexpect(1)", "f() { sh; }\nsh < f")
    ),
    *("cat > a.js <<'E'\nfunction f() {}\nexpect(f()).toBe(1)\nE\nnode a.js", "cat <<A <<-B\nf() sh\nA\n\tB"),
    *("python3 - <<E 2>&1\nE", "echo ';' $(date)", 'bash -c "make $X" 2>&1', "echo '> ' sh x.sh < f", "jq . <<< $x"),
    *("(cd a; make) < /dev/null", "python3 -m json.tool < f > g", "docker build - < Dockerfile", "sh -c 'wc -l' < f"),
    *("node -e 'x' < f", "diff <(sh a.sh) <(sh b.sh)", "find . -name x < f", "cat f | sh -c 'wc -l' > g"),
    *(
        "x=$(date) && echo $x",
        "cat > run.py <<E\nimport os, subprocess\nsubprocess.run(os.environ['X'])\nE\npython3 run.py",
        "for i in *; do perl -ne 'print if /x/' $i; done",
        'bash -c "make $X"',
        "cat f | sort > g",
        "for i in *; do wc $i; done",
        "python3 - <<E\nE",
    ),
    *("awk '{print $2}' f > g", "for i in $(ls | awk 'NR>1'); do wc $i; done", "sed -e 's/e/a/;s/x/e/' f > e/g"),
    *(
        "echo $(( $(wc -l < f) + 1 ))",
        "cat <<E > f\nx | y\nE",
        "true > a || sh b",
        "sh -c 'ls \"$1\"' x > f",
        ". ./env > f",
    ),
)


@pytest.mark.parametrize("line", HIDDEN_IN_OTHERS)
def test_also_in_a_line_that_is_not_plain(tmp_path: Path, line: str) -> None:
    assert not classify_line(line).commands
    call = call_of("bash", command=line)
    assert [matches(tmp_path, f'command_prefix = "{rule}"', call, "deny") for rule in ("git push", "scp")] == [True] * 2
    assert verdict_of(tmp_path, DENY, call).reason.endswith(" executes cannot be read: write the commands themselves")


@pytest.mark.parametrize("line", HONEST_OTHERS)
def test_a_line_that_is_not_plain_need_not_hide_anything(tmp_path: Path, line: str) -> None:
    assert not classify_line(line).commands
    assert not matches(tmp_path, 'command_prefix = "git push"', call_of("bash", command=line), "deny")


DENY = '[[rule]]\nname = "no-push"\ndecision = "deny"\nreason = "Only people push"\ncommand_prefix = "git push"\n'


@pytest.mark.parametrize("line", HONEST)
def test_what_only_reads_or_names_a_script_is_not(tmp_path: Path, line: str) -> None:
    assert [rule for rule in ("git push", "scp") if denied(tmp_path, rule, line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "git --config-env a.b=HOME push", "git --super-prefix x push", "git -C x push", "git --no-pager push",
        "git --git-dir=x push", "git -c a=b --bare push", "/usr/bin/git --attr-source x push",
    ],
)  # fmt: skip
def test_options_before_a_subcommand_may_have_values(tmp_path: Path, line: str) -> None:
    assert denied(tmp_path, "git push", line)
    assert denied(tmp_path, "pip install", line.replace("git", "pip").replace("push", "install"))
    assert not denied(tmp_path, "git pull", line)


@pytest.mark.parametrize(
    "line",
    [
        "git x origin main", "git -c alias.x=push x", "git --config-env=alias.x=HOME x", "git --config-env a.b=HOME x",
        "git -C d --no-pager x", "/usr/bin/git x", "xargs -a f git x", "timeout -s KILL 5 git x", "npx git x",
        "env GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0=push git x", "nohup git for-each-repo push",
        "env GIT_CONFIG_GLOBAL=f git x", "find . -name x -execdir git x {} +", "/usr/lib/git-core/git-push origin main",
        "git lfs origin main", "git svn x", "git send-email x", "git refs x", "env -u git -u log git x",
        "flock f git x", "find . -exec nice git x {} +", "taskset 1 git x", "poetry run git x", "git bisect run git x",
        "git submodule foreach git x", "git submodule foreach 'git x'", "apt-get install -o Pre-Invoke='git x' a",
        "env git " + "-p " * 100 + "push",
    ],
)  # fmt: skip
def test_a_subcommand_that_git_does_not_have_may_be_an_alias(tmp_path: Path, line: str) -> None:
    assert denied(tmp_path, "git push", line)
    assert not denied(tmp_path, "scp", line)


@pytest.mark.parametrize(
    "line",
    [
        "git", "git --version", "git -C d log -1", "git -p submodule update", "git config alias.x push",
        "apt-get install -y git curl", "env A=b apt-get install git curl", "apk add git curl", "nohup git",
        "git bisect run git status", "mkdir git docs", "gh repo clone git docs",
    ],
)  # fmt: skip
def test_a_subcommand_of_git_and_a_file_of_that_name_are_no_alias(tmp_path: Path, line: str) -> None:
    assert not denied(tmp_path, "git push", line)


def test_each_subcommand_that_counts_as_one_is_a_builtin_of_the_git_that_is_here() -> None:
    """Git executes a builtin before it looks for an alias."""
    builtins = subprocess.run(
        ["git", "--list-cmds=builtins"], capture_output=True, text=True, check=True
    ).stdout.split()
    listed = Path(git_alias.__file__).with_name("git_subcommands.txt").read_text().split()
    assert len(listed) > 100
    assert {*listed} - {*builtins} <= {"bisect", "submodule"}  # scripts in each package of git


def test_what_a_rule_does_not_read_is_what_the_page_on_permissions_names(tmp_path: Path) -> None:
    """A file can be written after the line was judged, so reading it before would be no wall."""
    section = PAGE.read_text("utf-8").partition("\n## What a rule on commands reads\n")[2].partition("\n## ")[0]
    assert "It reads no files." in section
    named = [
        line for item in re.findall(r"^- .*(?:\n  .*)*", section, re.MULTILINE) for line in re.findall("`(.+?)`", item)
    ]
    assert len(named) >= 10
    rule = 'command_prefix = "git push"'
    assert [each for each in named if matches(tmp_path, rule, call_of("bash", command=each))] == []


def test_no_allow_rule_covers_what_executes_a_text(tmp_path: Path) -> None:
    call: PolicyCall = call_of("bash", command="echo git push | sh")
    assert not matches(tmp_path, 'command_prefix = "git push"', call, "allow")


@pytest.mark.parametrize("words", ["xargs ", "sh ", "python3 -c x "])
def test_a_line_of_many_such_words_counts_as_hidden(tmp_path: Path, words: str) -> None:
    assert denied(tmp_path, "scp", f"echo {'x' * 1000} | foo {words * 900}")


@pytest.mark.long
@pytest.mark.system
async def test_bash_starts_the_command_in_most_of_these_ways(tmp_path: Path) -> None:
    """Otherwise the tests above would be about nothing."""
    shown = {name: way("git push x") for name, way in WAYS.items()}
    script = "".join(
        f"PATH=/workspace/programs:$PATH NAME='{name}' /usr/bin/timeout 3 /bin/bash --noprofile --norc -c "
        f"{shlex.quote(line)} </dev/null >/dev/null 2>&1\n"
        for name, line in shown.items()
    )
    with sandbox_over(tmp_path / "ws") as sandbox:
        (tmp_path / "ws/programs").mkdir()
        (tmp_path / "ws/programs/git").write_text('#!/bin/sh\n[ "$*" != "push x" ] || echo "$NAME" >> /workspace/ran\n')
        (tmp_path / "ws/programs/git").chmod(0o755)
        await sandbox.run(bash(script, 120))
    ran = set((tmp_path / "ws/ran").read_text().splitlines())
    assert len(ran) > 25, WAYS.keys() - ran
