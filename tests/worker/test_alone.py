"""The answer of a process that carries out one run."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

import pytest

from deputize.worker.task import received


def _answer(sending: Connection, size: int | None) -> None:
    if size is None:
        os._exit(1)
    sending.send("x" * size)


@pytest.mark.parametrize("size", [1, 200_000, None])
async def test_an_answer_is_received_though_a_pipe_does_not_hold_it_and_a_process_that_died_has_none(
    size: int | None,
) -> None:
    context = multiprocessing.get_context("fork")
    answer, answering = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(answering, size))
    process.start()
    answering.close()
    found: Any = await received(process, answer)
    process.join()
    assert (found, process.exitcode) == (None, 1) if size is None else (found, process.exitcode) == ("x" * size, 0)
    process.close()
