"""Programs that only read, and with which arguments."""

from __future__ import annotations

from deputize.worker.policy.shell.judgement import Argv, Judgement, ask, reads
from deputize.worker.policy.shell.names import names
from deputize.worker.policy.shell.places import why_elsewhere

WITHOUT_PATHS = names("echo true false : seq expr factor id whoami groups uname arch nproc uptime tty")
"""Their arguments are not paths."""
ANY_OPTION = names(
    "cat head wc nl pwd stat du df basename dirname realpath readlink cut tr rev tac fold fmt paste join comm "
    "expand unexpand od hexdump md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum cmp diff "
    "grep egrep fgrep strings base64 base32 numfmt tsort which type ls dir vdir cd"
)
"""No option of theirs writes or starts anything."""


def reader(argv: Argv) -> Judgement:
    """Judges a program of the two sets above."""
    name = argv[0].text.rpartition("/")[2]
    if name in WITHOUT_PATHS:
        return reads(name)
    elsewhere = why_elsewhere(argv[1:])
    return ask(f"{name} {elsewhere}") if elsewhere else reads(name)
