"""The class of a command line: whether it only reads, needs approval, or is forbidden."""

from __future__ import annotations

from functools import lru_cache

from deputize.worker.policy.shell.classification import Classifier
from deputize.worker.policy.shell.classified import Classified, SubCommand
from deputize.worker.policy.shell.parser import installed_parser

__all__ = ["Classified", "SubCommand", "classify_line"]

_CACHED = 2_000
"""Characters: longer lines are hardly ever repeated, and cost memory."""


def classify_line(line: str) -> Classified:
    """Returns the class of a line. It may start a process, so it belongs into a thread."""
    return _classified(line) if len(line) <= _CACHED else Classifier(installed_parser().parse).classify(line)


@lru_cache(maxsize=1000)
def _classified(line: str) -> Classified:
    return Classifier(installed_parser().parse).classify(line)
