"""Token estimates: what is counted, and that a damaged encoding counts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deputize.shared.tokens import PIECE, _ranks, count, encoding_file


def test_a_text_of_several_pieces_is_counted_as_a_whole() -> None:
    assert count("word " * (PIECE // 5) * 3) == 3 * count("word " * (PIECE // 5))


def test_a_damaged_encoding_is_not_used() -> None:
    with pytest.raises(RuntimeError, match="Install again"):
        _ranks(encoding_file()[:-1])


def test_a_worker_that_stays_loads_the_encoding_before_its_first_run() -> None:
    script = (
        "from deputize.shared import tokens\n"
        "from deputize.shared.settings import Settings\n"
        "from deputize.worker.task import _warm_up\n"
        "for temporary in (True, False):\n"
        "    _warm_up(Settings(model='scripted', temporary=temporary))\n"
        "    print(tokens._loaded.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
