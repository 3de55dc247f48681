"""A run that fills the disk loses what it wrote, and nothing else: not the record's store, and no other run."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.sampling import sampled
from tests.system.disk_filler import DELEGATIONS, filled, reserves

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk is root's"),
]


TRIED = (
    ("in many processes", "at once", "closed"),
    ("files", "open and removed", "background"),
    ("folders", "by and by", "deep", "fast"),
)
"""Kinds that are tried on one stack."""
GROWN = ("one reply", "many files", "words", "outputs", "arguments", "a file over and over")
"""Records, each on a stack of its own."""


@pytest.mark.thorough
@pytest.mark.parametrize("record", GROWN)
def test_a_run_whose_record_fills_the_disk_ends_before_the_store_does(record: str) -> None:
    (found,) = filled(record).values()
    assert (found["honest"], found["starts"]) == (["completed", 1], 1)
    assert found["hostile"] == ["budget", 1]
    assert "the disk of all records takes only" in found["errors"][0]


@pytest.mark.thorough
def test_a_caller_whose_delegations_fill_the_disk_is_refused_before_the_store_ends() -> None:
    (found,) = filled(DELEGATIONS).values()
    assert (found["honest"], found["starts"]) == (["completed", 1], 1)
    assert "no space left at" in found["summary"]


@pytest.mark.costly
@pytest.mark.parametrize("kinds", sampled({" and ".join(kinds): (kinds,) for kinds in TRIED}, 3))
def test_a_run_that_fills_the_disk_loses_its_files_and_everything_goes_on(kinds: tuple[str, ...]) -> None:
    for kind, found in filled(*kinds).items():
        came = (kind, found["honest"], found["hostile"], found["starts"])
        assert came == (kind, ["completed", 1], ["completed", 1], 1), found
        *written, next_command = found["answers"]
        assert next_command == "went on|", kind
        # The kernel takes back itself what a killed `fallocate` had reserved: then nothing is left to be removed.
        ends = ["the files that this run had written were removed: "] + [
            "less than sandbox.share leaves to others"
        ] * reserves(kind)
        # The output of a background command that was killed is not read here.
        assert kind == "background" or any(end in each for each in written for end in ends), (kind, written)
