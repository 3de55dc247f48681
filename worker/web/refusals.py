"""What the network refused a run: hosts that its commands asked for, and those of calls that were denied."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from ...shared.runs.record import REFUSALS
from ...shared.text import shortened

_MOST = 100
_MAX_SENTENCE = 200


class Refusals:
    """A sentence for each refused host of a run, also of earlier attempts. ``store`` sets fields of its record."""

    def __init__(
        self, kept: Sequence[str], mask: Callable[[str], str], store: Callable[[Mapping[str, str]], None]
    ) -> None:
        self.sentences = [*kept]
        self._mask = mask
        self._store = store

    def note(self, sentence: str) -> None:
        sentence = shortened(self._mask(sentence), _MAX_SENTENCE)
        if sentence not in self.sentences and len(self.sentences) < _MOST:
            self.sentences.append(sentence)
            self._store({REFUSALS: json.dumps(self.sentences)})

    def note_denied(self, tool: str | None, url: object) -> None:
        """Notes the host of a call that was denied, if its argument is an address."""
        try:
            host = urlsplit(url).hostname if isinstance(url, str) else None
        except ValueError:
            return
        if host:
            self.note(f"{host}: a call of {tool} was denied")
