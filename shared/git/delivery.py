"""The delivery of a run's changes: a commit over its base, made without any working tree, and pushed to its repository.

The commit is the same however often it is made: tree, parent, message, author and the time of the delegation are. So
a delivery that is repeated, or of which is not known whether it arrived, is settled by what the remote has.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from ..delegation import ToolAgentResult
from ..errors import RepositoryFailed
from ..facts import FileChange, GitFacts, Verdict
from ..ids import moment_of
from ..patch_format import NOT_IN_GIT, TOO_LARGE, omission, parse_patch, without
from ..request import DelegationRequest, Deliver, GitWorkspace
from ..settings import Settings
from ..text import clip, visible
from ..wording import put_back
from .clones import Clone, Wanted, clone_of
from .command import PUSH, UPLOAD_PACK
from .evidence import MAX_BODY, RunNotes, evidence_of, executed_by_hosts
from .executed_files import run_by_hosts
from .own import OwnRepository, Patience, written_by
from .pull_requests import pull_request
from .remote import Remote, remote_of
from .signing import made_commit

SECONDS = 120.0
_NEW_BLOB = re.compile(r"^index [0-9a-f]{40}\.\.([0-9a-f]{40})", re.MULTILINE)
_NO_BLOB = "0" * 40
_TOO_LARGE = re.compile(rf"{TOO_LARGE}(?:, more than \d+ lines)?(?: \(\d+ bytes\))?")
_NO_CHANGE = re.compile(
    r"(?!not compared: ).*(?:not copied|pointers to them|repository stores them|in no patch|left out, too)"
    r"|tags of the repository were not fetched, so git describe finds none",
    re.DOTALL,
)
"""Sentences about what the run did not have, or what no patch holds; any name may stand in them."""
_MAX_SHOWN = 500
_SCISSORS = re.compile(r"^\n?# -{24} >8 -{24}\n.*", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be delivered: the changes of an ended delegation over the commit that it began with."""

    id: str
    request: DelegationRequest
    wanted: Deliver
    base: str
    patch: str
    left_out: Sequence[str]
    """Sentences about changes that the patch lacks."""
    restored: Sequence[str] = ()
    """Paths that the checks put back: they are delivered only where that is asked for."""
    changes: Sequence[FileChange] = ()
    """The first sentences are about those that are not in the patch, in their order."""
    evidence: str = ""
    """Markdown at the top of the body of a pull request: what the worker found."""
    verdict: Verdict = "unverified"
    """A pull request is a draft unless it is ``verified``, where the request does not decide."""

    @classmethod
    def of(
        cls,
        result: ToolAgentResult,
        request: DelegationRequest,
        wanted: Deliver,
        base: str,
        patch: str,
        left_out: Sequence[str],
        changes: Sequence[FileChange],
        notes: RunNotes,
        mask: Callable[[str], str],
    ) -> Self:
        """Returns the delivery of a result. ``mask`` hides secrets in untrusted text."""
        id, found = result.delegation_id, result.verification
        evidence = evidence_of(result, changes, notes, mask) if wanted.pull_request else ""
        return cls(id, request, wanted, base, patch, left_out, found.restored, changes, evidence, found.verdict)

    @property
    def withheld(self) -> list[str]:
        """The changed paths that are not delivered."""
        return [] if self.wanted.with_protected else [*self.restored]

    @property
    def nothing(self) -> str:
        """Why there is nothing to deliver."""
        others = f" but {put_back(self.withheld)}; `withProtected` delivers them" if self.withheld else ""
        fits = "that git accepts" if not self._omitted else "that fits into a patch"
        what = f"no file {fits}" if len(self._omitted) > len(self.withheld) or self.left_out else "no file"
        return f"{what} was changed{others}"

    @property
    def branch(self) -> str:
        return self.wanted.branch_of(self.id)

    @property
    def message(self) -> str:
        return f"{(self.wanted.message or self.request.title).strip()}\n"

    def run(
        self, settings: Settings, patience: Patience, pushed: Callable[[GitFacts], None] = lambda _: None
    ) -> GitFacts:
        """Makes the commit and pushes it, unless that is done, and the pull request, if one is asked for. Blocks.

        ``pushed`` is called when the branch is there, as the pull request may fail then.

        Raises RepositoryFailed with its kind, Invalid where the settings do not allow it, and GitStopped.
        """
        if lost := self._lost:
            raise RepositoryFailed("delivery_patch", f"the patch is not complete: {'; '.join(lost)}")
        spec = self.request.workspace
        assert isinstance(spec, GitWorkspace)
        remote = remote_of(spec.url, settings)
        patience.url = remote.url
        with objects_over(settings, remote, self.base, patience) as own:
            commit = self._commit(own, settings)
            if commit is None:
                return GitFacts(base=self.base, left_out=self._omitted)
            self._push(own, remote, commit)
        facts = GitFacts(base=self.base, branch=self.branch, commit=commit, left_out=self._omitted)
        pushed(facts)
        return self.with_pull_request(settings, facts, patience)

    @property
    def _lost(self) -> list[str]:
        """Sentences about changes that the patch lacks although a commit should have them."""
        reasons, withheld = self._reasons, self.withheld
        lost = [
            sentence
            for (path, why), sentence in zip(reasons, self.left_out, strict=False)
            if path not in withheld and why != NOT_IN_GIT and not _TOO_LARGE.fullmatch(why)
        ]
        return lost + [each for each in self.left_out[len(reasons) :] if not _NO_CHANGE.fullmatch(each)]

    @property
    def _reasons(self) -> list[tuple[str, str]]:
        """The changed paths that the patch lacks, each with the reason.

        Names are the run's choice and may look like sentences, so only that of a known path is taken for its own.
        """
        found: list[tuple[str, str]] = []
        paths = (each.path for each in self.changes if not each.in_patch)
        for path, sentence in zip(paths, self.left_out, strict=False):
            if not sentence.startswith(begin := omission(path)):
                break
            found.append((path, sentence.removeprefix(begin)))
        return found

    @property
    def _omitted(self) -> list[str]:
        """The changed paths that are not delivered although others are."""
        too_large = [path for path, why in self._reasons if _TOO_LARGE.fullmatch(why)]
        return [*self.withheld, *(path for path in too_large if path not in self.withheld)]

    def with_pull_request(self, settings: Settings, facts: GitFacts, patience: Patience) -> GitFacts:
        """Makes the pull request for a branch that is there, if one is asked for. Blocks. Raises as ``run``."""
        asked, spec = self.wanted.pull_request, self.request.workspace
        if asked is None:
            return facts
        assert isinstance(spec, GitWorkspace)
        assert facts.branch
        draft = self.verdict != "verified" if asked.draft is None else asked.draft
        asked = asked.model_copy(update={"body": self._body(asked.body), "draft": draft})
        remote, title = remote_of(spec.url, settings), self.request.title
        url = pull_request(settings, remote, facts.branch, spec.ref, asked, title, patience)
        return facts.model_copy(update={"pull_request_url": url})

    def _body(self, given: str) -> str:
        """Returns the body of the pull request; the caller's part of it is cut where a host would refuse the whole.

        That part is Markdown as it was given: whatever it leaves open, such as a code block, has nothing behind it.
        """
        above = [executed_by_hosts(self._workflows), self.evidence, "---" if self.evidence and given else ""]
        room = MAX_BODY - sum(len(each) + 2 for each in above)
        return "\n\n".join(filter(None, (*above, clip(given, room))))

    def _commit(self, own: OwnRepository, settings: Settings) -> str | None:
        """Returns the commit; None where nothing differs from the base."""
        patch = without(self.patch, self.withheld)
        tree = patched_tree(own, self.base, patch)
        changed = own.run("diff-tree", "-r", "--no-renames", self.base, tree).decode("utf-8", "replace").splitlines()
        self._check_workflows([line.partition("\t")[2].strip('"') for line in changed])
        made = Counter(line.split()[3] for line in changed)
        if Counter(id for id in _NEW_BLOB.findall(patch) if id != _NO_BLOB) - made:
            why = "the patch differs from the run's changes: values that must not leave the service are masked in it"
            raise RepositoryFailed("delivery_patch", why)
        if not changed:
            return None
        moment = int(moment_of(self.id))
        committing = replace(own, variables={**own.variables, **written_by(settings.git_author, moment)})
        return made_commit(committing, settings, moment, tree, "-p", self.base, message=self._with_trailer(own))

    def _with_trailer(self, own: OwnRepository) -> bytes:
        """Returns the message with the trailer at its end, unless it is among those that the message has.

        For git the message ends before a scissors line. One that begins with it has the request's title before it.
        """
        scissors = _SCISSORS.search(self.message)
        message, rest = (self.message[: scissors.start()], scissors[0]) if scissors else (self.message, "")
        message = message if message.strip() else f"{self.request.title}\n"
        trailer = f"Deputize-Run: {self.id}"
        options = "--no-divider", "--if-exists=addIfDifferent", f"--trailer={trailer}"
        written = own.run("interpret-trailers", *options, input=message.encode())
        if trailer not in message.splitlines() and not written.endswith(f"\n{trailer}\n".encode()):
            written = f"{message}\n{trailer}\n".encode()  # git puts it before a list of conflicts
        return written + rest.encode()

    def _check_workflows(self, changed: Sequence[str]) -> None:
        """Raises RepositoryFailed where a host would execute what has changed, unless the request asks for that."""
        if not self.wanted.workflows and (found := run_by_hosts(changed)):
            named = clip(visible(", ".join(found)), _MAX_SHOWN)
            why = f"a git host may execute {named} as soon as it is pushed; `workflows` of `deliver` pushes it, too"
            raise RepositoryFailed("delivery_workflow", why)

    @property
    def _workflows(self) -> list[str]:
        changed = (part.path for part in parse_patch(without(self.patch, self.withheld)))
        return run_by_hosts(changed)

    def _push(self, own: OwnRepository, remote: Remote, commit: str) -> None:
        """Pushes the branch where there is none yet; what is in doubt is settled by asking the remote."""
        name = f"refs/heads/{self.branch}"
        try:
            own.run(*PUSH, f"--force-with-lease={name}:", remote.address, f"{commit}:{name}")
        except RepositoryFailed as failure:
            asked = f"--upload-pack={UPLOAD_PACK}", remote.address, name
            with closing(own.records("ls-remote", *asked, end=b"\n")) as listed:
                there = next(listed, b"").decode("ascii", "replace").split("\t")[0]
            if there and there != commit:
                raise RepositoryFailed(
                    "delivery_branch",
                    f"{remote.url} has a branch {self.branch} with other commits, which stay as they are; choose "
                    "another name",
                ) from None
            if not there:
                raise failure from None


def patched_tree(own: OwnRepository, base: str, patch: str) -> str:
    """Returns the tree of a commit with a patch, which may be empty. Raises as ``OwnRepository.run``."""
    own.run("read-tree", base)
    if patch:
        own.run("apply", "--cached", "--whitespace=nowarn", "-", input=os.fsencode(patch))
    return own.run("write-tree").decode().strip()


@contextmanager
def objects_over(settings: Settings, remote: Remote, base: str, patience: Patience) -> Generator[OwnRepository]:
    """Yields a repository for new objects over those of the base commit, of a clone that is there or is made."""
    wanted = Wanted(remote, base, None, 0, settings.sandbox.disk_bytes)
    with clone_of(settings.repositories, wanted, patience) as clone:
        place = clone.folder.parents[1]  # what a killed worker leaves there goes with the clones
        with TemporaryDirectory(prefix="delivery.", dir=place) as own:
            yield _over(clone, Path(own) / "objects.git", patience, remote)


def _over(clone: Clone, folder: Path, patience: Patience, remote: Remote) -> OwnRepository:
    own = OwnRepository(folder, patience, remote.variables)
    own.make()
    (folder / "objects/info").mkdir()
    (folder / "objects/info/alternates").write_text(f"{clone.state / 'objects'}\n")
    if (clone.state / "shallow").exists():
        shutil.copyfile(clone.state / "shallow", folder / "shallow")
    return own
