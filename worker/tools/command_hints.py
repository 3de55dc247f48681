"""What a command's answer adds about its surroundings: what ended with it, what is gone, why nothing answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...shared.text import clip
from ..contracts import Completed, FileAccess, Sandbox
from ..text.output import one_line

_REFUSED = re.compile(r"connection refused|ECONNREFUSED|couldn't connect to server|failed to connect", re.IGNORECASE)
_CURL_REFUSED = 7
"""The exit code of curl where nothing listens, whether or not it prints that."""
_APART = (
    "[Each command has a network of its own, so those in the background cannot be reached from here. Start the server "
    "and its client in one command line: server & sleep 1; client]"
)
_HOME = re.compile(r"/tmp\b|~|\bmktemp\b|\$\{?(?:HOME|TMPDIR)\b|--(?:global|user)\b")  # noqa: S108 - the sandbox's own
_MISSING = re.compile(r"/tmp/[^\n]{1,200}no such file|no such file[^\n]{1,200}/tmp/", re.IGNORECASE)  # noqa: S108
_NO_REPOSITORY = re.compile(r"(?P<named>^fatal: not a git repository: )|\bnot a git repository", re.I | re.M)
_ELSEWHERE = (
    "[Here .git only names a repository that lies elsewhere and was not copied, so git cannot work on it. Work on the "
    "files without git.]"
)
_FULL_DISK = (
    "[The disk was full while this ran; another run may have filled it for a moment. What failed for it can be tried "
    "again.]"
)
_SHOWN = 5


def command_hints(files: FileAccess, sandbox: Sandbox, line: str, done: Completed, printed: str) -> str:
    """Returns the sentences that a command line's answer needs, "" for none."""
    return "\n".join(_hints(files, sandbox, line, done, printed))


def _hints(files: FileAccess, sandbox: Sandbox, line: str, done: Completed, printed: str) -> Iterator[str]:
    if done.ended:
        names = _listed(dict.fromkeys(done.ended))
        yield (
            f"[Processes of the command ended with it: {names}. Start a server and its client in one command line, "
            "and a process that must go on with run_in_background.]"
        )
    if done.lost and _HOME.search(line):
        yield (
            f"[/tmp and the home folder are empty at the start of each command. Gone now: {_listed(done.lost)}. Keep "
            "in the workspace what a later command needs.]"
        )
    elif done.exit_code and _MISSING.search(printed):
        yield "[/tmp and the home folder are empty at the start of each command; keep files in the workspace.]"
    if done.found_full_disk:
        yield _FULL_DISK
    if (found := _NO_REPOSITORY.search(printed)) and (found["named"] or _is_link(files, ".git")):
        yield _ELSEWHERE
    if done.exit_code == _CURL_REFUSED or _REFUSED.search(printed):
        if any(each.running for each in sandbox.shells):
            yield _APART
        elif sandbox.reaped and not done.ended:
            names = _listed(dict.fromkeys(sandbox.reaped))
            yield (
                f"[Processes of earlier commands ended with them: {names}. Start the server and its client in one "
                "command line: server & sleep 1; client]"
            )


def _is_link(files: FileAccess, path: str) -> bool:
    found = files.stat(path, follow=False)
    return found is not None and found.kind == "symlink"


def _listed(names: dict[str, None] | tuple[str, ...]) -> str:
    shown = ", ".join(clip(one_line(name), 100) for name in [*names][:_SHOWN])
    return shown + (", …" if len(names) > _SHOWN else "")
